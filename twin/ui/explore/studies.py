"""Studies of a training step: memory levers, and expert parallelism that stays hidden."""

from __future__ import annotations

from typing import Any

import streamlit as st

from twin.explore.study.figures import hidden_degrees, memory_levers
from twin.explore.study.hidden import HiddenExpert
from twin.ui.answers import freeing, hiding, studied
from twin.ui.open_plan import OpenPlan, answered, say, waiting
from twin.ui.place import place, theme

_DEGREES = "Simulate each degree"


def levers_section(shown: OpenPlan, scenario: Any) -> None:
    """Single changes of the plan, and the memory that each frees."""
    del scenario
    run = answered(shown)
    if run is None:
        return
    pending = studied(freeing, shown.asked)
    found = pending.within(0.05)
    if found is None:
        waiting(pending, "Trying single changes of the plan.")
    elif isinstance(found, tuple):
        place(memory_levers(found, run.report.memory, shown.plan.title, theme()), key="levers")
    else:
        say(shown.plan, found)


def expert_section(shown: OpenPlan, scenario: Any) -> None:
    """The degrees of expert parallelism whose all-to-all stays hidden; each is a run of its own."""
    if scenario.model.moe is None:
        st.info("The model has no experts.", icon=":material/block:")
        return
    if not st.toggle(_DEGREES, key=f"degrees {shown.plan.name}"):
        st.caption("Which degrees of expert parallelism hide their all-to-all under kernels?")
        return
    pending = studied(hiding, shown.asked)
    found = pending.within(0.05)
    if found is None:
        waiting(pending, "Simulating the plan at each degree of expert parallelism.")
    elif isinstance(found, HiddenExpert):
        place(hidden_degrees(found, shown.plan.title, theme()), key="degrees")
    else:
        say(shown.plan, found)
