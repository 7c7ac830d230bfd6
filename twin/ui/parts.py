"""Parts that several pages share: key figures, edits, warnings, and provenance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import streamlit as st

from twin.answers import Run
from twin.planning.types import Warning
from twin.reports.compare import KpiDelta
from twin.reports.numbers import digits, show
from twin.spec.kpis import Kpi
from twin.ui import session
from twin.ui.comparison import change
from twin.ui.open_plan import OpenPlan
from twin.ui.workspace import Draft

_SHORT: Final = {
    "mfu": "MFU",
    "hfu": "HFU",
    "tokens_per_second_per_gpu": "Per GPU",
    "peak_device_bytes": "Peak memory",
    "peak_host_bytes_per_node": "Host memory per node",
    "bytes_per_second": "Rate",
    "gather_seconds": "Gathering metadata",
    "iteration_seconds": "Iteration",
    "trained_tokens_per_second_per_gpu": "Trained tokens",
    "cost_usd_of_rollouts": "Cost of rollouts",
    "tail_share": "Tail",
    "idle_share": "GPUs idle",
}
"""Labels that fit in a narrow place."""


def say_verdict(words: str, *, fits: bool) -> None:
    """A verdict, green where the plan fits."""
    if fits:
        st.success(words, icon=":material/check_circle:")
    else:
        st.error(words, icon=":material/block:")


def metrics(
    shown: OpenPlan,
    keys: Sequence[str],
    width: int | Literal["content"],
    *,
    intervals: bool = False,
) -> None:
    """Key figures of the open plan, each `width` pixels wide, with their change against the
    baseline. A change is called good or bad only where both plans fit."""
    run, baseline = shown.reply.now, shown.baseline
    assert isinstance(run, Run), "a plan without an answer has no figures"
    report, known = run.report, {kpi.key: kpi for kpi in run.kind.kpis}
    deltas: dict[str, KpiDelta] = (
        dict(run.kind.compare([baseline.report, report]).deltas[0].kpis) if baseline else {}
    )
    judged = report.fits and (baseline is None or baseline.report.fits)
    with st.container(horizontal=True, gap="small"):
        for key in keys:
            with st.container(width=width):
                _metric(known[key], report.kpis[key], deltas.get(key), judged=judged)
                span = report.intervals.get(key) if intervals else None
                if span is not None:
                    low, high = (show(end, known[key].unit) for end in span)
                    st.caption(f"80 %: {low} to {high}")
    if not report.fits:
        st.caption("These are the figures if the plan did fit.")


def _metric(kpi: Kpi, value: float | None, delta: KpiDelta | None, *, judged: bool) -> None:
    label, shown = _SHORT.get(kpi.key, kpi.label), show(value, kpi.unit)
    if delta is None or delta.delta is None or not delta.delta:
        st.metric(label, shown, help=kpi.label)
        return
    good = "inverse" if kpi.better == "lower" else "normal"
    words = change(kpi, delta, judged=judged)
    st.metric(label, shown, words, good if judged else "off", help=kpi.label)


def changes(plan: Draft) -> None:
    """Every edit of a plan, each with an undo."""
    if not plan.edits:
        st.caption("No edits.")
        return
    st.markdown(f"**Edits of {plan.scenario}**")
    for path, value in plan.edits:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"`{path}={value}`", width="stretch")
            st.button(
                "Undo",
                key=f"undo {plan.name}|{path}",
                type="tertiary",
                on_click=_undo,
                args=(path,),
                help=f"Back to the value of {plan.scenario}",
            )
    st.button("Reset all", icon=":material/restart_alt:", on_click=_reset)


def warnings(all_of: Iterable[Warning]) -> None:
    """The assumptions and limits of an answer."""
    for warning in all_of:
        st.markdown(f":material/warning: {warning.message}")


def provenance(run: Run) -> None:
    """Where an answer comes from, and the command that gives it again."""
    origin: Any = run.report.provenance
    facts = {
        "scenario hash": f"`{run.report.hash[:12]}`",
        "twin": origin.twin_version,
        "fidelity": origin.fidelity,
        "calibration": origin.calibration,
        "events": f"{origin.events:,}",
        **{key.replace("_", " "): _plain(value) for key, value in origin.details.items()},
        "wall time": f"{digits(origin.wall_seconds or 0)} s",
    }
    stored = ["from the store"] if run.cached else []
    st.caption(", ".join([*(f"{key} {value}" for key, value in facts.items()), *stored]))
    if origin.reproduce is not None:
        st.code(origin.reproduce, language="shell")


def _plain(value: Any) -> str:
    """A detail of the provenance as text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else digits(value)


def _undo(path: str) -> None:
    session.change(lambda on: on.changed(lambda plan: plan.without(path)))


def _reset() -> None:
    session.change(lambda on: on.changed(lambda plan: plan.reset))
