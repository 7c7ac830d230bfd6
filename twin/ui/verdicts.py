"""The first screenful: per plan, does it fit, how long, how much, and how that compares. Each card
is filled as soon as its answer is there, the baseline's first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from twin.report import Report, compare, verdict
from twin.report.compare import KpiDelta
from twin.report.kpis import KPIS
from twin.report.numbers import show
from twin.ui.answers import Answer, Bug, Outcome, Pending, Question, Refusal, ask
from twin.ui.fields import faulty
from twin.ui.tables import change

_KPI: Final = {kpi.key: kpi for kpi in KPIS}
_SHORT: Final = {"mfu": "MFU"}
"""Labels that would not fit in a narrow card."""
_ACROSS: Final = 3
"""Cards in a row at most; a narrow page has fewer."""
_GLANCE: Final = 0.1
"""Seconds between two looks at a simulation."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A plan under the name that the page shows, with what is asked of it, or why nothing can be;
    `waiting` where its fields were edited since it was run."""

    name: str
    what: Question | Refusal | Bug
    waiting: bool = False


@dataclass(frozen=True, slots=True)
class _Card:
    """The places of a card that are filled later."""

    head: DeltaGenerator
    body: DeltaGenerator


def cards(asked: Sequence[Asked]) -> dict[str, Outcome]:
    """One card per plan, in the order picked; below them, in full width, what is wrong with plans
    that have no answer. Returns what became of each plan."""
    coming = [ask(one.what) if isinstance(one.what, Question) else one.what for one in asked]
    frames = _frames(asked)
    for what, card in zip(coming, frames, strict=True):
        if isinstance(what, Pending) and what.within(0) is None:
            card.body.caption("Waits for its turn.")
    outcomes: dict[str, Outcome] = {}
    baseline: Report | None = None
    for one, what, card in zip(asked, coming, frames, strict=True):
        outcome = _awaited(what, one.name, card) if isinstance(what, Pending) else what
        outcome = outcome.named(one.name) if isinstance(outcome, Answer) else outcome
        with card.body.container():
            _fill(outcome, baseline)
        if baseline is None and isinstance(outcome, Answer):
            baseline = outcome.report
            _head(one, card, baseline=len(asked) > 1)
        outcomes[one.name] = outcome
    for name, outcome in outcomes.items():
        _wrong(name, outcome)
    return outcomes


def _frames(asked: Sequence[Asked]) -> list[_Card]:
    """The cards with their headings, still empty."""
    frames: list[_Card] = []
    for first in range(0, len(asked), _ACROSS):
        # In a horizontal container a row of cards breaks where they would become too narrow.
        with st.container(horizontal=True):
            for one in asked[first : first + _ACROSS]:
                with st.container(border=True, height="stretch"):
                    card = _Card(st.empty(), st.empty())
                    _head(one, card, baseline=False)
                    frames.append(card)
    return frames


def _head(one: Asked, card: _Card, *, baseline: bool) -> None:
    badges = " :gray-badge[baseline]" if baseline else ""
    badges += " :orange-badge[edited, press Run]" if one.waiting else ""
    card.head.markdown(f"##### {one.name}{badges}")


def _awaited(pending: Pending, name: str, card: _Card) -> Outcome:
    """The answer, once it is there; until then its card says how far it is."""
    while (outcome := pending.within(_GLANCE)) is None:
        card.body.progress(min(1.0, pending.progress.share), f"Simulating {name}")
    return outcome


def _fill(outcome: Outcome, baseline: Report | None) -> None:
    match outcome:
        case Refusal():
            st.error("Impossible or invalid, so no answer: see below.", icon=":material/error:")
        case Bug():
            st.error("No answer, by a fault of the twin: see below.", icon=":material/bug_report:")
        case Answer(report=report):
            if report.fits:
                st.success(verdict(report), icon=":material/check_circle:")
            else:
                st.error(verdict(report), icon=":material/block:")
                st.caption("If it did fit:")
            _metrics(report, baseline)


def _wrong(name: str, outcome: Outcome) -> None:
    """What is wrong with a plan: whose and which field it is, then the words of the command
    line."""
    match outcome:
        case Refusal():
            st.markdown(f":material/error: **What is wrong with {name}**")
            st.markdown("\n".join(f"- {faulty(one, outcome.edits)}" for one in outcome.problems))
            st.code(outcome.text, language=None)
        case Bug():
            st.error(
                f"**This is a bug in the twin, not in {name}.** Please report it with the command "
                f"below; other plans keep their answers. `{outcome.text}`",
                icon=":material/bug_report:",
            )
            st.code(outcome.command, language="shell")
        case Answer():
            pass


def _metrics(report: Report, baseline: Report | None) -> None:
    """The main key figures. A change is called good or bad only where both plans can run at
    all."""
    deltas = compare([baseline, report]).deltas[0].kpis if baseline is not None else None
    judged = report.fits and (baseline is None or baseline.fits)
    money = "gpu_hours" if report.kpis["cost_usd"] is None else "cost_usd"
    with st.container(horizontal=True):
        for key in ("step_seconds", "days", money, "mfu"):
            _metric(key, report.kpis[key], deltas[key] if deltas else None, judged=judged)
    if baseline is not None and not baseline.fits:
        st.caption("Changes are neither good nor bad here: the baseline does not fit.")


def _metric(key: str, value: float | None, delta: KpiDelta | None, *, judged: bool) -> None:
    kpi = _KPI[key]
    label, shown = _SHORT.get(key, kpi.label), show(value, kpi.unit)
    if delta is None or delta.delta is None:
        st.metric(label, shown, width="content")
    elif not delta.delta:
        st.metric(label, shown, "no change", "off", delta_arrow="off", width="content")
    else:
        good = "inverse" if kpi.better == "lower" else "normal"
        colour = good if judged else "off"
        st.metric(label, shown, change(delta, judged=judged), colour, width="content")
