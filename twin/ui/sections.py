"""The parts of the comparison below the verdicts, each over the plans that have an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import streamlit as st

from twin.figures.memory import stage_memory
from twin.figures.step import scenario_steps, stage_steps
from twin.figures.timeline import Lanes, played_ns, timeline
from twin.report import Comparison, Report
from twin.report.numbers import digits
from twin.ui.answers import Answer
from twin.ui.pictures import place, table, theme
from twin.ui.tables import input_rows, kpi_rows, warnings_by_plan

_LANES: Final[dict[Lanes, str]] = {"compute": "Compute only", "all": "With communication"}
_FEW: Final = 12
"""Rows that a table shows at once; longer ones are folded away."""
_STEPS: Final = 200
"""Positions of the window slider."""


def key_figures(reports: Sequence[Report], comparison: Comparison | None) -> None:
    """All key figures side by side."""
    st.subheader("Key figures")
    table(kpi_rows(reports, comparison))


def inputs(comparison: Comparison) -> None:
    """What differs between the plans, and whether they are comparable at all."""
    st.subheader("What differs between the plans")
    for delta in comparison.deltas:
        for note in delta.notes:
            st.warning(f"**{delta.name}**: {note.message}", icon=":material/balance:")
    rows = input_rows(comparison)
    if not rows:
        st.caption("Nothing: the plans are the same.")
    elif len(rows) <= _FEW:
        table(rows)
    else:
        with st.expander(f"{len(rows)} fields differ", icon=":material/difference:"):
            table(rows)


def steps(reports: Sequence[Report]) -> None:
    """Where the step of each plan goes."""
    st.subheader("Where the step goes")
    place(scenario_steps(reports, theme()), key="steps")


def pipeline(answers: Mapping[str, Answer]) -> None:
    """One plan stage by stage: the timeline, and how each stage spends its step."""
    st.subheader("Pipeline")
    left, middle, right = st.columns([2, 1, 2], vertical_alignment="bottom")
    with left:
        name = st.selectbox("Plan", list(answers), key="timeline plan")
    trace = answers[name].trace
    with middle:
        lanes: Lanes | None = st.segmented_control(
            "Lanes",
            _LANES.keys(),
            default="compute",
            required=True,
            format_func=_LANES.__getitem__,
            key="timeline lanes",
        )
    played = played_ns(trace)
    with right:
        window = _window(played, f"timeline window {name}")
    picture = timeline(trace, theme(), lanes or "compute", window)
    place(picture, key=f"timeline {name} {lanes} {window}")
    with st.expander("How each stage spends the step", icon=":material/view_list:"):
        place(stage_steps(answers[name].report, theme()), key=f"stages {name}")


def _window(played: int, key: str) -> tuple[int, int]:
    """The part of the played step to draw (ns)."""
    seconds = played / 1e9
    start, end = st.slider(
        "Window, seconds",
        0.0,
        seconds,
        (0.0, seconds),
        seconds / _STEPS,
        format=f"%.{max(0, 3 - len(str(int(seconds))))}f",
        key=key,
    )
    return round(start * 1e9), round(end * 1e9) if end > start else played


def memory(reports: Sequence[Report]) -> None:
    """Does each plan fit, stage by stage."""
    st.subheader("Memory by stage")
    for first in range(0, len(reports), 2):
        row = reports[first : first + 2]
        for column, report in zip(st.columns(len(row)), row, strict=True):
            with column:
                place(stage_memory(report.memory, report.name, theme()), f"memory {report.name}")


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
