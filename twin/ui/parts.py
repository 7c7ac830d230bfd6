"""Parts that several pages share: the verdict, key figures, edits, warnings, and where an answer
comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import streamlit as st

from twin.answers import Run
from twin.planning.types import Plan, Warning
from twin.reports import Report, compare, verdict
from twin.reports.compare import KpiDelta
from twin.reports.kpis import KPIS
from twin.reports.numbers import count, digits, show
from twin.ui import session
from twin.ui.desk import Draft
from twin.ui.tables import change
from twin.ui.view import View

_KPI: Final = {kpi.key: kpi for kpi in KPIS}
_SHORT: Final = {
    "mfu": "MFU",
    "hfu": "HFU",
    "tokens_per_second_per_gpu": "Per GPU",
    "peak_device_bytes": "Peak memory",
}
"""Labels that would not fit in a narrow place."""


def sentence(report: Report) -> None:
    """The verdict: does it fit, how long, how much, and what takes the time."""
    say_verdict(verdict(report), fits=report.fits)


def say_verdict(words: str, *, fits: bool) -> None:
    """A verdict, and whether what it is of fits."""
    if fits:
        st.success(words, icon=":material/check_circle:")
    else:
        st.error(words, icon=":material/block:")


def figures(shown: View, rows: Sequence[Sequence[str]], width: int | Literal["content"]) -> None:
    """Key figures of the open plan, each so many pixels wide, with their change against the
    baseline; a row that is too long for the page goes on in the next line. A change is called good
    or bad only where both plans can run at all."""
    run = shown.reply.now
    assert isinstance(run, Run), "a plan without an answer has no figures"
    baseline = shown.baseline
    deltas = compare([baseline, run.report]).deltas[0].kpis if baseline else None
    judged = run.report.fits and (baseline is None or baseline.fits)
    for keys in rows:
        with st.container(horizontal=True, gap="small"):
            for key in keys:
                delta = deltas[key] if deltas else None
                with st.container(width=width):
                    figure(key, run.report.kpis[key], delta, judged=judged)
    if not run.report.fits:
        st.caption("These are the figures if it did fit.")


def figure(key: str, value: float | None, delta: KpiDelta | None, *, judged: bool) -> None:
    """One key figure; `judged` where its change may be called good or bad."""
    kpi = _KPI[key]
    label, shown = _SHORT.get(key, kpi.label), show(value, kpi.unit)
    if delta is None or delta.delta is None or not delta.delta:
        st.metric(label, shown, help=kpi.label)
        return
    good = "inverse" if kpi.better == "lower" else "normal"
    colour = good if judged else "off"
    words = change(kpi, delta, judged=judged)
    st.metric(label, shown, words, colour, help=kpi.label)


def facts(plan: Plan) -> None:
    """What follows from the fields, in one line."""
    mesh, train = plan.mesh, plan.scenario.train
    st.caption(
        f"{mesh.ranks:,} GPUs in total, {mesh.data:,}-way data parallel, {plan.microbatches:,} "
        f"micro-batches of each pipeline per step, {count(train.global_batch)} tokens per step"
    )


def changes(plan: Draft) -> None:
    """Every edit of a plan against its scenario, each with the way back."""
    if not plan.edits:
        st.caption(f"Nothing is changed against {plan.scenario}.")
        return
    st.markdown(f"**Changed against {plan.scenario}**")
    for path, value in plan.edits:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"`{path}={value}`", width="stretch")
            st.button(
                "Undo",
                key=f"undo {plan.name}|{path}",
                type="tertiary",
                on_click=_undo,
                args=(path,),
                help=f"Back to what {plan.scenario} says",
            )
    st.button("Reset all", icon=":material/restart_alt:", on_click=_reset)


def warnings(all_of: Sequence[Warning]) -> None:
    """What a reader must know before trusting the numbers."""
    for warning in all_of:
        st.markdown(f":material/warning: {warning.message}")


def provenance(run: Run) -> None:
    """Where an answer comes from, and how to have it again."""
    report, origin = run.report, run.report.provenance
    simulated, every = (origin.details[key] for key in ("played_microbatches", "microbatches"))
    st.caption(
        f"Scenario hash `{report.hash[:12]}`, twin {origin.twin_version}, fidelity "
        f"{origin.fidelity}, calibration {origin.calibration}, {origin.events:,} events, "
        f"{simulated:,} of {every:,} micro-batches simulated, "
        f"{digits(100 * report.extrapolated_fraction)} % of the step extrapolated, "
        f"{digits(origin.wall_seconds or 0)} s{', from the store' if run.cached else ''}"
    )
    if origin.reproduce is not None:
        st.code(origin.reproduce, language="shell")


def _undo(path: str) -> None:
    session.change(lambda on: on.changed(lambda plan: plan.without(path)))


def _reset() -> None:
    session.change(lambda on: on.changed(lambda plan: plan.reset))
