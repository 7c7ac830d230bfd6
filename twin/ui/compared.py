"""The plans that a comparison shows, why they may not be comparable, and what each change is
worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import streamlit as st

from twin.answers import Run
from twin.explore.study import Attribution
from twin.figures.differences import attribution as figure
from twin.reports import Comparison
from twin.ui.answers import Failure, fast, reply, studied
from twin.ui.desk import Desk, Draft
from twin.ui.jobs import Pending
from twin.ui.pictures import place, table, theme
from twin.ui.studies import attributed
from twin.ui.tables import attribution_rows
from twin.ui.view import ask_about, say, waiting

_UNFIT: Final = "does-not-fit"
"""Code of the note that repeats, under the name of one plan, that another does not fit."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Every plan with its answer, the baseline first; and one that is still being played (None: all
    are there). Until then all answers are the fast ones: like is compared with like."""

    answers: tuple[tuple[Draft, Run | Failure], ...]
    coming: Pending[Run | Failure] | None


def compared(desk: Desk) -> Compared:
    """The plans on the desk, their reports under the plans' names."""
    asked = [ask_about(plan) for plan in desk.compared]
    replies = [reply(one) for one in asked]
    coming = next((one.better for one in replies if one.better is not None), None)
    now = [one.now for one in replies] if coming is None else [fast(one) for one in asked]
    named = (_named(plan, one) for plan, one in zip(desk.compared, now, strict=True))
    return Compared(tuple(named), coming)


def _named(plan: Draft, now: Run | Failure) -> tuple[Draft, Run | Failure]:
    if not isinstance(now, Run):
        return plan, now
    return plan, replace(now, report=replace(now.report, name=plan.title))


def why_not(comparison: Comparison) -> str:
    """Which plans cannot run, said once, and of themselves only; empty where all can."""
    baseline, *_ = comparison.reports
    unfit = [one.name for one in comparison.reports if not one.fits]
    names = ", ".join(
        f"**{name}** (the baseline)" if name == baseline.name else f"**{name}**" for name in unfit
    )
    text = f"Too large for memory, so cannot run: {names}. Read its figures as if it did fit."
    return text if unfit else ""


def comparability(comparison: Comparison) -> list[str]:
    """Why figures of two plans may not mean the same."""
    return [
        f"**{delta.name}**: {note.message}"
        for delta in comparison.deltas
        for note in delta.notes
        if note.code != _UNFIT
    ]


def attributions(desk: Desk, names: Mapping[str, Run]) -> None:
    """For every plan beside the baseline, its difference split over the inputs that differ."""
    baseline, *others = desk.compared
    for plan in others:
        if plan.title not in names or baseline.title not in names:
            continue
        pending = studied(attributed, ask_about(baseline), ask_about(plan))
        found = pending.within(0)
        if found is None:
            waiting(pending, f"Splitting the difference of {plan.title} over its causes.")
        elif isinstance(found, Attribution):
            _show(baseline.title, plan, found)
        else:
            say(plan, found)


def _show(base: str, plan: Draft, found: Attribution) -> None:
    picture = figure(
        (base, found.base_ns / 1e9),
        (plan.title, found.other_ns / 1e9),
        [(cause.name, cause.ns / 1e9) for cause in found.causes],
        theme(),
    )
    place(picture, key=f"attribution {plan.name}")
    st.caption(f"How the orders were averaged: {found.method}.")
    with st.expander("Causes one by one", icon=":material/list:"):
        table(attribution_rows(found))
