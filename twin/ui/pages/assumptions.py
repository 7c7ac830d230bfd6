"""Assumptions: every number of the plan, who says so, and how much the answer hangs on it."""

from __future__ import annotations

import streamlit as st

from twin.explore.study import Influence
from twin.figures.differences import tornado
from twin.loading import rows
from twin.reports import Report
from twin.scenario import Scenario
from twin.ui.answers import scenario_of, studied
from twin.ui.assumed import number_rows, sliders, swings
from twin.ui.pictures import grid, place, theme
from twin.ui.studies import influences
from twin.ui.view import View, run_or_stop, say, view, waiting


def page() -> None:
    """Run the page once, top to bottom."""
    shown = view()
    run = run_or_stop(shown)
    found = _influences(shown)
    if found:
        st.subheader("What the answer hangs on")
        place(tornado(swings(found), "Step time", "s", theme()), key="tornado")
        st.subheader("What if")
        _what_if(shown, run.report, found)
    _numbers(shown, found)


def _influences(shown: View) -> tuple[Influence, ...]:
    """How much each uncertain number matters; none while that is being looked at."""
    pending = studied(influences, shown.asked)
    found = pending.within(0.05)
    if found is None:
        waiting(pending, "Trying both ends of every uncertain number, by the fast path.")
        return ()
    if not isinstance(found, tuple):
        say(shown.plan, found)
        return ()
    return found


@st.fragment
def _what_if(shown: View, report: Report, found: tuple[Influence, ...]) -> None:
    """Sliders, answered at once by the fast path; the rest of the page stays as it is."""
    st.caption(
        "One number at a time or several together; the ranges are those of their sources, or 10 % "
        "to either side. The change is by the fast path, which leaves out that transfers share "
        "links, on top of the plan's own figures."
    )
    sliders(shown, report, found)


def _numbers(shown: View, found: tuple[Influence, ...]) -> None:
    """The ledger, to be sorted by any column and searched."""
    st.subheader("Every number")
    scenario = scenario_of(shown.asked)
    assert isinstance(scenario, Scenario), "a plan with an answer has a scenario"
    lines = number_rows(rows(scenario), found)
    kinds = sorted({line["Kind"] for line in lines})
    wanted = st.pills("Kinds", kinds, selection_mode="multi", default=kinds, key=f"kinds {kinds}")
    kept = [line for line in lines if line["Kind"] in wanted]
    grid(kept, key="every number", words="Every number of the plan with its source and influence")


page()
