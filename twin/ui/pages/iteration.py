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
from twin.ui.answers import Failure, Refusal
from twin.ui.iterations import answer, iterating
from twin.ui.parts import warnings
from twin.ui.pictures import place, theme
from twin.ui.view import code, say_bug

_FIGURES: Final = {
    "iteration_seconds": "Iteration",
    "iterations_per_day": "A day",
    "trained_tokens_per_second_per_gpu": "Trained tokens",
    "idle_share": "Nothing to do",
    "cost_usd_per_iteration": "Cost",
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
    with st.sidebar:
        name = st.selectbox("Iteration", names, key="iteration shown")
    found = answer(known.files[name], known.stamp)
    if isinstance(found, IterationReport):
        _show(found)
    else:
        _refuse(found)
        return
    st.subheader("In turns, apart, or one step off")
    if st.button("Compare all of them", help="Plays every scenario that has an iteration."):
        others = [answer(known.files[one], known.stamp) for one in names]
        place(
            ways([one for one in others if isinstance(one, IterationReport)], theme()), key="ways"
        )


def _show(report: IterationReport) -> None:
    with st.sidebar:
        _side(report)
    if report.fits:
        st.success(verdict(report), icon=":material/check_circle:")
    else:
        st.error(verdict(report), icon=":material/block:")
    st.caption(batch_words(report.batch))
    st.subheader("What runs when")
    place(timeline(report, theme()), key="iteration timeline")
    st.subheader("What GPUs do")
    place(occupation(report, theme()), key="iteration occupation")
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


def _refuse(failure: Failure) -> None:
    if isinstance(failure, Refusal):
        st.error("This iteration cannot happen as written.", icon=":material/error:")
        code(failure.text)
    else:
        say_bug(failure.text)


page()
