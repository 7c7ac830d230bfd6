"""The page that compares plans: pick, edit, run, read side by side."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from twin.report import compare
from twin.ui import answers, editor, sections, state, verdicts
from twin.ui.answers import Answer, Bug, Outcome, Question, Refusal, Written
from twin.ui.editor import Edits
from twin.ui.state import scenario_of, shown_name
from twin.ui.verdicts import Asked


def page() -> None:
    """Run the page once, top to bottom."""
    shipped, asked = answers.shipped(), state.asked_for()
    named = state.scenarios(shipped, asked)
    stamp = answers.stamp([one for one in named.values() if one not in shipped])
    with st.sidebar:
        picked = editor.pick(list(named), state.first_plans(named, asked))
        written = {plan: answers.unedited(named[scenario_of(plan)], stamp) for plan in picked}
        edits = editor.edit(written)
    st.title("Compare plans")
    if not picked:
        st.info("Pick two or more plans in the sidebar.", icon=":material/arrow_back:")
        return
    show(
        verdicts.cards(
            [_asked(plan, named, written[plan], edits.get(plan), stamp) for plan in picked]
        )
    )


def _asked(
    plan: str,
    named: Mapping[str, str],
    written: Written | Refusal | Bug,
    edits: Edits | None,
    stamp: int,
) -> Asked:
    """What the page wants to know of a plan: the answer to the edits that were run last."""
    if edits is None or not isinstance(written, Written):
        assert not isinstance(written, Written), f"{plan} was read, but has no fields"
        return Asked(plan, written)
    question = Question(named[scenario_of(plan)], edits.run, stamp)
    return Asked(shown_name(plan, edits.run), question, edits.waiting)


def show(outcomes: Mapping[str, Outcome]) -> None:
    """Everything below the verdicts, over the plans that have an answer."""
    answered = {name: one for name, one in outcomes.items() if isinstance(one, Answer)}
    reports = [one.report for one in answered.values()]
    if not reports:
        return
    comparison = compare(reports) if len(reports) > 1 else None
    if comparison is not None:
        sections.inputs(comparison)
    sections.steps(reports)
    sections.key_figures(reports, comparison)
    sections.pipeline(answered)
    sections.memory(reports)
    sections.warnings(reports)
    sections.provenance(reports)


page()
