"""Edits that make a plan faster, as cards: one click uses one, or compares it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import streamlit as st

from twin.answers.nearest import written
from twin.reports.table import percent, signed_bytes
from twin.ui import COMPARE
from twin.ui.answers import GLANCE, improvement, studied
from twin.ui.place import OpenPlan, ready
from twin.ui.suggestions import beside, use

if TYPE_CHECKING:
    from twin.explore.search.improve import Improvement, Tried

_HEADING: Final = "Make it faster"
_ACROSS: Final = 2
"""Cards in a row: names of fields are long."""


def better(shown: OpenPlan) -> None:
    """The best pair of edits and the best single ones; simulated when opened."""
    box = st.expander(_HEADING, icon=":material/bolt:", key="make it faster", on_change="rerun")
    if not box.open:
        return
    with box:
        words = "Simulating single edits of the plan, then pairs."
        found = ready(studied(improvement, shown.asked), shown.plan, words, GLANCE)
        if found is None:
            return
        for sentence in found.sentences[0 if not found.offered else 1 :]:
            st.markdown(sentence)
        for first in range(0, len(found.offered), _ACROSS):
            columns = st.columns(_ACROSS)
            for at, one in enumerate(found.offered[first : first + _ACROSS]):
                with columns[at]:
                    _card(found, one, first + at)


def _card(found: Improvement, one: Tried, number: int) -> None:
    overrides = {path: written(value) for path, value in one.edit.overrides.items()}
    used = (found.usual.headroom_bytes or 0.0) - (one.outcome.headroom_bytes or 0.0)
    with st.container(border=True):
        for path, value in overrides.items():
            st.markdown(f"**`{path} = {value}`**")
        lines = (
            f"{percent(found.gain(one))} faster",
            f"Step {found.step(one.step_ns)}",
            f"Memory {signed_bytes(used)}",
            f"Takes {one.edit.costs}",
        )
        st.markdown("  \n".join(lines))
        with st.container(horizontal=True):
            st.button("Use this plan", key=f"better {number}", on_click=use, args=(overrides,))
            key = f"compare better {number}"
            if st.button("Compare", key=key, on_click=beside, args=(overrides,)):
                st.switch_page(COMPARE)
