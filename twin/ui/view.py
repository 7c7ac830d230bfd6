"""What every page shows: the open plan with what the twin says of it, and the baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from twin.answers import Run
from twin.reports import Report, resolved
from twin.scenario import Scenario
from twin.ui import session
from twin.ui.answers import (
    Bug,
    Failure,
    Question,
    Refusal,
    Reply,
    fast,
    question,
    reply,
    scenario_of,
)
from twin.ui.desk import Desk, Draft
from twin.ui.jobs import Pending


@dataclass(frozen=True, slots=True)
class View:
    """The desk, the question that the open plan asks, the reply to it, and that to the baseline
    (None where the open plan is the baseline)."""

    desk: Desk
    asked: Question
    reply: Reply
    reference: Reply | None

    @property
    def plan(self) -> Draft:
        """The open plan."""
        return self.desk.open

    @property
    def baseline(self) -> Report | None:
        """The report to compare with; None where there is none of the same fidelity yet."""
        mine, other = self.reply.now, self.reference.now if self.reference else None
        if not isinstance(mine, Run) or not isinstance(other, Run):
            return None
        same = mine.report.provenance.fidelity == other.report.provenance.fidelity
        return other.report if same else None

    @property
    def coming(self) -> Pending[Run | Failure] | None:
        """What is still being played: the open plan, or else the baseline."""
        return self.reply.better or (self.reference.better if self.reference else None)


def view() -> View:
    """What the open plan says now."""
    desk = session.desk()
    asked, base = ask_about(desk.open), ask_about(desk.reference)
    mine, other = reply(asked), reply(base) if base != asked else None
    if mine.better is not None and other is not None and other.better is None:
        other = Reply(fast(base))  # like is compared with like
    return View(desk, asked, mine, other)


def ask_about(plan: Draft) -> Question:
    """What a plan asks of the twin."""
    return question(session.the_known(), plan.scenario, plan.text, plan.sets)


def lean(plan: Draft) -> Draft:
    """The plan without edits that change nothing: those to what its file says anyway."""
    for path, _ in plan.edits:
        less = plan.without(path)
        mine, other = scenario_of(ask_about(plan)), scenario_of(ask_about(less))
        if not isinstance(mine, Scenario) or not isinstance(other, Scenario):
            continue
        if resolved(mine) == resolved(other):
            plan = less
    return plan


def run_or_stop(shown: View) -> Run:
    """The answer to the open plan; where there is none, the page says why and ends."""
    now = shown.reply.now
    if not isinstance(now, Run):
        say(shown.plan, now)
        st.stop()
    return now


def say(plan: Draft, failure: Failure) -> None:
    """Why a plan has no answer, in the words of the command line."""
    refuse(
        f"**{plan.title}** is invalid, or its layout impossible; what was typed is still there, on "
        "the page Plan.",
        failure,
    )


def refuse(words: str, failure: Failure) -> None:
    """That something cannot be as written, and why; or that the twin failed."""
    match failure:
        case Refusal(text=text):
            st.error(words, icon=":material/error:")
            code(text)
        case Bug(text=text):
            say_bug(text)


def code(text: str) -> None:
    """Problems as the command line shows them, lines wrapped where the page is narrow."""
    st.code(text, language=None, wrap_lines=True)


def say_bug(text: str) -> None:
    """That the twin failed in a way that it should not; its traceback is in the app's log."""
    st.error(
        "**This is a bug in the twin, not in your plan.** Please report it with the link of this "
        f"page. `{text}`",
        icon=":material/bug_report:",
    )


def waiting(pending: Pending[Any], words: str) -> None:
    """Say in this place that something is still being worked on; how far it is stands beside every
    page, and the page is drawn again when it is done."""
    session.awaited().append((pending, words))
    st.caption(f":material/hourglass_top: {words}")
