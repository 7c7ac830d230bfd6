"""What is searched for: sizes, a goal, and the degrees that are tried, each with what is wrong with
it beside."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any, Final, Literal

import streamlit as st

from twin.answers import Run
from twin.explore.search.goal import nodes_of
from twin.explore.search.space import layout_of, narrowed, space
from twin.reports.numbers import count
from twin.scenario import Scenario
from twin.ui.exploring.asked import (
    DEGREES,
    SLACK,
    SearchAsked,
    problem,
    read_quantity,
    read_sizes,
    usual_degrees,
    usual_sizes,
)
from twin.ui.view import View

GOALS: Final = ("Deadline", "Budget", "Fastest")
Goal = Literal["Deadline", "Budget", "Fastest"]
_NARROW: Final = 130


@dataclass(frozen=True, slots=True)
class _Box:
    """Draws the fields of one plan: their keys tell plans apart, their values last as long as the
    session."""

    plan: str

    def text(self, label: str, value: str, hint: str) -> str:
        """A text, as typed."""
        key = f"explore {label}|{self.plan}"
        typed = st.text_input(
            label, value, key=key, help=hint, width=_NARROW, persist_state="session"
        )
        return typed.strip()


def search_form(shown: View, scenario: Scenario) -> SearchAsked | None:
    """What the fields ask for; None where something is wrong, which is said beside them."""
    box = _Box(shown.plan.name)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        gpus, wrong_sizes = _sizes(box, scenario)
        only = st.toggle(
            "Only the plan's own layout",
            key=f"explore only|{box.plan}",
            persist_state="session",
            help="No search: the same layout on every size, by events. What more GPUs bring when "
            "nothing else changes.",
        )
    _complain(wrong_sizes)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        target, budget, wrong_goal = _goal(box, shown, scenario)
    _complain(wrong_goal)
    held = () if only else _held(box, scenario, gpus)
    if gpus is None or wrong_goal:
        return None
    return SearchAsked(shown.asked, gpus, target, budget, held, only)


def _complain(text: str) -> None:
    if text:
        st.error(text, icon=":material/error:")


def _sizes(box: _Box, scenario: Scenario) -> tuple[str | None, str]:
    low, high = usual_sizes(scenario)
    per_node = f"whole nodes of {scenario.cluster.node.gpus} GPUs"
    first = box.text("From, GPUs", str(low), f"The smallest cluster: {per_node}.")
    last = box.text("To, GPUs", str(high), f"The largest cluster: {per_node}.")
    step = box.text(
        "Step", "x2", "`x2` doubles; a number adds so many GPUs. More sizes take longer."
    )
    return problem(lambda: read_sizes(scenario, first, last, step))


def _goal(box: _Box, shown: View, scenario: Scenario) -> tuple[str, str, str]:
    """The deadline and the budget as typed, and what is wrong with them."""
    priced = scenario.cost is not None and scenario.cost.priced
    goals = [one for one in GOALS if one != "Budget" or priced]
    days, cost = _now(shown)
    usual = "Deadline" if days else "Fastest"
    goal = st.segmented_control(
        "Goal",
        goals,
        default=usual,
        required=True,
        key=f"explore goal|{box.plan}",
        persist_state="session",
        help="Deadline: the cheapest that is done in time. Budget: the fastest within the money. "
        "Fastest: whatever it costs. None of them counts failures.",
    )
    if goal == "Deadline":
        text = box.text("Done within", f"{ceil(SLACK * (days or 60))}d", "Such as `60d`.")
        _, wrong = problem(lambda: read_quantity("--target", text, "seconds"))
        return text, "", wrong
    if goal == "Budget":
        text = box.text("Budget", f"{count(cost or 20e6)}USD", "Such as `20MUSD`.")
        _, wrong = problem(lambda: read_quantity("--budget", text, "usd"))
        return "", text, wrong
    return "", "", ""


def _now(shown: View) -> tuple[float | None, float | None]:
    """Days and cost of the open plan, where it fits."""
    now = shown.reply.now
    if not isinstance(now, Run) or not now.report.fits:
        return None, None
    return now.report.kpis["days"], now.report.kpis["cost_usd"]


def _held(box: _Box, scenario: Scenario, gpus: str | None) -> tuple[tuple[str, int], ...]:
    """The degrees that stay as they are, as chosen."""
    own = layout_of(scenario)
    named: dict[str, Any] = {axis: getattr(own, axis) for axis in DEGREES}
    tried = st.multiselect(
        "Degrees that are tried; the others stay as they are in the plan",
        DEGREES,
        usual_degrees(scenario),
        format_func=lambda axis: f"{axis.replace('_', ' ')} (now {named[axis]})",
        key=f"explore degrees|{box.plan}",
        persist_state="session",
        help="Schedules, chunks and memory policies are tried for each.",
    )
    held = tuple((axis, value) for axis, value in named.items() if axis not in tried)
    if gpus is not None:
        whole = space(scenario, nodes_of(scenario, gpus))
        size = narrowed(whole, {axis: (value,) for axis, value in held}).size
        st.caption(
            f"{size:,} layouts, with every schedule and memory policy. A core judges one or two "
            "thousand a second; then the best of each size are played. More sizes and degrees "
            "take longer."
        )
    return held
