"""Better plan: edits, splits of layers, memory by stage and orders of passes, searched in turn.

What is found stands in a chart and a table while the search goes on, and is kept."""

from __future__ import annotations

from typing import Any, Final

import streamlit as st

from twin.figures.search import SearchMark, searched
from twin.reports.table import duration, percent
from twin.ui import COMPARE
from twin.ui.comparison import breakable
from twin.ui.explore import better_search
from twin.ui.explore.better_search import BetterAsked, FoundPlan, PlanHistory
from twin.ui.explore.exports import as_json, downloads
from twin.ui.explore.questions import explored, known, left_or_over
from twin.ui.place import OpenPlan, place, ready, small, table, theme
from twin.ui.suggestions import beside, use

_PASSES: Final = 60.0
"""Seconds for the order of passes, as `twin improve --passes 1min`."""
_EVERY: Final = 2.0
"""Seconds between two looks at what a search has found."""
_LETTERS: Final = 90
"""Letters of a value on a card, and of all edits in a row of the table."""


def better_plan_section(shown: OpenPlan, scenario: Any) -> None:
    """The button, and what a search has found: so far, or in all."""
    small(
        "Simulates edits of the plan, then pairs of them, splits of layers, and memory by stage. "
        "Each step begins with the best plan so far."
    )
    passes = st.toggle(
        "Search the order of passes, too",
        key=f"search passes|{shown.plan.name}",
        persist_state="session",
        help="A minute more. Not every trainer can run an order of its own.",
    )
    asked = BetterAsked(shown.asked, _PASSES * passes)
    found = better_search.found_before(asked)
    pending = known(better_search.better, asked)
    if pending is None and (found is None or not found.done):
        label = "Find a better plan" if found is None else "Search on"
        if st.button(label, icon=":material/trending_up:", help="Takes a few minutes."):
            pending = explored(better_search.better, asked)
    if pending is not None and not pending.future.done():
        ready(pending, shown.plan, "Searching for a better plan.")
        _live(asked, scenario)
        return
    if pending is not None:
        ended = ready(pending, shown.plan, "")
        found = ended if ended is not None else better_search.found_before(asked)
    _show(found, asked, scenario)


@st.fragment(run_every=_EVERY)
def _live(asked: BetterAsked, scenario: Any) -> None:
    """What the search has found so far."""
    _show(better_search.found_before(asked), asked, scenario)


def _show(found: PlanHistory | None, asked: BetterAsked, scenario: Any) -> None:
    """The best plan, with the ways to take it over; then how it was found."""
    if found is None:
        return
    is_better = len(found.plans) > 1
    if is_better:
        _best(found.plans[-1], found.plans[0])
    for sentence in found.sentences[is_better:]:
        small(sentence)
    if not found.plans:
        return
    marks = [SearchMark(one.name, one.seconds, one.step_seconds) for one in found.plans]
    picture = searched(marks, theme())
    place(picture, "better plan history")
    table([_row(one) for one in found.plans])
    if found.done:
        files = {".json": lambda: as_json(found.to_json())}
        downloads(f"{scenario.name} better plan", asked.command, files, [picture], theme())


def _best(one: FoundPlan, first: FoundPlan) -> None:
    """What to do, what it gains, and what it takes."""
    step, before = duration(one.step_seconds), duration(first.step_seconds)
    words = f"{percent(one.gain)} faster: a step takes {step} instead of {before}."
    st.success(words, icon=":material/trending_up:")
    with st.container(border=True):
        for path, value in one.overrides.items():
            st.markdown(f"**`{path} = {_shortened(value)}`**")
        st.markdown(f"{left_or_over(one.headroom)} of memory left. Takes {one.costs}.")
        with st.container(horizontal=True):
            st.button("Use this plan", key="use better", on_click=use, args=(one.overrides,))
            key = "compare better plan"
            if st.button("Compare", key=key, on_click=beside, args=(one.overrides,)):
                st.switch_page(COMPARE)


def _shortened(text: str) -> str:
    return text if len(text) <= _LETTERS else f"{text[:_LETTERS]} ..."


def _row(one: FoundPlan) -> dict[str, str]:
    return {
        "Found by": f"{one.name}, {duration(one.seconds)}" if one.seconds else one.name,
        "Edits": breakable(_shortened(", ".join(f"{p} = {v}" for p, v in one.overrides.items()))),
        "Step": duration(one.step_seconds),
        "Gain": percent(one.gain) if one.seconds else "",
        "Bubble": percent(one.bubble),
        "Memory left": left_or_over(one.headroom),
    }
