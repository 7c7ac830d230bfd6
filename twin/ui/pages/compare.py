"""Compare: the baseline and every other plan on the desk, what differs, and which difference costs
what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import streamlit as st

from twin.answers import Run
from twin.figures.differences import step_deltas
from twin.figures.step import scenario_steps
from twin.reports import Comparison, compare
from twin.ui.compared import attributions, comparability, compared, why_not
from twin.ui.pictures import place, table, theme
from twin.ui.tables import input_rows, kpi_rows
from twin.ui.view import say, view, waiting

_ALONE: Final = (
    "There is nothing to compare yet. Change something on the page Plan, duplicate the plan as a "
    "variant, or open a second scenario; every plan on the desk is compared here."
)


def page() -> None:
    """Run the page once, top to bottom."""
    shown = view()
    runs: Mapping[str, Run] = {}
    found = compared(shown.desk)
    for plan, now in found.answers:
        if isinstance(now, Run):
            runs = {**runs, plan.title: now}
        else:
            say(plan, now)
    if len(runs) < 2:
        st.info(_ALONE, icon=":material/balance:")
        return
    if found.coming is not None:
        waiting(found.coming, "Compared are fast estimates until all plans are played.")
    comparison = compare([run.report for run in runs.values()])
    _caution(comparison)
    place(scenario_steps(comparison.reports, theme()), key="steps")
    _figures(comparison)
    _inputs(comparison)
    st.subheader("What each change is worth")
    attributions(shown.desk, runs)
    st.subheader("Where the difference lies")
    place(step_deltas(comparison, theme()), key="step deltas")


def _caution(comparison: Comparison) -> None:
    """Whether the plans may be compared at all."""
    unfit = why_not(comparison)
    if unfit:
        st.warning(unfit, icon=":material/block:")
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
