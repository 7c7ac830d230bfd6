"""What a step loses, and edits that make the plan faster, as cards: one click uses one, or compares
it."""

from __future__ import annotations

from typing import Final

import streamlit as st

from twin.answers import Run
from twin.figures.step import lost_time
from twin.reports.breakdown import lost
from twin.reports.table import percent, signed_bytes
from twin.ui import COMPARE, EXPLORE, session
from twin.ui.answers import GLANCE
from twin.ui.explore import better_search
from twin.ui.explore.better_search import BetterAsked, OfferedEdit, PlanHistory
from twin.ui.explore.questions import explored, known
from twin.ui.place import OpenPlan, place, ready, small, theme
from twin.ui.suggestions import beside, use

SECTION: Final = "Better plan"
"""Of the page Explore, which shows all that the search finds."""
_HEADING: Final = "Make it faster"
_ACROSS: Final = 2
"""Cards in a row: names of fields are long."""


def better(shown: OpenPlan, run: Run) -> None:
    """What the step loses, by cause. On demand the best pair of edits and the best single ones, and
    beside each loss the edit that removes most of it."""
    st.header(_HEADING)
    found = _found(shown)
    remedies = (found or PlanHistory()).remedies
    picture = lost_time(lost(run.trace), run.report.step_ns, remedies, theme())
    place(picture, key=f"lost|{shown.plan.name}")
    if found is not None:
        _cards(found)
    words = "Splits of layers, memory by stage, and orders of passes"
    if st.button("All better plans", icon=":material/trending_up:", type="tertiary", help=words):
        session.want_section(SECTION)
        st.switch_page(EXPLORE)


def _found(shown: OpenPlan) -> PlanHistory | None:
    """What the search has found; where nobody has begun it, a button that does."""
    asked = BetterAsked(shown.asked)
    found = better_search.found_before(asked)
    if found is not None and found.done:
        return found
    pending = known(better_search.better, asked)
    if pending is None:
        with st.container(horizontal=True, vertical_alignment="center"):
            wanted = st.button("Try edits", icon=":material/bolt:")
            small("Simulates some fifty edits of this plan, in a minute or two.")
        pending = explored(better_search.better, asked) if wanted else None
    words = "Simulating edits of the plan, alone and together."
    return (pending and ready(pending, shown.plan, words, GLANCE)) or found


def _cards(found: PlanHistory) -> None:
    """What was tried, and the edits that are offered."""
    for sentence in found.sentences[0 if not found.offered else 1 :]:
        st.markdown(sentence)
    for first in range(0, len(found.offered), _ACROSS):
        columns = st.columns(_ACROSS)
        for at, one in enumerate(found.offered[first : first + _ACROSS]):
            with columns[at]:
                _card(one, first + at)


def _card(one: OfferedEdit, number: int) -> None:
    with st.container(border=True):
        for path, value in one.overrides.items():
            st.markdown(f"**`{path} = {value}`**")
        lines = (
            f"{percent(one.gain)} faster",
            f"Step {one.step}",
            f"Memory {signed_bytes(one.used)}",
            f"Takes {one.costs}",
        )
        st.markdown("  \n".join(lines))
        with st.container(horizontal=True):
            overrides = dict(one.overrides)
            st.button("Use this plan", key=f"better {number}", on_click=use, args=(overrides,))
            key = f"compare better {number}"
            if st.button("Compare", key=key, on_click=beside, args=(overrides,)):
                st.switch_page(COMPARE)
