"""Result: the answer to the open plan, whatever its kind: the verdict first, then why."""

from __future__ import annotations

from typing import Final

import streamlit as st

from twin.answers import Run
from twin.ui.answers import Failure, checked
from twin.ui.better import better
from twin.ui.cost import cost, serving_section
from twin.ui.every_rank import every_rank
from twin.ui.other_software import other_software
from twin.ui.parts import derivation, metrics, provenance, say_verdict, warnings
from twin.ui.place import (
    OpenPlan,
    answered,
    blocks,
    open_plan,
    say_scope,
    sections,
    show_block,
    show_views,
    step_view,
)
from twin.ui.session import section
from twin.ui.suggestions import suggestions

_CARD: Final = 168
"""Pixels of a key figure: two side by side on a phone."""
_FIRST: Final = 4
"""Key figures that are shown at once."""
_SUMMARY: Final = "Summary"
_STEP: Final = "Training step"
_COST: Final = "Cost"
_SERVING: Final = "Serving"
_TABLES: Final = "Tables"
_TIMELINE: Final = "Timeline"


def page() -> None:
    """Run the page once, top to bottom."""
    shown = open_plan()
    run = answered(shown)
    if run is None:
        _before(shown)
        return
    has_step = "recommend" not in run.kind.refusals
    several = run.kind.scope(run.scenario) is not None
    more = [_STEP] if several else [_COST] if has_step else []
    _sections("Result", shown, run, [*more, *([_SERVING] if has_step else []), _TABLES])


def _before(shown: OpenPlan) -> None:
    """Whether a plan fits, and its size, while nothing more is known of it."""
    found = checked(shown.asked)
    if isinstance(shown.reply.now, Failure) or isinstance(found, Failure):
        return
    for words in found.sentences if shown.reply.coming is None else ():
        st.markdown(words)
    for block in found.tables:
        st.header(block.title)
        show_block(block)


def _sections(name: str, shown: OpenPlan, run: Run, more: list[str]) -> None:
    """A row of sections: those of the answer's figures, and `more`."""
    own = sections(run.kind.figures(run))
    chosen = section(name, dict.fromkeys([_SUMMARY, *own, *more]))
    if chosen == _STEP:
        say_scope(run.scenario)
        step = step_view(shown)
        found = answered(step)
        if found is not None:
            _sections(_STEP, step, found, [_COST, _TABLES])
    elif chosen == _SERVING:
        serving_section(shown)
    elif chosen == _TABLES:
        blocks(run.kind.tables(run))
    elif chosen == _SUMMARY:
        _summary(shown, run)
    else:
        show_views(own.get(chosen, []), shown.plan.name)
        if chosen == _COST:
            cost(shown, run)
        elif chosen == _TIMELINE:
            every_rank(shown, run)


def _summary(shown: OpenPlan, run: Run) -> None:
    """The verdict, the key figures, why, and the limits of the answer."""
    first, *rest = run.kind.sentences(run)
    say_verdict(first, run.report)
    for words in rest:
        st.markdown(words)
    keys = run.kind.deciding(run.report)
    metrics(shown, keys[:_FIRST], _CARD)
    is_step = "explain" not in run.kind.refusals and run.kind.scope(run.scenario) is None
    if not run.report.fits and is_step:
        suggestions(shown, run)
    show_views(sections(run.kind.figures(run)).get(_SUMMARY, []), shown.plan.name)
    if keys[_FIRST:]:
        with st.expander("More key figures", icon=":material/speed:"):
            metrics(shown, keys[_FIRST:], _CARD)
    if is_step:
        if run.report.fits:
            better(shown, run)
        derivation(shown, run)
    if is_step or shown.asked.step_only:
        other_software(shown)
    st.header("Assumptions and limits")
    warnings(run.report)
    st.header("Provenance")
    provenance(run)


page()
