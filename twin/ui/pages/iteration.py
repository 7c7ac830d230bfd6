"""RL iteration: how long rollouts, training and new weights take together, what GPUs wait for, and
how the ways of sharing them compare."""

from __future__ import annotations

from typing import Final

import streamlit as st

from twin.figures.iteration import occupation, timeline, ways
from twin.report.numbers import show
from twin.rl.iteration import IterationReport, batch_words, verdict
from twin.spec.kpis import ITERATION_KPIS
from twin.ui import session
from twin.ui.answers import GLANCE, Failure
from twin.ui.iterations import answer, iterating
from twin.ui.parts import say_verdict, warnings
from twin.ui.pictures import place, theme
from twin.ui.view import refuse, waiting

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
    known = session.the_known()
    st.subheader("How long does an iteration of reinforcement learning take?")
    names = iterating(known)
    if not names:
        st.info("This app knows no scenario with `rl.iteration`.", icon=":material/search_off:")
        return
    plan = session.desk().open.scenario
    with st.sidebar:
        at = names.index(plan) if plan in names else 0
        name = st.selectbox("Iteration", names, at, key="iteration shown")
    found = _played(name)
    if found is None:
        return
    if not isinstance(found, IterationReport):
        refuse("This iteration cannot happen as written.", found)
        return
    _show(found)
    st.subheader("In turns, apart, or one step off")
    if st.toggle("Compare all of them", help="Plays every scenario that has an iteration."):
        others = [_played(one) for one in names]
        if None not in others:  # of some alone the shortest says nothing
            made = [one for one in others if isinstance(one, IterationReport)]
            place(ways(made, theme()), key="ways")
    _trust(found)


def _played(name: str) -> IterationReport | Failure | None:
    """The answer to a scenario; None, said on the page, while it is in the making."""
    known = session.the_known()
    pending = answer(known.files[name], known.stamp)
    found = pending.within(GLANCE)
    if found is None:
        waiting(pending, f"{name} is being played; this takes some seconds.")
    return found


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
    st.caption(f"Scenario hash `{report.hash[:12]}`, twin {report.provenance['twin_version']}")
    if report.provenance["reproduce"] is not None:
        st.code(report.provenance["reproduce"], language="shell")


def _side(report: IterationReport) -> None:
    """The figures that decide, with their intervals."""
    for kpi in ITERATION_KPIS:
        if kpi.key in _FIGURES:
            st.metric(_FIGURES[kpi.key], show(report.kpis[kpi.key], kpi.unit))
            span = report.intervals[kpi.key]
            if span is not None:
                st.caption(f"80 %: {show(span[0], kpi.unit)} to {show(span[1], kpi.unit)}")


page()
