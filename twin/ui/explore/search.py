"""Search: the cluster size and the layout for a goal; and the plan's own layout on other sizes."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any, Final, Literal

import streamlit as st

from twin.answers import Run
from twin.explore.search.space import days_and_money, layout_of, narrowed, nodes_of, quantity, space
from twin.figures.plotly import Picture
from twin.figures.search import LayoutMark, Limits, SizeMark, pareto, scaling
from twin.reports.table import count
from twin.scenario import Scenario
from twin.ui.answers import studied
from twin.ui.explore import work
from twin.ui.explore.exports import Choosable, chooser, downloads, files_of, from_chart, from_table
from twin.ui.explore.questions import (
    DEGREES,
    SLACK,
    STATUS,
    FoundLayout,
    SearchAsked,
    SearchResult,
    Study,
    explored,
    known,
    problem,
    read_sizes,
    short,
    usual_degrees,
    usual_sizes,
)
from twin.ui.place import OpenPlan, grid, place, ready, table, theme

_WANTED: Final = "explore search"
_PER_SECOND: Final = 10_000
"""Layouts that a core judges per second, roughly."""
_GLANCE: Final = 0.4
"""Seconds for which the page waits for the first curve before it says that it is coming."""


def search_section(shown: OpenPlan, scenario: Scenario) -> None:
    """The fields, the search, and what it has found; before there is one, the plan's own layout on
    other sizes."""
    asked = search_form(shown, scenario)
    _ask(asked)
    wanted = wanted_search(shown) or (asked if asked is not None and _is_known(asked) else None)
    found = _answer(shown, wanted) if wanted is not None else None
    if found is not None and wanted is not None:
        if asked is not None and asked != wanted:
            st.caption("These are the previous results; the fields above have changed since.")
        if wanted.only:
            _scaled(scenario, found, wanted)
        else:
            _searched(scenario, found, wanted)
    if found is None or not (wanted and wanted.only):
        st.header("Scaling of the plan's own layout")
        first_curve(shown, scenario)


def wanted_search(shown: OpenPlan) -> SearchAsked | None:
    """The search that this session has asked for the open plan, if it has."""
    wanted: SearchAsked | None = st.session_state.get(_WANTED)
    return wanted if wanted is not None and wanted.plan == shown.asked else None


def study_of(asked: SearchAsked) -> Study[SearchResult]:
    """What answers a search."""
    return work.sizes if asked.only else work.search


def _is_known(asked: SearchAsked) -> bool:
    """Whether the answer is kept: then it is shown without being asked for."""
    pending = known(study_of(asked), asked)
    return pending is not None and pending.future.done()


def _ask(asked: SearchAsked | None) -> None:
    st.button(
        "Search",
        icon=":material/search:",
        disabled=asked is None,
        on_click=lambda: st.session_state.update({_WANTED: asked}),
    )


def _answer(shown: OpenPlan, wanted: SearchAsked) -> SearchResult | None:
    """What a search has found; None while it is at work, or where it has failed."""
    words = "Searching: layouts are bounded, the best are simulated."
    found = ready(explored(study_of(wanted), wanted), shown.plan, words)
    if found is None:
        st.caption("Results are kept: a stopped search goes on from there.")
    return found


def _searched(scenario: Scenario, found: SearchResult, asked: SearchAsked) -> None:
    """The recommendation, the chart, the table, and what was pruned."""
    first, *rest = found.sentences
    if found.picked is not None:
        st.success(first, icon=":material/recommend:")
    else:
        st.warning(first, icon=":material/search_off:")
    st.caption("  \n".join(rest))
    if not found.fitting:
        st.info(
            "Try larger clusters, more degrees, or another memory policy. The reasons are below.",
            icon=":material/search_off:",
        )
        _pruned(found)
        return
    picture = _pareto(scenario, found, asked)
    place(picture, "explore pareto", from_chart("explore pareto", "explore search"))
    _points(found, "explore search")
    _pruned(found)
    downloads(f"{scenario.name} search", asked.command, files_of(found), [picture], theme())


def _pareto(scenario: Scenario, found: SearchResult, asked: SearchAsked) -> Picture:
    points = [_point(one) for one in found.spots if one.kpis]
    goal = asked.goal
    best = [one for one in found.spots if one.role in ("picked", "frontier")]
    title = f"{len(found.fitting)} layouts fit; "
    title += f"{len(best)} are Pareto-optimal" if len(best) > 1 else "one is Pareto-optimal"
    unfit = sum(one.status == "does_not_fit" for one in found.spots)
    title += f", {unfit} near the best do not fit" if unfit else ""
    unit = "USD" if scenario.cost is not None and scenario.cost.priced else "GPU-hours"
    return pareto(points, Limits(goal.days, goal.usd), title, unit, theme())


def _point(one: FoundLayout) -> LayoutMark:
    days, cost = days_and_money(one.kpis)
    role = one.role if one.role != "tried" else "unfit"
    words = "<br>".join((f"<b>{one.gpus:,} GPUs, {one.words}</b>", *_said(one)))
    return LayoutMark(one.name, f"{one.gpus:,} GPUs", days, cost, role, words)


def _said(one: FoundLayout) -> tuple[str, ...]:
    """What is said of a point, a line each."""
    lines: list[str] = []
    if one.kpis:
        figures = [one.figure(key) for key in ("days", "cost_usd", "step_seconds", "mfu")]
        run, cost, step, mfu = figures
        lines.append(f"{run}, {cost} without failures; step {step}, MFU {mfu}")
        lost = one.kpis.get("days_with_failures")
        if lost is not None:
            days, usd = (one.figure(k) for k in ("days_with_failures", "cost_usd_with_failures"))
            lines.append(f"{days}, {usd} with failures")
    if one.memory_left:
        lines.append(f"Memory left: {one.memory_left}")
    lines.append(f"Memory: {one.memory}")
    if one.why:
        lines.append(f"Why not: {one.why}")
    return tuple(lines)


def _points(found: SearchResult, key: str) -> None:
    """All points as a table, and one of them in full."""
    points = [
        Choosable(one.name, one.overrides, (f"**{one.name}**", *_said(one))) for one in found.spots
    ]
    chooser(points, key)
    st.header("Every point")
    names = [one.name for one in points]
    rows = [_row(one) for one in found.spots]
    words = "Layouts, the best first, then some that cannot run, with the reason"
    grid(rows, f"{key} table", words, from_table(f"{key} table", key, names))


def _row(one: FoundLayout) -> dict[str, object]:
    marks = {"picked": "recommended", "frontier": "Pareto-optimal", "fits": "", "tried": ""}
    return {
        "Best": marks[one.role],
        "GPUs": one.gpus,
        "Run (d)": short(one.kpis.get("days")),
        "Cost (USD)": short(one.kpis.get("cost_usd")),
        "Step (s)": short(one.kpis.get("step_seconds")),
        "Fits": STATUS[one.status],
        "Memory left": one.memory_left,
        "Layout": one.words,
        "Why not": one.why,
        "Memory": one.memory,
    }


def _pruned(found: SearchResult) -> None:
    """Why layouts never were played."""
    if not found.pruned:
        return
    with st.expander("Why layouts were pruned", icon=":material/filter_alt:"):
        table(
            [
                {"Layouts": f"{many:,}", "Reason": reason, "Code": code}
                for many, code, reason in found.pruned
            ]
        )


def first_curve(shown: OpenPlan, scenario: Scenario) -> SearchResult | None:
    """The plan's own layout on a quarter to four times its cluster."""
    words = "Simulating the plan's own layout on other cluster sizes."
    found = ready(studied(work.scaling, shown.asked), shown.plan, words, _GLANCE)
    if found is not None:
        _scaled(scenario, found, curve_asked(shown, found))
    return found


