"""The parts of the comparison below the verdicts, each over the plans that have an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import streamlit as st

from twin.engine.trace import Trace
from twin.figures.memory import NARROWEST, stage_memory
from twin.figures.step import scenario_steps, stage_steps
from twin.figures.timeline import Lanes, overview, played_ns, start_window, timeline
from twin.report import Comparison, Report
from twin.report.numbers import digits
from twin.ui.answers import Answer
from twin.ui.pictures import place, table, theme
from twin.ui.tables import input_rows, kpi_rows, warnings_by_plan

_LANES: Final[dict[Lanes, str]] = {"compute": "Compute only", "all": "With communication"}
_FEW: Final = 12
"""Rows that a table shows at once; longer ones are folded away."""
_UNFIT: Final = "does-not-fit"
"""Code of the note that repeats, under the name of one plan, that another does not fit."""
_STEPS: Final = 200
"""Positions of the window slider."""


def key_figures(reports: Sequence[Report], comparison: Comparison | None) -> None:
    """All key figures side by side."""
    st.subheader("Key figures")
    table(kpi_rows(reports, comparison))


def inputs(comparison: Comparison) -> None:
    """What differs between the plans, and whether they are comparable at all."""
    st.subheader("What differs between the plans")
    unfit = [report.name for report in comparison.reports if not report.fits]
    if unfit:
        st.warning(unable(unfit, comparison.reports[0].name), icon=":material/block:")
    for delta in comparison.deltas:
        for note in delta.notes:
            if note.code != _UNFIT:
                st.warning(f"**{delta.name}**: {note.message}", icon=":material/balance:")
    rows = input_rows(comparison)
    if not rows:
        st.caption("Nothing: the plans are the same.")
    elif len(rows) <= _FEW:
        table(rows)
    else:
        with st.expander(f"{len(rows)} fields differ", icon=":material/difference:"):
            table(rows)


def unable(unfit: Sequence[str], baseline: str) -> str:
    """Which plans cannot run, said once, and of themselves only."""
    names = ", ".join(
        f"**{name}** (the baseline)" if name == baseline else f"**{name}**" for name in unfit
    )
    return f"Too large for memory, so cannot run: {names}. Read its figures as if it did fit."


def steps(reports: Sequence[Report]) -> None:
    """Where the step of each plan goes."""
    st.subheader("Where the step goes")
    place(scenario_steps(reports, theme()), key="steps")


def pipeline(answers: Mapping[str, Answer]) -> None:
    """One plan stage by stage: the whole step at a glance, then a window of it pass by pass."""
    st.subheader("Pipeline")
    name = st.selectbox("Plan", list(answers), key="timeline plan")
    trace = answers[name].trace
    place(overview(trace, theme()), key=f"overview {name}")
    with st.container(horizontal=True, vertical_alignment="bottom", gap="large"):
        window = _window(trace, name)
        lanes: Lanes | None = st.segmented_control(
            "Lanes",
            _LANES.keys(),
            default="compute",
            required=True,
            format_func=_LANES.__getitem__,
            key="timeline lanes",
        )
    place(timeline(trace, theme(), window, lanes or "compute"), f"timeline {name} {lanes} {window}")
    with st.expander("How each stage spends the step", icon=":material/view_list:"):
        place(stage_steps(answers[name].report, theme()), key=f"stages {name}")


def _window(trace: Trace, name: str) -> tuple[int, int]:
    """The part of the played step to look at closely (ns)."""
    seconds = played_ns(trace) / 1e9
    first, last = start_window(trace)
    start, end = st.slider(
        "Window to look at, in seconds",
        0.0,
        seconds,
        (first / 1e9, last / 1e9),
        seconds / _STEPS,
        format=f"%.{max(0, 3 - len(str(int(seconds))))}f",
        key=f"timeline window {name} {trace.step_ns}",
    )
    return round(start * 1e9), round((end if end > start else seconds) * 1e9)


def memory(reports: Sequence[Report]) -> None:
    """Does each plan fit, stage by stage."""
    st.subheader("Memory by stage")
    reach = max(report.memory.peak.peak_bytes for report in reports)
    with st.container(horizontal=True):
        for report in reports:
            with st.container(width=NARROWEST if len(reports) > 1 else "stretch"):
                picture = stage_memory(report.memory, report.name, theme(), reach)
                place(picture, f"memory {report.name}")


def warnings(reports: Sequence[Report]) -> None:
    """What a reader must know before trusting the numbers."""
    st.subheader("Before you trust these numbers")
    for warning, names in warnings_by_plan(reports).items():
        whose = "" if len(names) == len(reports) else f" ({', '.join(names)})"
        st.markdown(f":material/warning: {warning.message}{whose}")


def provenance(reports: Sequence[Report]) -> None:
    """Where each answer came from, and how to get it again."""
    st.subheader("Provenance")
    for report in reports:
        origin = report.provenance
        extrapolated = digits(100 * report.extrapolated_fraction)
        st.caption(
            f"**{report.name}**: scenario hash `{report.hash[:12]}`, twin {origin.twin_version}, "
            f"calibration {origin.calibration}, {origin.events:,} events, "
            f"{origin.played_microbatches:,} of {origin.microbatches:,} micro-batches played, "
            f"{extrapolated} % of the step extrapolated, {digits(origin.wall_seconds or 0)} s"
        )
        if origin.reproduce is not None:
            st.code(origin.reproduce, language="shell")
