"""When a plan does not fit: the nearest plans that do, one click away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import streamlit as st

from twin.report.kpis import KPIS
from twin.report.numbers import gibibytes, show
from twin.study import Suggestion
from twin.ui import session
from twin.ui.answers import studied
from twin.ui.desk import varied
from twin.ui.places import COMPARE
from twin.ui.studies import nearest
from twin.ui.view import View, say, waiting

_ACROSS: Final = 3
_SHOWN: Final = 6
"""Suggestions that are shown, nearest first."""
_KPI: Final = {kpi.key: kpi for kpi in KPIS}


def suggestions(shown: View) -> None:
    """The nearest plans that fit, with what they cost."""
    st.subheader("The nearest plans that fit")
    pending = studied(nearest, shown.asked)
    found = pending.within(0)
    if found is None:
        waiting(pending, "Looking for the nearest plans that fit.")
    elif not isinstance(found, tuple):
        say(shown.plan, found)
    elif not found:
        st.info(
            "No plan with one or two other settings fits. A larger cluster or another model does.",
            icon=":material/search_off:",
        )
    else:
        for first in range(0, len(found[:_SHOWN]), _ACROSS):
            columns = st.columns(_ACROSS)
            for at, one in enumerate(found[first : first + _ACROSS]):
                with columns[at]:
                    _card(one, first + at)


def _card(one: Suggestion, number: int) -> None:
    with st.container(border=True):
        for path, value in one.overrides.items():
            st.markdown(f"**`{path} = {value}`**")
        kpis = ("step_seconds", "days", "cost_usd")
        words = [show(one.kpis[key], _KPI[key].unit) for key in kpis if one.kpis[key] is not None]
        st.markdown(f"{gibibytes(one.headroom_bytes)} to spare  \n{', '.join(words)}")
        with st.container(horizontal=True):
            overrides = dict(one.overrides)
            st.button("Use this plan", key=f"use {number}", on_click=_use, args=(overrides,))
            if st.button("Compare", key=f"compare {number}", on_click=_beside, args=(overrides,)):
                st.switch_page(COMPARE)


def _use(overrides: Mapping[str, str]) -> None:
    session.change(lambda on: on.changed(lambda plan: varied(plan, overrides, plan.name)))


def _beside(overrides: Mapping[str, str]) -> None:
    words = ", ".join(f"{path.rpartition('.')[2]} {value}" for path, value in overrides.items())
    session.change(
        lambda on: on.added(varied(on.open, overrides, f"{on.open.scenario}, {words}"), show=False)
    )
