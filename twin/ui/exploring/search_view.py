"""Search: how many GPUs, and which layout; and what more GPUs bring to the plan's own."""

from __future__ import annotations

from typing import Final

import streamlit as st

from twin.explore.search.goal import days_and_money
from twin.figures.plotly import Picture
from twin.figures.search import LayoutMark, Limits, SizeMark, pareto, scaling
from twin.scenario import Scenario
from twin.ui.answers import Failure, studied
from twin.ui.exploring import work
from twin.ui.exploring.asked import SearchAsked
from twin.ui.exploring.course import Study, explored, known, stop
from twin.ui.exploring.exports import files_of, hand_on
from twin.ui.exploring.found import STATUS, Found, Spot
from twin.ui.exploring.points import Choosable, chooser, from_chart, from_table
from twin.ui.exploring.search_form import search_form
from twin.ui.pictures import grid, place, table, theme
from twin.ui.view import View, say, waiting

_WANTED: Final = "explore search"
_GLANCE: Final = 0.4
"""Seconds for which the page waits for the first curve before it says that it is coming."""


def search_view(shown: View, scenario: Scenario) -> None:
    """The fields, the search, and what it has found; before there is one, the plan's own layout on
    other sizes."""
    asked = search_form(shown, scenario)
    _ask(asked)
    wanted = wanted_search(shown) or (asked if asked is not None and _is_known(asked) else None)
    found = _answer(shown, wanted) if wanted is not None else None
    if found is not None and wanted is not None:
        if asked is not None and asked != wanted:
            st.caption("Shown is the search before; the fields above have changed since.")
        if wanted.only:
            _scaled(shown, scenario, found, wanted, "by events")
        else:
            _searched(scenario, found, wanted)
    if found is None or not (wanted and wanted.only):
        st.subheader("What more GPUs bring")
        first_curve(shown, scenario)


def wanted_search(shown: View) -> SearchAsked | None:
    """The search that this session has asked for the open plan, if it has."""
    wanted: SearchAsked | None = st.session_state.get(_WANTED)
    return wanted if wanted is not None and wanted.plan == shown.asked else None


def study_of(asked: SearchAsked) -> Study[Found]:
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
        type="primary",
        disabled=asked is None,
        on_click=lambda: st.session_state.update({_WANTED: asked}),
    )


def _stop(asked: SearchAsked) -> None:
    stop(study_of(asked), asked)
    st.session_state.pop(_WANTED, None)


def _answer(shown: View, wanted: SearchAsked) -> Found | None:
    """What a search has found; None while it is at work, or where it has failed."""
    pending = explored(study_of(wanted), wanted)
    found = pending.within(0.05)
    if found is None:
        with st.container(horizontal=True, vertical_alignment="center"):
            waiting(pending, "Searching: layouts are judged, the best played, leaders confirmed.")
            st.button("Stop", icon=":material/stop:", on_click=_stop, args=(wanted,))
        st.caption("What has been played is kept, so a search that is stopped goes on from there.")
        return None
    if isinstance(found, Found):
        return found
    say(shown.plan, found)
    return None


def _searched(scenario: Scenario, found: Found, asked: SearchAsked) -> None:
    """The recommendation, the chart, the table, and what was pruned."""
    first, *rest = found.sentences
    if found.picked is not None:
        st.success(first, icon=":material/recommend:")
    else:
        st.warning(first, icon=":material/search_off:")
    st.caption("  \n".join(rest))
    if not found.fitting:
        st.info(
            "Try larger clusters, more degrees, or another memory policy. Why layouts were "
            "pruned stands below.",
            icon=":material/search_off:",
        )
        _pruned(found)
        return
    picture = _pareto(scenario, found, asked)
    place(picture, "explore pareto", from_chart("explore pareto", "explore search"))
    _points(found, "explore search")
    _pruned(found)
    hand_on(f"{scenario.name} search", asked.command, files_of(found), [picture], theme())


def _pareto(scenario: Scenario, found: Found, asked: SearchAsked) -> Picture:
    points = [_point(one) for one in found.spots if one.kpis]
    goal = asked.goal
    best = [one for one in found.spots if one.role in ("picked", "frontier")]
    title = f"{len(found.fitting)} layouts that fit were played; "
    title += f"{len(best)} are on the line" if len(best) > 1 else "one beats all others"
    unfit = sum(one.status == "does_not_fit" for one in found.spots)
    title += f", {unfit} beside the best do not fit" if unfit else ""
    unit = "USD" if scenario.cost is not None and scenario.cost.priced else "GPU-hours"
    return pareto(points, Limits(goal.days, goal.usd), title, unit, theme())


