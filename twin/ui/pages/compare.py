"""The page that compares plans: pick, edit, run, read side by side."""

from __future__ import annotations

import streamlit as st

from twin.report import compare
from twin.ui import answers, editor, sections
from twin.ui.answers import Answer, Refusal
from twin.ui.fields import overrides
from twin.ui.state import scenario_of, shown_name
from twin.ui.verdicts import cards


def page() -> None:
    """Run the page once, top to bottom."""
    stamp = answers.stamp()
    with st.sidebar:
        picked = editor.pick(answers.shipped())
        written = {plan: answers.unedited(scenario_of(plan), stamp) for plan in picked}
        edited = editor.edit(written)
    st.title("Compare plans")
    if not picked:
        st.info("Pick two or more plans in the sidebar.", icon=":material/arrow_back:")
        return
    outcomes: dict[str, Answer | Refusal] = {}
    for plan in picked:
        base = written[plan]
        if isinstance(base, Refusal):
            outcomes[plan] = base
            continue
        edits = overrides(base.fields, edited[plan])
        name = shown_name(plan, edits)
        with st.spinner(f"Simulating {name}", show_time=True):
            outcome = answers.answer(scenario_of(plan), edits, stamp)
        outcomes[name] = outcome.named(name) if isinstance(outcome, Answer) else outcome
    show(outcomes)


def show(outcomes: dict[str, Answer | Refusal]) -> None:
    """Everything below the title."""
    answered = {name: one for name, one in outcomes.items() if isinstance(one, Answer)}
    reports = [one.report for one in answered.values()]
    comparison = compare(reports) if len(reports) > 1 else None
    cards(outcomes, comparison)
    if not reports:
        return
    if comparison is not None:
        sections.inputs(comparison)
    sections.steps(reports)
    sections.key_figures(reports, comparison)
    sections.pipeline(answered)
    sections.memory(reports)
    sections.warnings(reports)
    sections.provenance(reports)


page()
