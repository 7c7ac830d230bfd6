"""The state that every page shows: the open plan with its answer, and the baseline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from twin.answers import Run
from twin.kinds.base import Verb, kind_of
from twin.reports import resolved
from twin.ui import session
from twin.ui.answers import (
    Bug,
    Failure,
    Question,
    Refusal,
    Reply,
    estimate,
    question,
    reply,
    scenario_of,
)
from twin.ui.background import Pending
from twin.ui.workspace import Draft, Workspace


@dataclass(frozen=True, slots=True)
class OpenPlan:
    """The workspace, the question of the open plan, the reply to it, and the reply to the baseline
    (None where the open plan is the baseline)."""

    workspace: Workspace
    asked: Question
    reply: Reply
    reference: Reply | None

    @property
    def plan(self) -> Draft:
        """The open plan."""
        return self.workspace.open

    @property
    def baseline(self) -> Run | None:
        """The answer to compare with; None where there is none of the same kind and fidelity."""
        mine, other = self.reply.now, self.reference.now if self.reference else None
        if not isinstance(mine, Run) or not isinstance(other, Run):
            return None
        same = mine.report.provenance.fidelity == other.report.provenance.fidelity
        return other if same and mine.kind.name == other.kind.name else None

    @property
    def coming(self) -> Pending[Run | Failure] | None:
        """What is still being simulated: the open plan, or else the baseline."""
        return self.reply.better or (self.reference.better if self.reference else None)


def open_plan() -> OpenPlan:
    """The answer to the open plan now."""
    workspace = session.workspace()
    asked, base = ask_about(workspace.open), ask_about(workspace.reference)
    mine, other = reply(asked), reply(base) if base != asked else None
    if mine.better is not None and mine.now is not None and other is not None:
        other = Reply(estimate(base), other.better)  # like is compared with like
    return OpenPlan(
        workspace,
        asked,
        _titled(mine, workspace.open),
        other and _titled(other, workspace.reference),
    )


def _titled(found: Reply, plan: Draft) -> Reply:
    """The reply under the plan's title: an edited scenario never passes for the original."""
    return replace(found, now=titled(found.now, plan)) if isinstance(found.now, Run) else found


def titled(run: Run, plan: Draft) -> Run:
    """The answer under the plan's title."""
    return replace(run, report=replace(run.report, name=plan.title))


def ask_about(plan: Draft) -> Question:
    """The question of a plan."""
    return question(session.known(), plan.scenario, plan.text, plan.sets)


def step_view(shown: OpenPlan) -> OpenPlan:
    """The same plan with the answer to its training step, where the scenario is of more."""
    scenario = scenario_of(shown.asked)
    if isinstance(scenario, Failure) or kind_of(scenario).scope(scenario) is None:
        return shown
    asked = replace(shown.asked, step_only=True)
    return replace(shown, asked=asked, reply=reply(asked), reference=None)


def refused(verb: Verb, scenario: Any) -> bool:
    """Whether a verb does not apply to a scenario; the page says why."""
    kind = kind_of(scenario)
    if verb not in kind.refusals:
        return False
    st.info(f"This does not apply to {kind.title}: {kind.refusals[verb]}.", icon=":material/block:")
    return True


def say_scope(scenario: Any) -> None:
    """That this answers the training step of a scenario that is of more."""
    if (words := kind_of(scenario).scope(scenario)) is not None:
        st.caption(f":material/info: This section answers {words}")


def lean(plan: Draft) -> Draft:
    """The plan without edits that change nothing: those to what its file says anyway."""
    for path, _ in plan.edits:
        less = plan.without(path)
        mine, other = scenario_of(ask_about(plan)), scenario_of(ask_about(less))
        if isinstance(mine, Failure) or isinstance(other, Failure):
            continue
        if resolved(mine) == resolved(other):
            plan = less
    return plan


def answered(shown: OpenPlan) -> Run | None:
    """The answer to the open plan; where there is none yet, or none at all, the page says why."""
    now = shown.reply.now
    if now is None and shown.reply.better is not None:
        waiting(shown.reply.better, f"{shown.plan.title} is being simulated.")
    elif isinstance(now, Failure):
        say(shown.plan, now)
    return now if isinstance(now, Run) else None


def say(plan: Draft, failure: Failure) -> None:
    """Why a plan has no answer, in the words of the command line."""
    match failure:
        case Refusal(text=text):
            st.error(
                f"**{plan.title}** is invalid, or its layout impossible. Your edits are kept on "
                "the page Plan.",
                icon=":material/error:",
            )
            code(text)
        case Bug():
            say_failure("", failure)


def say_failure(words: str, failure: Failure) -> None:
    """That something failed, and why."""
    if isinstance(failure, Bug):
        say_bug(failure.text)
        return
    st.error(words, icon=":material/error:")
    code(failure.text)


def code(text: str) -> None:
    """Problems as the command line shows them, lines wrapped where the page is narrow."""
    st.code(text, language=None, wrap_lines=True)


def say_bug(text: str) -> None:
    """That the twin has a bug; its traceback is in the app's log."""
    st.error(
        "**This is a bug in the twin, not in your plan.** Please report it with the link of this "
        f"page. `{text}`",
        icon=":material/bug_report:",
    )


def waiting(pending: Pending[Any], words: str) -> None:
    """Say in this place that work is under way; its progress stands in the sidebar, and the page is
    drawn again when it is done."""
    session.awaited().append((pending, words))
    st.caption(f":material/hourglass_top: {words}")