def _point(one: Spot) -> LayoutMark:
    days, cost = days_and_money(one.kpis)
    role = one.role if one.role != "tried" else "unfit"
    words = "<br>".join((f"<b>{one.gpus:,} GPUs, {one.words}</b>", *_said(one)))
    return LayoutMark(one.name, f"{one.gpus:,} GPUs", days, cost, role, words)


def _said(one: Spot) -> tuple[str, ...]:
    """What is said of a point, a line each."""
    lines: list[str] = []
    if one.kpis:
        figures = [one.figure(key) for key in ("days", "cost_usd", "step_seconds", "mfu")]
        run, cost, step, mfu = figures
        lines.append(f"{run}, {cost} without failures; step {step}, MFU {mfu}, {one.fidelity}")
        lost = one.kpis.get("days_with_failures")
        if lost is not None:
            days, usd = (one.figure(k) for k in ("days_with_failures", "cost_usd_with_failures"))
            lines.append(f"{days}, {usd} with failures")
    if one.room:
        lines.append(f"{one.room} of memory to spare")
    lines.append(f"Memory: {one.memory}")
    if one.why:
        lines.append(f"Why not: {one.why}")
    return tuple(lines)


def _points(found: Found, key: str) -> None:
    """All points as a table, and one of them in full."""
    points = [
        Choosable(one.name, one.overrides, (f"**{one.name}**", *_said(one))) for one in found.spots
    ]
    chooser(points, key)
    st.markdown("**Every point**")
    names = [one.name for one in points]
    rows = [_row(one) for one in found.spots]
    words = "Layouts that were played, the best first, then some that cannot run, with the reason"
    grid(rows, f"{key} table", words, from_table(f"{key} table", key, names))


def _row(one: Spot) -> dict[str, object]:
    marks = {"picked": "pick", "frontier": "line", "fits": "", "tried": ""}
    return {
        "Best": marks[one.role],
        "GPUs": one.gpus,
        "Run (d)": _short(one.kpis.get("days")),
        "Cost (USD)": _short(one.kpis.get("cost_usd")),
        "Step (s)": _short(one.kpis.get("step_seconds")),
        "Fits": STATUS[one.status],
        "To spare": one.room,
        "Layout": one.words,
        "Why not": one.why,
        "Memory": one.memory,
        "By": one.fidelity,
    }


def _short(value: float | None) -> float | None:
    """A number to be sorted by, in four digits: the files have all of them."""
    return None if value is None else float(f"{value:.4g}")


def _pruned(found: Found) -> None:
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


def first_curve(shown: View, scenario: Scenario) -> Found | None:
    """The plan's own layout on a quarter to four times its cluster, by the fast path."""
    pending = studied(work.scaling, shown.asked)
    found: Found | Failure | None = pending.within(_GLANCE)
    if found is None:
        waiting(pending, "Trying the plan's own layout on other sizes of the cluster.")
    elif isinstance(found, Found):
        _scaled(shown, scenario, found, curve_asked(shown, found), "fast estimate")
        return found
    else:
        say(shown.plan, found)
    return None


def curve_asked(shown: View, found: Found) -> SearchAsked:
    """What asks for the first curve, by events."""
    gpus = ",".join(str(one) for one in sorted({spot.gpus for spot in found.spots}))
    days = found.contest.goal.days
    return SearchAsked(shown.asked, gpus, "" if days is None else f"{days:g}d", only=True)


def _scaled(
    shown: View, scenario: Scenario, found: Found, asked: SearchAsked, fidelity: str
) -> None:
    """One layout on every size."""
    del shown
    now = scenario.cluster.nodes * scenario.cluster.node.gpus
    key = f"explore sizes {fidelity}"
    st.caption(found.sentences[0])
    ranked = sorted(found.spots, key=lambda one: one.gpus)
    sizes = [_size(one, now) for one in ranked]
    pictures: list[Picture] = []
    if any(one.days is not None for one in sizes):
        pictures.append(scaling(sizes, fidelity, theme()))
        place(pictures[0], key, from_chart(key, key))
    else:
        st.info(
            "The plan's layout fits on none of these sizes: search for one that does.",
            icon=":material/search_off:",
        )
    _points(found, key)
    hand_on(f"{scenario.name} sizes", asked.command, files_of(found), pictures, theme())


def _size(one: Spot, now: int) -> SizeMark:
    days = one.kpis["days"] if one.status == "fits" else None
    words = "<br>".join((f"<b>{one.gpus:,} GPUs</b>", *_said(one)))
    return SizeMark(one.gpus, days, words, one.name, one.gpus == now)
