"""Memory: does it fit, what fills the fullest GPU, stage by stage, and when."""

from __future__ import annotations

import streamlit as st

from twin.answers import Run
from twin.explore.study.figures import memory_levers
from twin.figures.memory import (
    host_memory,
    host_over_time,
    memory_map,
    memory_over_time,
    peak_memory,
    stage_memory,
)
from twin.reports import fitting
from twin.reports.memory_series import activations_by_op, memory_series
from twin.ui.answers import studied
from twin.ui.pictures import place, theme
from twin.ui.studies import freeing
from twin.ui.view import View, run_or_stop, say, view, waiting


def page() -> None:
    """Run the page once, top to bottom."""
    shown = view()
    run, name = run_or_stop(shown), shown.plan.title
    memory = run.report.memory
    if run.report.fits:
        st.success(fitting(memory), icon=":material/check_circle:")
    else:
        st.error(fitting(memory), icon=":material/block:")
    st.subheader("What fills the fullest GPU")
    by_op = activations_by_op(run.plan, memory.peak.stage)
    place(peak_memory(memory, by_op, name, theme()), key="peak")
    st.subheader("Every stage at its fullest moment")
    place(stage_memory(memory, name, theme()), key="stages")
    if memory.host:
        st.subheader("What is kept in host memory")
        place(host_memory(memory, name, theme()), key="host")
    _over_time(run)
    st.subheader("What would free memory")
    _levers(shown, run)
    box = st.expander(
        "Stages and categories as a map",
        icon=":material/grid_on:",
        key="memory map",
        on_change="rerun",
    )
    if box.open:
        with box:
            place(memory_map(memory, name, theme()), key="map")


def _levers(shown: View, run: Run) -> None:
    """Single changes of the plan, and what each frees."""
    pending = studied(freeing, shown.asked)
    found = pending.within(0.05)
    if found is None:
        waiting(pending, "Trying single changes of the plan.")
    elif isinstance(found, tuple):
        place(memory_levers(found, run.report.memory, shown.plan.title, theme()), key="levers")
    else:
        say(shown.plan, found)


@st.fragment
def _over_time(run: Run) -> None:
    """The memory of one rank over the step."""
    st.subheader("Memory over the step")
    roles = run.trace.roles
    fullest = min(run.report.memory.peak.stage, len(roles) - 1)
    role = st.selectbox("Rank of", roles, index=fullest, key=f"rank of {len(roles)}", width=420)
    series = memory_series(run.plan, run.trace, roles.index(role))
    place(memory_over_time(series, run.report.memory, run.trace, theme()), key="over time")
    if series.host:
        place(host_over_time(series, run.trace, theme()), key="host over time")


page()
