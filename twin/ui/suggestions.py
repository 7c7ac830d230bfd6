"""When a plan does not fit: the nearest plans that do, one click away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import streamlit as st

from twin.answers import Run
from twin.answers.nearest import Suggestion
from twin.reports.table import gibibytes, show
from twin.spec.kpis import KPIS
from twin.ui import COMPARE, session
from twin.ui.answers import nearest, studied
from twin.ui.place import OpenPlan, lean, ready
from twin.ui.workspace import varied

_ACROSS: Final = 3
_SHOWN: Final = 6
"""Suggestions that are shown, nearest first."""
_KPI: Final = {kpi.key: kpi for kpi in KPIS}
_FIGURES: Final = {"step_seconds": "Step", "days": "Run", "cost_usd": "Cost"}


def suggestions(shown: OpenPlan, run: Run) -> None:
    """The nearest plans that fit, with what they cost."""
    st.header("The nearest plans that fit")
    words = "Looking for the nearest plans that fit."
    found = ready(studied(nearest, shown.asked), shown.plan, words, 0)
    if found is None:
        return
    if not found:
        st.info(
            "No plan with one or two other settings fits. Take more GPUs, or a smaller model.",
            icon=":material/search_off:",
        )
    else:
        for first in range(0, len(found[:_SHOWN]), _ACROSS):
            columns = st.columns(_ACROSS)
            for at, one in enumerate(found[first : first + _ACROSS]):
                with columns[at]:
                    _card(one, first + at, run)


def _card(one: Suggestion, number: int, now: Run) -> None:
    before = now.report.kpis
    with st.container(border=True):
        for path, value in one.overrides.items():
            st.markdown(f"**`{path} = {value}`**")
        lines = [_size(one.scenario, now.scenario), f"{gibibytes(one.headroom_bytes)} left"]
        lines += [
            f"{label} {show(one.kpis[key], _KPI[key].unit)}{_change(one.kpis[key], before[key])}"
            for key, label in _FIGURES.items()
            if one.kpis[key] is not None
        ]
        st.markdown("  \n".join(line for line in lines if line))
        with st.container(horizontal=True):
            overrides = dict(one.overrides)
            st.button("Use this plan", key=f"use {number}", on_click=use, args=(overrides,))
            if st.button("Compare", key=f"compare {number}", on_click=beside, args=(overrides,)):
                st.switch_page(COMPARE)


def _change(value: float | None, before: float | None) -> str:
    """What the plan costs against the open one if that did fit."""
    return f" ({100 * (value / before - 1):+.3g} %)" if value and before else ""


def _size(scenario: Any, now: Any) -> str:
    """How many GPUs a plan takes, where that is another number than now."""
    after = _gpus(scenario)
    before = _gpus(now)
    return f"{after:,} GPUs, {after / before:.3g}x" if after != before else ""


def _gpus(scenario: Any) -> int:
    return scenario.cluster.nodes * scenario.cluster.node.gpus


def use(overrides: Mapping[str, str]) -> None:
    """Edit the open plan."""
    session.change(lambda on: on.changed(lambda plan: lean(varied(plan, overrides, plan.name))))


def beside(overrides: Mapping[str, str]) -> None:
    """Add the open plan with these edits as another plan."""
    plan = lean(varied(session.workspace().open, overrides, ""))
    session.change(lambda on: on.added(replace(plan, name=plan.described), show=False))