def curve_asked(shown: OpenPlan, found: SearchResult) -> SearchAsked:
    """What asks for the first curve."""
    gpus = ",".join(str(one) for one in sorted({spot.gpus for spot in found.spots}))
    days = found.contest.goal.days
    return SearchAsked(shown.asked, gpus, "" if days is None else f"{days:g}d", only=True)


def _scaled(scenario: Scenario, found: SearchResult, asked: SearchAsked) -> None:
    """One layout on every size."""
    now = scenario.cluster.nodes * scenario.cluster.node.gpus
    key = "explore sizes"
    st.caption(found.sentences[0])
    ranked = sorted(found.spots, key=lambda one: one.gpus)
    sizes = [_size(one, now) for one in ranked]
    pictures: list[Picture] = []
    if any(one.days is not None for one in sizes):
        pictures.append(scaling(sizes, theme()))
        place(pictures[0], key, from_chart(key, key))
    else:
        st.info(
            "The plan's layout fits on none of these sizes: search for one that does.",
            icon=":material/search_off:",
        )
    _points(found, key)
    downloads(f"{scenario.name} sizes", asked.command, files_of(found), pictures, theme())


def _size(one: FoundLayout, now: int) -> SizeMark:
    days = one.kpis["days"] if one.status == "fits" else None
    words = "<br>".join((f"<b>{one.gpus:,} GPUs</b>", *_said(one)))
    return SizeMark(one.gpus, days, words, one.name, one.gpus == now)


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


def search_form(shown: OpenPlan, scenario: Scenario) -> SearchAsked | None:
    """What the fields ask for; None where something is wrong, which is said beside them."""
    box = _Box(shown.plan.name)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        gpus, wrong_sizes = _sizes(box, scenario)
        only = st.toggle(
            "Only the plan's own layout",
            key=f"explore only|{box.plan}",
            persist_state="session",
            help="No search: the same layout on every size, simulated.",
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


def _goal(box: _Box, shown: OpenPlan, scenario: Scenario) -> tuple[str, str, str]:
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
        help="Deadline: the cheapest in time. Budget: the fastest within it. Fastest: at any cost. "
        "Failures are not counted.",
    )
    if goal == "Deadline":
        text = box.text("Done within", f"{ceil(SLACK * (days or 60))}d", "Such as `60d`.")
        _, wrong = problem(lambda: quantity("target", text, "seconds"))
        return text, "", wrong
    if goal == "Budget":
        text = box.text("Budget", f"{count(cost or 20e6)}USD", "Such as `20MUSD`.")
        _, wrong = problem(lambda: quantity("budget", text, "usd"))
        return "", text, wrong
    return "", "", ""


def _now(shown: OpenPlan) -> tuple[float | None, float | None]:
    """Days and cost of the open plan, where it fits."""
    now = shown.reply.now
    if not isinstance(now, Run) or not now.report.fits:
        return None, None
    return now.report.kpis["days"], now.report.kpis["cost_usd"]


def _held(box: _Box, scenario: Scenario, gpus: str | None) -> tuple[tuple[str, int], ...]:
    """The degrees that stay as they are, as chosen."""
    own = layout_of(scenario)
    named: dict[str, Any] = {axis: getattr(own, axis) for axis in DEGREES}
    tried = st.pills(
        "Degrees to search; others stay fixed",
        DEGREES,
        selection_mode="multi",
        default=usual_degrees(scenario),
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
            f"{size:,} layouts, with every schedule and memory policy: about "
            f"{ceil(size / _PER_SECOND):,} s, then the best of each size are simulated."
        )
    return held
