"""Sliders over the inputs that a decision hangs on, answered at once: whether the goal is still
met, and which layout is chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import streamlit as st

from twin.answers.variants import document
from twin.explore.search.candidates import Contender, Decision, Standing
from twin.explore.search.levers import Lever, levers
from twin.explore.sweep.points import SweepPoint
from twin.explore.sweep.sweep import answer_points
from twin.figures.text_layout import capital
from twin.reports.numbers import digits, show
from twin.ui.pictures import table

MAIN: Final = (
    "cluster.node.nic.bandwidth",
    "train.routing.s",
    "cluster.node.gpu.reserve",
    "cost.gpu_hour",
    "goodput",
)
"""Inputs that get a slider, where the scenario has them."""
ASKED: Final = 4
"""Layouts that are answered again: the pick and those next to it."""
_STOPS: Final = 6
"""Half the stops of what begins at nothing."""
_WIDTH: Final = 250


def main_levers(contest: Decision) -> tuple[Lever, ...]:
    """The levers of a contest that get a slider."""
    found = {one.path: one for one in _levers(contest)}
    return tuple(found[path] for path in MAIN if path in found)


def _levers(contest: Decision) -> tuple[Lever, ...]:
    return tuple(one for one in levers(contest) if isinstance(one, Lever))


def stops(lever: Lever) -> list[float]:
    """Values of a slider, ascending, through where the lever starts: what begins at nothing goes up
    in growing steps, since the first of them matter most."""
    if lever.start == lever.low == 0.0:
        last = 2 * _STOPS
        return [lever.high * (step / last) ** 3 for step in range(last + 1)]
    return replace(lever, closed=None, corners=()).points()


@st.fragment
def sliders(contest: Decision, plan: str) -> None:
    """The sliders and what follows; the rest of the page stays as it is."""
    st.caption(
        "Move one input or several together. Layouts are answered by the fast path, times what "
        "events make of it now; price, memory and losses are worked out exactly."
    )
    moved: dict[str, float] = {}
    found = main_levers(contest)
    with st.container(horizontal=True):
        for lever in found:
            value = _slider(lever, plan)
            if value != lever.start:
                moved[lever.path] = value
    contenders = nearest(contest)
    chosen = [one for one in found if one.path in moved]
    stands = stand(contest, contenders, {one.name: (one, moved[one.path]) for one in chosen})
    _say(contest, contenders, stands, moved=bool(moved))


def _slider(lever: Lever, plan: str) -> float:
    """Where the slider of a lever stands, in SI."""

    def words(value: float) -> str:
        said = f"{digits(value / lever.per_unit)} {lever.unit}".strip()
        return said if lever.load is None else f"{said} (load {lever.load(value):.2f})"

    return st.select_slider(
        capital(lever.name),
        stops(lever),
        lever.start,
        format_func=words,
        key=f"explore {lever.path}|{plan}",
        help=f"`{lever.path}`. {lever.note or lever.why}.",
        width=_WIDTH,
    )


def nearest(contest: Decision) -> tuple[Contender, ...]:
    """The pick, and the layouts that come next."""
    near = contest.near or contest.contenders
    return near[:ASKED]


def stand(
    contest: Decision,
    contenders: Sequence[Contender],
    moved: Mapping[str, tuple[Lever, float]],
) -> tuple[Standing, ...]:
    """How contenders stand with some levers at other values, by their names: those that need it are
    answered by the fast path together, then what follows exactly is worked out, losses last."""
    overrides: dict[str, Any] = {}
    for lever, value in moved.values():
        if lever.overrides is not None:
            overrides |= lever.overrides(value)
    stands = _played(contest, contenders, overrides) if overrides else [c.now for c in contenders]
    exact = [(lever, value) for lever, value in moved.values() if lever.closed is not None]
    for lever, value in sorted(exact, key=lambda pair: pair[0].path == "goodput"):
        assert lever.closed is not None
        stands = [
            lever.closed(replace(one, now=now), value) if now.kpis is not None else now
            for one, now in zip(contenders, stands, strict=True)
        ]
    return tuple(stands)


def _played(
    contest: Decision, contenders: Sequence[Contender], overrides: Mapping[str, Any]
) -> list[Standing]:
    base = document(contest.scenario)
    points = [SweepPoint(base, {**one.overrides, **overrides}) for one in contenders]
    answers = dict(
        answer_points(points, pool=contest.pool, folder=contest.folder, play_unfit=False)
    )
    return [one.stand(answers[place]) for place, one in enumerate(contenders)]


def _say(
    contest: Decision,
    contenders: Sequence[Contender],
    stands: Sequence[Standing],
    *,
    moved: bool,
) -> None:
    """Whether the goal is met, by whom, and how the nearest layouts stand."""
    at = contest.decide(stands)
    goal = contest.goal.words
    if at is None:
        st.error(
            f"Not met: none of the {len(contenders)} layouts that are asked is {goal}.",
            icon=":material/block:",
        )
    else:
        one, kpis = contenders[at], stands[at].kpis
        assert kpis is not None
        who = f"{one.gpus:,} GPUs, {contest.name(one)}"
        figures = f"{show(kpis['days'], 'd')}, {show(kpis['cost_usd'], 'USD')}"
        if not moved:
            st.success(f"As planned, {goal}: {who}: {figures}.", icon=":material/check_circle:")
        elif at == 0 and contest.has_pick:
            st.success(f"The decision holds: {who}: {figures}.", icon=":material/check_circle:")
        else:
            st.warning(f"Another layout is chosen: {who}: {figures}.", icon=":material/swap_horiz:")
    table(
        [
            {
                "": "chosen" if place == at else "",
                "GPUs": f"{one.gpus:,}",
                "Layout": contest.name(one),
                **_figures(contest, now),
            }
            for place, (one, now) in enumerate(zip(contenders, stands, strict=True))
        ]
    )


def _figures(contest: Decision, now: Standing) -> dict[str, str]:
    kpis = now.kpis
    if kpis is None:
        return {"Run": "", "Cost": "", "Meets the goal": f"no: {now.why}"}
    return {
        "Run": show(kpis["days"], "d"),
        "Cost": show(kpis["cost_usd"], "USD"),
        "Meets the goal": "yes" if contest.goal.met(kpis) else "no",
    }
