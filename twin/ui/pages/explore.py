"""Explore: many plans around the open one: searches, sweeps, what must be true, cost and time
lost."""

from __future__ import annotations

from typing import Final

import streamlit as st

from twin.answers import Run
from twin.scenario import Scenario
from twin.ui.answers import scenario_of
from twin.ui.exploring.cost_view import cost_view
from twin.ui.exploring.must_view import must_view
from twin.ui.exploring.search_view import search_view
from twin.ui.exploring.sweep_view import sweep_view
from twin.ui.view import say, view

_PARTS: Final = {
    "Search": "How many GPUs, and which layout?",
    "Sweep": "What if a field had other values?",
    "What must be true": "Where does the decision flip?",
    "Cost and goodput": "Where do the time and the money go?",
}


def page() -> None:
    """Run the page once, top to bottom."""
    shown = view()
    scenario = scenario_of(shown.asked)
    if not isinstance(scenario, Scenario):
        say(shown.plan, scenario)
        return
    now = shown.reply.now
    if not isinstance(now, Run):
        say(shown.plan, now)  # searches and sweeps go on: they may find what can run
    part = st.segmented_control(
        "What do you want to know?",
        list(_PARTS),
        default="Search",
        required=True,
        key="explore part",
        persist_state="session",
        label_visibility="collapsed",
    )
    st.subheader(_PARTS[part])
    match part:
        case "Sweep":
            sweep_view(shown, scenario)
        case "What must be true":
            must_view(shown, scenario)
        case "Cost and goodput" if isinstance(now, Run):
            cost_view(shown, now)
        case "Cost and goodput":
            st.info("What cannot run costs nothing: mend the plan first, on the page Plan.")
        case _:
            search_view(shown, scenario)


page()
