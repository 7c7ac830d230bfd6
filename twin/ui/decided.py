"""A decision on the page New plan: the plans side by side, what must be true, and what to do next:
open a plan, compare, download, launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import streamlit as st

from twin.explore.search.decision_page import DRAWN, Decision, NamedPlan, drawing, page, rows
from twin.explore.search.new_plan import PlanQuestion, plan_text
from twin.figures.palette import INK
from twin.interop.export.base import stamp_of_plan
from twin.interop.export.megatron.launch import Launch, launch, script
from twin.planning.types import Plan
from twin.ui import COMPARE, PLAN, RESULT, session
from twin.ui.answers import Failure, plan_of
from twin.ui.place import ask_about, small, table, theme
from twin.ui.question import request
from twin.ui.workspace import Draft

_LED: Final = ("Run", "Cost")
"""Figures that lead the decision, with the size."""


def show_decision(one: Decision, asked: PlanQuestion) -> None:
    """The decision, top down: the answer, the plans, what must be true, what to do, the rest."""
    if one.headline:
        (st.success if one.met else st.warning)(f"**{one.headline}**")
    else:
        st.error(one.verdict)
    for place, plan in zip(st.columns(max(1, len(one.plans))), one.plans, strict=False):
        with place, st.container(border=True):
            _card(plan)
    if one.plans:
        picture = drawing(one.plans, one.deadline, INK[theme()])
        st.image(picture, width=640, alt=DRAWN)
        small("Ranges are 80 % intervals: four of five measured runs should lie inside.")
        _actions(one, asked)
    if one.conditions:
        st.header("What must be true")
        st.markdown(_bullets(one.conditions))
    layouts = st.expander("Layouts, steps and memory", key="new layouts", on_change="rerun")
    if layouts.open:
        with layouts:
            table(rows(one))
    with st.expander("What was assumed"):
        st.markdown(_bullets(one.assumed))
    with st.expander("What was examined"):
        st.markdown(_bullets((one.verdict, *one.examined)))
    if one.plans:
        _launch(one, asked)
    small("The same on the command line:")
    st.code(one.command, language="shell", wrap_lines=True)


def _card(plan: NamedPlan) -> None:
    """A plan: its size, and the figures that lead the decision."""
    st.metric(plan.name, f"{plan.gpus:,} GPUs")
    for key in _LED:
        if key in plan.figures:
            value, _, interval = plan.figures[key].partition(" (")
            st.markdown(f"**{value}**  \n{interval.rstrip(')')}")


def _bullets(texts: tuple[str, ...]) -> str:
    return "\n".join(f"- {text}" for text in texts).replace("$", r"\$")


def _actions(one: Decision, asked: PlanQuestion) -> None:
    """What to do with the decision."""
    first = one.plans[0]
    with st.container(horizontal=True):
        st.download_button(
            "Decision page (HTML)",
            lambda: page(one).encode(),
            f"{_stem(one)}.html",
            on_click="ignore",
            icon=":material/download:",
        )
        if st.button("Open the plan", icon=":material/arrow_forward:"):
            _open(one, asked, [first])
            st.switch_page(RESULT)
        if st.button("Edit the plan", icon=":material/edit:"):
            _open(one, asked, [first])
            session.want_section("Scenario")
            st.switch_page(PLAN)
        if len(one.plans) > 1 and st.button("Compare", icon=":material/compare_arrows:"):
            _open(one, asked, one.plans)
            st.switch_page(COMPARE)
        st.download_button(
            "Plan (YAML)",
            lambda: _text(asked, first).encode(),
            f"{_stem(one)}.yaml",
            on_click="ignore",
            icon=":material/download:",
        )


def _stem(one: Decision) -> str:
    return one.title.replace(" ", "-")


def _text(asked: PlanQuestion, plan: NamedPlan) -> str:
    """The plan as the YAML of a scenario."""
    found = request(asked)
    assert not isinstance(found, Failure)  # it was understood when it was answered
    return plan_text(found, plan.overrides)


def _draft(one: Decision, asked: PlanQuestion, plan: NamedPlan) -> Draft:
    name = f"{one.title}, {plan.gpus:,} GPUs"
    return Draft(name, f"{_stem(one)}-{plan.gpus}.yaml", _text(asked, plan))


def _open(
    one: Decision, asked: PlanQuestion, plans: list[NamedPlan] | tuple[NamedPlan, ...]
) -> None:
    """Put plans into the workspace, the first of them open."""
    drafts = [_draft(one, asked, plan) for plan in plans]
    session.change(lambda on: on.opened(*drafts))


def _launch(one: Decision, asked: PlanQuestion) -> None:
    """The arguments of Megatron-LM, and what they cannot say."""
    box = st.expander("Launch with Megatron-LM", key="new launch", on_change="rerun")
    if not box.open:
        return
    with box:
        planned = plan_of(ask_about(_draft(one, asked, one.plans[0])))
        if isinstance(planned, Failure):
            st.error("This plan has no launch script.")
            return
        found = launch(planned.plan)
        st.download_button(
            "Launch script (sh)",
            _script(planned.plan, found),
            f"{_stem(one)}.sh",
            on_click="ignore",
        )
        said = [f"Not said: {loss}" for loss in found.losses]
        said += [f"Said differently: {caveat}" for caveat in found.caveats]
        launched = next((plan for plan in one.plans if plan.name == "As launched"), None)
        if launched is not None:
            st.warning(f"As launched, the run takes {launched.figures['Run']}.")
        else:
            st.markdown("The software runs this plan as simulated.")
        st.markdown(_bullets(tuple(said)))


def _script(plan: Plan, found: Launch) -> Callable[[], bytes]:
    return lambda: script(found, stamp_of_plan(plan.scenario, ["plan.yaml"], "megatron")).encode()
