"""The pipeline as it ran: the whole step at a glance, then a window of it pass by pass."""

from __future__ import annotations

from typing import Final

import streamlit as st

from twin.answers import Run
from twin.engine.trace import Trace
from twin.figures.step import stage_steps
from twin.figures.timeline import Lanes, overview, played_ns, start_window, timeline
from twin.ui.pictures import place, theme

_LANES: Final[dict[Lanes, str]] = {"compute": "Compute only", "all": "With communication"}
_STEPS: Final = 200
"""Positions of the window slider."""


@st.fragment
def pipeline(run: Run) -> None:
    """One plan stage by stage; moving the window draws nothing else again."""
    st.subheader("Pipeline")
    trace = run.trace
    place(overview(trace, theme()), key="overview")
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        seconds = played_ns(trace) / 1e9
        decimals = max(0, 3 - len(str(int(seconds))))
        window = choose_window(trace, decimals, "timeline window")
        lanes = choose_lanes("timeline lanes")
        critical = st.toggle(
            "Critical path",
            key="critical path",
            help="The chain of kernels and transfers that the step waited for from end to end",
        )
    picture = timeline(trace, theme(), window, lanes, critical=critical)
    place(picture, key="timeline")
    box = st.expander(
        "How each stage spends the step",
        icon=":material/view_list:",
        key="stages",
        on_change="rerun",
    )
    if box.open:
        with box:
            place(stage_steps(run.report, theme()), key="stage steps")


def choose_lanes(key: str) -> Lanes:
    """Which lanes a timeline shows."""
    lanes: Lanes | None = st.segmented_control(
        "Lanes",
        _LANES.keys(),
        default="compute",
        required=True,
        format_func=_LANES.__getitem__,
        key=key,
    )
    return lanes or "compute"


def choose_window(trace: Trace, decimals: int, key: str) -> tuple[int, int]:
    """The part of the played step to look at closely (ns), chosen in seconds of so many
    decimals."""
    seconds = played_ns(trace) / 1e9
    first, last = start_window(trace)
    start, end = st.slider(
        "Window to look at, in seconds",
        0.0,
        seconds,
        (first / 1e9, last / 1e9),
        seconds / _STEPS,
        format=f"%.{decimals}f",
        key=f"{key} {trace.step_ns}",
    )
    return round(start * 1e9), round((end if end > start else seconds) * 1e9)
