"""RL iteration: how long rollouts, training and new weights take together, what GPUs wait for, and
how the ways of sharing them compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import streamlit as st

from twin.kinds.base import kind_named
from twin.kinds.iteration.figures import occupation, timeline, ways
from twin.kinds.iteration.report import IterationReport, batch_words, verdict
from twin.reports.numbers import show
from twin.spec.kpis import ITERATION_KPIS
from twin.ui import session
from twin.ui.answers import GLANCE, Failure
from twin.ui.desk import Draft
from twin.ui.iterations import answer, iterating
from twin.ui.parts import say_verdict, warnings
from twin.ui.pictures import place, theme
from twin.ui.view import ask_about, refuse, waiting

_FIGURES: Final = {
    "iteration_seconds": "Iteration",
    "iterations_per_day": "Iterations",
    "trained_tokens_per_second_per_gpu": "Tokens trained on",
    "idle_share": "GPUs have nothing to do",
    "cost_usd_per_iteration": "Cost of an iteration",
}
"""What the sidebar shows."""


def page() -> None:
    """Run the page once, top to bottom."""
    desk = session.desk()
    plans = iterating(desk, session.the_known())
    st.subheader("How long does an iteration of reinforcement learning take?")
    if not plans:
        st.info("This app knows no scenario with `rl.iteration`.", icon=":material/search_off:")
        return
    with st.sidebar:
        plan = _chosen(plans, desk.open)
    found = _played(plan)
    if found is None:
        return
    if not isinstance(found, IterationReport):
        refuse(f"The iteration of **{plan.title}** cannot happen as written.", found)
        return
    _show(found)
    _compare(found, plan, plans)
    _trust(found)


def _chosen(plans: Sequence[Draft], opened: Draft) -> Draft:
    """The open plan, if it is one of these, until another is chosen, or another one opened."""
    names = {at: plan.title for at, plan in enumerate(plans)}
    at = plans.index(opened) if opened in plans else 0
    key = "|".join(("iteration shown", str(at), *names.values()))
    help_ = "Plans of the desk with their edits, then the app's scenarios."
    chosen = st.selectbox(
        "Iteration", list(names), at, format_func=names.__getitem__, key=key, help=help_
    )
    return plans[chosen]


def _played(plan: Draft) -> IterationReport | Failure | None:
    """The answer to a plan, under the plan's name; None, said on the page, while it is in the
    making."""
    pending = answer(ask_about(plan))
    found = pending.within(GLANCE)
    if found is None:
        waiting(pending, f"{plan.title} is being played; this takes some seconds.")
    return replace(found, name=plan.title) if isinstance(found, IterationReport) else found


def _compare(shown: IterationReport, plan: Draft, plans: Sequence[Draft]) -> None:
    """This iteration and all others: how long they take, and where they differ from this one."""
    st.subheader("In turns, apart, or one step off")
    if not st.toggle("Compare all of them", help="Plays every plan that has an iteration."):
        return
    others = [_played(one) for one in plans if one is not plan]
    if None in others:  # of some alone the shortest says nothing
        return
    made = [one for one in others if isinstance(one, IterationReport)]
    place(ways([shown, *made], theme()), key="ways")
    if not made:
        return
    comparison = kind_named(shown.kind).compare([shown, *made])
    for delta in comparison.deltas:
        notes = "".join(f" {note.message}" for note in delta.notes)
        st.markdown(f"- {comparison.sentence(delta)}{notes}")


def _show(report: IterationReport) -> None:
    with st.sidebar:
        _side(report)
    say_verdict(verdict(report), fits=report.fits)
    st.caption(batch_words(report.batch))
    st.subheader("What runs when")
    place(timeline(report, theme()), key="iteration timeline")
    st.subheader("What GPUs do")
    place(occupation(report, theme()), key="iteration occupation")


def _trust(report: IterationReport) -> None:
    """What to know before one relies on the answer, and how it is made again."""
    st.subheader("Before you trust these numbers")
    warnings(report.warnings)
    st.subheader("Provenance")
    st.caption(f"Scenario hash `{report.hash[:12]}`, twin {report.provenance.twin_version}")
    if report.provenance.reproduce is not None:
        st.code(report.provenance.reproduce, language="shell")


def _side(report: IterationReport) -> None:
    """The figures that decide, with their intervals."""
    for kpi in ITERATION_KPIS:
        if kpi.key in _FIGURES:
            st.metric(_FIGURES[kpi.key], show(report.kpis[kpi.key], kpi.unit))
            span = report.intervals[kpi.key]
            if span is not None:
                st.caption(f"80 %: {show(span[0], kpi.unit)} to {show(span[1], kpi.unit)}")


page()
