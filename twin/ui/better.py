"""What a step loses, and edits that make the plan faster, as cards: one click uses one, or compares
it."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import shorten
from typing import TYPE_CHECKING, Final

import streamlit as st

from twin.answers import Run
from twin.answers.nearest import written
from twin.figures.step import lost_time
from twin.reports.breakdown import lost
from twin.reports.table import percent, show, signed_bytes
from twin.ui import COMPARE, EXPLORE, session
from twin.ui.answers import GLANCE, improvement, known_study, studied
from twin.ui.place import OpenPlan, place, ready, theme
from twin.ui.suggestions import beside, use

if TYPE_CHECKING:
    from twin.explore.search.improve import Improvement, Tried

SECTION: Final = "Better plan"
"""Of the page Explore, which searches further."""
_HEADING: Final = "Make it faster"
_WORTH: Final = 0.2
"""OURS: share of a loss that an edit has to remove to stand beside it."""
_LETTERS: Final = 44
"""Letters of an edit beside a bar."""
_ACROSS: Final = 2
"""Cards in a row: names of fields are long."""


def better(shown: OpenPlan, run: Run) -> None:
    """What the step loses, by cause. On demand the best pair of edits and the best single ones, and
    beside each loss the edit that removes most of it."""
    st.header(_HEADING)
    pending = known_study(improvement, shown.asked)
    long = "Simulates some fifty edits of the plan: a minute or two."
    if pending is None and st.button("Try edits", icon=":material/bolt:", help=long):
        pending = studied(improvement, shown.asked)
    words = "Simulating single edits of the plan, then pairs."
    found = None if pending is None else ready(pending, shown.plan, words, GLANCE)
    usual = lost(run.trace)
    beside = {} if found is None else remedies(found, usual)
    place(lost_time(usual, run.report.step_ns, beside, theme()), key=f"lost|{shown.plan.name}")
    if found is not None:
        _cards(found)
    words = "Also searches splits of layers, memory by stage and orders of passes"
    if st.button("Find a better plan", icon=":material/trending_up:", type="tertiary", help=words):
        session.want_section(SECTION)
        st.switch_page(EXPLORE)


def remedies(found: Improvement, usual: Mapping[str, int]) -> dict[str, str]:
    """By loss, what is left of it with the single edit that removes most, in words."""
    made: dict[str, str] = {}
    helpful = [one for one in found.tried if found.gain(one) > 0]
    for cause, now in usual.items() if helpful else ():
        best = min(helpful, key=lambda one: (one.outcome.lost_ns[cause], one.step_ns))
        left = best.outcome.lost_ns[cause]
        if left < (1 - _WORTH) * now:
            made[cause] = f"{show(left / 1e9, 's')} with {_short(best)}"
    return made


def _short(one: Tried) -> str:
    """The edit in few letters: fields without their sections."""
    sets = (f"{path.rpartition('.')[2]} = {written(it)}" for path, it in one.edit.overrides.items())
    return shorten(", ".join(sets), _LETTERS, placeholder=" ...")


def _cards(found: Improvement) -> None:
    """What was tried, and the edits that are offered."""
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
