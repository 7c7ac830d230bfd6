"""The first screenful: per plan, does it fit, how long, how much, and how that compares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import streamlit as st

from twin.report import Comparison, Report, verdict
from twin.report.compare import KpiDelta
from twin.report.kpis import KPIS
from twin.report.numbers import show
from twin.ui.answers import Answer, Refusal
from twin.ui.tables import change

_KPI = {kpi.key: kpi for kpi in KPIS}
_ACROSS: Final = 3
"""Cards in a row."""


def cards(outcomes: Mapping[str, Answer | Refusal], comparison: Comparison | None) -> None:
    """One card per plan, in the order picked; below them, in full width, what is wrong with plans
    that have no answer."""
    deltas = {one.name: one.kpis for one in comparison.deltas} if comparison else {}
    names = list(outcomes)
    for first in range(0, len(names), _ACROSS):
        row = names[first : first + _ACROSS]
        for column, name in zip(st.columns(len(row)), row, strict=True):
            with column, st.container(border=True, height="stretch"):
                badge = " :gray-badge[baseline]" if name == names[0] else ""
                st.markdown(f"##### {name}{badge}")
                _card(outcomes[name], deltas.get(name))
    for name, outcome in outcomes.items():
        if isinstance(outcome, Refusal):
            st.markdown(f":material/error: **What is wrong with {name}**")
            st.code(outcome.text, language=None)


def _card(outcome: Answer | Refusal, deltas: Mapping[str, KpiDelta] | None) -> None:
    if isinstance(outcome, Refusal):
        st.error("Impossible or invalid, so no answer: see below.", icon=":material/error:")
        return
    report = outcome.report
    if report.fits:
        st.success(verdict(report), icon=":material/check_circle:")
    else:
        st.error(verdict(report), icon=":material/block:")
        st.caption("If it did fit:")
    _metrics(report, deltas)


def _metrics(report: Report, deltas: Mapping[str, KpiDelta] | None) -> None:
    money = "gpu_hours" if report.kpis["cost_usd"] is None else "cost_usd"
    columns = st.columns(2)
    for position, key in enumerate(("step_seconds", "days", money, "mfu")):
        with columns[position % 2]:
            _metric(key, report.kpis[key], deltas[key] if deltas else None, judged=report.fits)


def _metric(key: str, value: float | None, delta: KpiDelta | None, *, judged: bool) -> None:
    """One key figure; a change is coloured good or bad only where the plan can run at all."""
    kpi = _KPI[key]
    shown = show(value, kpi.unit)
    if delta is None or delta.delta is None:
        st.metric(kpi.label, shown)
    elif not delta.delta:
        st.metric(kpi.label, shown, "no change", delta_color="off", delta_arrow="off")
    else:
        good = "inverse" if kpi.better == "lower" else "normal"
        st.metric(kpi.label, shown, change(delta), delta_color=good if judged else "off")
