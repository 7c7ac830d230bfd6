"""Compare: the baseline and every other plan on the desk, what differs, and which difference costs
what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import streamlit as st

from twin.figures.differences import step_deltas
from twin.figures.step import scenario_steps
from twin.report import Comparison, compare, difference
from twin.runs import Run
from twin.ui.compared import attributions, comparability, named, why_not
from twin.ui.pictures import place, table, theme
from twin.ui.tables import input_rows, kpi_rows
from twin.ui.view import say, view

_ALONE: Final = (
    "There is nothing to compare yet. Change something on the page Plan, duplicate the plan as a "
    "variant, or open a second scenario; every plan on the desk is compared here."
)


def page() -> None:
    """Run the page once, top to bottom."""
    shown = view()
    runs: Mapping[str, Run] = {}
    for plan, now in named(shown.desk):
        if isinstance(now, Run):
            runs = {**runs, plan.title: now}
        else:
            say(plan, now)
    if len(runs) < 2:
        st.info(_ALONE, icon=":material/balance:")
        return
    comparison = compare([run.report for run in runs.values()])
    _findings(comparison)
    _figures(comparison)
    _inputs(comparison)
    st.subheader("Where the step goes")
    place(scenario_steps(comparison.reports, theme()), key="steps")
    place(step_deltas(comparison, theme()), key="step deltas")
    st.subheader("What each change is worth")
    attributions(shown.desk, runs)


def _findings(comparison: Comparison) -> None:
    """A sentence for every plan, and whether they may be compared at all."""
    unfit = why_not(comparison)
    if unfit:
        st.warning(unfit, icon=":material/block:")
    for delta in comparison.deltas:
        st.markdown(f"- {difference(comparison.reports[0], delta)}")
    for note in comparability(comparison):
        st.warning(note, icon=":material/balance:")


def _figures(comparison: Comparison) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.subheader("Key figures")
        few = st.toggle("Differences only", value=True, key="differences only")
    rows = kpi_rows(comparison, changed_only=few)
    if rows:
        table(rows)
    else:
        st.caption("All key figures are the same.")


def _inputs(comparison: Comparison) -> None:
    st.subheader("What differs between the plans")
    rows = input_rows(comparison)
    if rows:
        table(rows)
    else:
        st.caption("Nothing: the plans are the same.")


page()
