"""Break-even points: the values of inputs at which another plan wins, sliders over the main inputs,
and the sensitivity of the recommended plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import streamlit as st

from twin.answers.nearest import document
from twin.explore.search.candidates import Contender, Decision, Standing, standing
from twin.explore.search.levers import Lever, levers
from twin.explore.search.thresholds import Bar
from twin.explore.sweep.points import SweepPoint
from twin.explore.sweep.sweep import answer_points
from twin.figures.differences import Swing, tornado
from twin.figures.plotly import Picture, capital
from twin.figures.search import Flip, InputRange, break_even
from twin.reports.table import digits, show
from twin.scenario import Scenario
from twin.ui.answers import studied
from twin.ui.explore import work
from twin.ui.explore.exports import as_json, downloads
from twin.ui.explore.questions import SearchAsked, SearchResult, explored, known
from twin.ui.explore.search import curve_asked, study_of, wanted_search
from twin.ui.explore.work import Conditions
from twin.ui.place import OpenPlan, place, ready, table, theme

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


def break_even_section(shown: OpenPlan, scenario: Scenario) -> None:
    """The decision, sliders that answer at once, and on demand the values at which it flips."""
    decided = _decision(shown)
    if decided is None:
        return
    found, asked = decided
    if not found.contest.contenders:
        st.info(
            "No layout fits. Search on larger clusters or with more degrees first.",
            icon=":material/search_off:",
        )
        return
    st.caption(_about(found, searched=not asked.only))
    st.header("What if")
    _sliders(found.contest, shown.plan.name)
    st.header("When would another plan win?")
    _conditions(shown, scenario, found, asked)


def _about(found: SearchResult, *, searched: bool) -> str:
    contest = found.contest
    what = (
        f"The decision of the search, for {found.words}"
        if searched
        else f"The plan's own layout on other sizes, for {found.words}; search first to decide "
        "between layouts"
    )
    return f"{what}. {len(contest.contenders):,} layouts fit."


def _decision(shown: OpenPlan) -> tuple[SearchResult, SearchAsked] | None:
    """What has been searched; without a search, the plan's own layout over sizes."""
    wanted = wanted_search(shown)
    pending = known(study_of(wanted), wanted) if wanted is not None else None
    if wanted is not None and pending is not None:
        found = ready(pending, shown.plan, "Waiting for the search.")
        return None if found is None else (found, wanted)
    words = "Trying the plan's own layout on other sizes of the cluster."
    sizes = ready(studied(work.scaling, shown.asked), shown.plan, words, 0.4)
    return None if sizes is None else (sizes, curve_asked(shown, sizes))


def _conditions(
    shown: OpenPlan, scenario: Scenario, found: SearchResult, asked: SearchAsked
) -> None:
    """The thresholds, once they are asked for."""
    kept = known(work.conditions, asked)
    if kept is None:
        st.caption(
            "Every input is moved alone over its range until another plan wins: some hundred "
            "simulations, a minute or two."
        )
        if not st.button("Find the break-even points", icon=":material/swap_horiz:"):
            return
    pending = explored(work.conditions, asked, (found.contest,))
    made = ready(pending, shown.plan, "Moving every input until another plan wins.")
    if made is not None:
        _show(scenario, found, asked, made)


def _show(scenario: Scenario, found: SearchResult, asked: SearchAsked, made: Conditions) -> None:
    rows = [runway(one) for one in made.document["thresholds"] if "range" in one]
    pictures: list[Picture] = []
    if rows:
        pictures.append(break_even(rows, decided=found.contest.has_pick, theme=theme()))
        place(pictures[0], "explore break-even")
    absent = [one for one in made.document["thresholds"] if "range" not in one]
    if absent:
        with st.expander("Inputs that could not be moved", icon=":material/block:"):
            table([{"Input": one["lever"], "Why": one["none"]} for one in absent])
    if made.bars:
        st.header("Sensitivity of the run time")
        swings = [_swing(one) for one in made.bars]
        pictures.append(tornado(swings, "Run time", "d", theme()))
        place(pictures[-1], "explore tornado")
        _flips(found.contest, made.bars)
    files = {".json": lambda: as_json({**found.document, **made.document})}
    command = f"{asked.command} --thresholds"
    downloads(f"{scenario.name} thresholds", command, files, pictures, theme())


def runway(row: Mapping[str, Any]) -> InputRange:
    """A threshold of the document as a row of the picture."""
    low, high = row["range"]
    likely = row["source_range"]
    flips = [
        Flip(one["value"], one["side"], _wins(one["wins"]))
        for one in sorted(row["flips"], key=lambda one: one["value"])
    ]
    grows = low > 0 and high / low > 10
    return InputRange(
        row["lever"],
        row["unit"],
        low,
        high,
        row["now"],
        grows,
        tuple(flips),
        row["none"],
        None if likely is None else (likely[0], likely[1]),
    )


def _wins(wins: Mapping[str, Any] | None) -> str:
    return "" if wins is None else f"{wins['gpus']:,} GPUs, {wins['layout']}"


def _swing(one: Bar) -> Swing:
    known = one.found
    source = known.source.title if known.range_from == "source" and known.source else "10 % assumed"
    return Swing(known.path, known.low, known.high, one.days[0], one.days[1], source)


def _flips(contest: Decision, bars: tuple[Bar, ...]) -> None:
    """Which ends of the tornado cost the decision."""
    lost = [
        f"`{bar.found.path}` at {end}"
        for bar in bars
        for end, flips in zip((bar.found.low, bar.found.high), bar.flips, strict=True)
        if flips
    ]
    if lost:
        st.caption(f"The goal is missed, or memory exceeded, with {'; '.join(lost)}.")
    elif contest.has_pick:
        st.caption("The goal is met and memory suffices at both ends of every range.")


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
def _sliders(contest: Decision, plan: str) -> None:
    """The sliders and what follows; the rest of the page stays as it is."""
    st.caption("Every stop is simulated. Price, memory and losses follow exactly.")
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
    simulated together, then what follows exactly is worked out, losses last."""
    overrides: dict[str, Any] = {}
    for lever, value in moved.values():
        if lever.overrides is not None:
            overrides |= lever.overrides(value)
    stands = (
        _simulated(contest, contenders, overrides) if overrides else [c.now for c in contenders]
    )
    exact = [(lever, value) for lever, value in moved.values() if lever.closed is not None]
    for lever, value in sorted(exact, key=lambda pair: pair[0].path == "goodput"):
        assert lever.closed is not None
        stands = [
            lever.closed(replace(one, now=now), value) if now.kpis is not None else now
            for one, now in zip(contenders, stands, strict=True)
        ]
    return tuple(stands)


def _simulated(
    contest: Decision, contenders: Sequence[Contender], overrides: Mapping[str, Any]
) -> list[Standing]:
    base = document(contest.scenario)
    points = [SweepPoint(base, {**one.overrides, **overrides}, "events") for one in contenders]
    answers = dict(
        answer_points(points, pool=contest.pool, folder=contest.folder, play_unfit=False)
    )
    return [standing(answers[place]) for place in range(len(contenders))]


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
            f"Not met: none of the {len(contenders)} nearest layouts is {goal}.",
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
            st.warning(f"Another layout wins: {who}: {figures}.", icon=":material/swap_horiz:")
    table(
        [
            {
                "": "best" if row == at else "",
                "GPUs": f"{one.gpus:,}",
                "Layout": contest.name(one),
                **_figures(contest, now),
            }
            for row, (one, now) in enumerate(zip(contenders, stands, strict=True))
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
