"""Work of the page Explore in another process: searches, cluster sizes, break-even points and
sweeps."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from twin.answers.executors import PoolChoice
from twin.answers.nearest import document
from twin.explore.search.candidates import Decision, contest, fixed_contest
from twin.explore.search.decision import decision
from twin.explore.search.decision_page import Decision as PlanDecision
from twin.explore.search.judge import words
from twin.explore.search.kept import keep
from twin.explore.search.new_plan import PlanQuestion, answered, understood
from twin.explore.search.recommend import recommend
from twin.explore.search.recommendation import Progress, Recommendation, SearchRequest
from twin.explore.search.scale import Scaling, Sizes, scale
from twin.explore.search.space import (
    Goal,
    ParallelLayout,
    Space,
    layout_of,
    narrowed,
    nodes_of,
    space,
)
from twin.explore.search.thresholds import Bar, break_even
from twin.explore.search.wording import recommendation_sentences, scaling_sentence
from twin.explore.sweep.grid import Grid, ScenarioSource, check_values, grid_of, read_axes
from twin.explore.sweep.points import PointOutcome, SweepPoint, points_folder
from twin.explore.sweep.sweep import (
    Sweep,
    SweepProgress,
    SweepRequest,
    answer_points,
    refuse_size,
    sweep,
)
from twin.scenario import Root, Scenario
from twin.spec.cluster import MOST_GPUS
from twin.ui.answers import Failure, Question, guarded, opened, study_of
from twin.ui.background import Note
from twin.ui.explore.questions import (
    SLACK,
    FoundLayout,
    SearchAsked,
    SearchResult,
    SweepAsked,
    distinct,
    in_parts,
    spots_of,
    unfit_spot,
)

if TYPE_CHECKING:
    pass

ALONE: Final = PoolChoice(jobs=1)
"""The process that works for the app plays by itself: pages come first."""
MOST_POINTS: Final = 400
"""Points of a sweep in the app; more are a matter for the command line."""
_AROUND: Final = 24
"""Layouts beside the pick that are asked why they are not better."""
_SHARES: Final = (
    ("judging", 0.0, 0.25),
    ("simulating", 0.25, 0.95),
)
"""How much of a search each part of it is, roughly."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What must be true for a decision: the keys that a recommendation gets, and how much uncertain
    inputs move the pick."""

    document: dict[str, Any]
    bars: tuple[Bar, ...]


def search(asked: SearchAsked, note: Note) -> SearchResult | Failure:
    """The best layout for a goal, those beside it, and why others are not possible."""
    return study_of(asked.plan, lambda scenario: _search(scenario, asked, note))


def new_plan(asked: PlanQuestion, dated: str, note: Note) -> PlanDecision | Failure:
    """The decision for a question of a new plan, on the day `dated`."""

    def found() -> PlanDecision:
        request = understood(asked)
        found = answered(request, ALONE, in_parts(_SHARES, note))
        made = decision(found, request.words, asked.command, dated)
        keep(asked, made)
        return made

    return guarded(found)


def sizes(asked: SearchAsked, note: Note) -> SearchResult | Failure:
    """The plan's own layout on the sizes asked for."""
    return study_of(asked.plan, lambda scenario: _sizes_found(_scaled(scenario, asked, note)))


def scaling(asked: Question, note: Note) -> SearchResult | Failure:
    """The plan's own layout on a quarter to four times its cluster: what the page shows before
    anything is asked."""

    def found(scenario: Scenario) -> SearchResult:
        nodes, each = scenario.cluster.nodes, scenario.cluster.node.gpus
        every = {nodes // 4, nodes // 2, nodes, 2 * nodes, 4 * nodes}
        gpus = ",".join(str(one * each) for one in sorted(every) if 0 < one * each <= MOST_GPUS)
        wanted = SearchAsked(asked, gpus, only=True)
        return _sizes_found(_in_time(_scaled(scenario, wanted, note)))

    return study_of(asked, found)


def conditions(decided: Decision, note: Note) -> Conditions | Failure:
    """What must be true for the decision of a contest."""

    def found() -> Conditions:
        made = break_even(replace(decided, progress=_threshold_progress(note)))
        return Conditions(made.to_json(), made.bars)

    return guarded(found)


def swept(asked: SweepAsked, note: Note) -> Sweep | Failure:
    """All points of a sweep, answered."""

    def found() -> Sweep:
        with source_of(asked.plan, asked.axes) as source:
            return _swept(source, asked, note)

    return guarded(found)


@contextmanager
def source_of(asked: Question, axes: tuple[str, ...] = ()) -> Generator[ScenarioSource]:
    """The scenario of a plan as a command names it."""
    with opened(asked, axes) as file:
        yield ScenarioSource(str(file), asked.sets)


def grid_asked(source: ScenarioSource, scenario: Root, axes: tuple[str, ...]) -> Grid:
    """What is varied: the axes, or without any the scenario's own section. Raises `TwinError` for
    what cannot be."""
    read = read_axes(axes)
    grid = Grid({one.path: one.values for one in read}) if read else grid_of(scenario, ())
    refuse_size(grid, MOST_POINTS)
    check_values(source, scenario, grid, read)
    return grid


def _search(scenario: Scenario, asked: SearchAsked, note: Note) -> SearchResult:
    whole = narrowed(
        space(scenario, nodes_of(scenario, asked.gpus)),
        {axis: (value,) for axis, value in asked.held},
    )
    folder = points_folder()
    found = recommend(
        SearchRequest(whole, asked.goal, ALONE, folder, asked.most, in_parts(_SHARES, note))
    )
    found = replace(found, asked=replace(found.asked, progress=None))
    decided = contest(found)
    beside = [
        unfit_spot(scenario, layout, outcome)
        for layout, outcome in _around(found, folder)
        if outcome.status != "fits"
    ]
    return SearchResult(
        distinct([*spots_of(decided), *beside]),
        tuple(recommendation_sentences(found)),
        tuple((count, _code(reason), words(reason)) for reason, count in found.pruned.items()),
        found.to_json(),
        decided,
        asked.goal.words,
    )


def _code(reason: str) -> str:
    return reason if reason.startswith("TW") else ""


def _around(found: Recommendation, folder: Path) -> Iterator[tuple[ParallelLayout, PointOutcome]]:
    """Layouts one change away from what is recommended, or from the fastest, answered whether they
    fit or not: a sample of what cannot run, with its reasons."""
    middle = found.pick or found.nearest
    if middle is None:
        return
    layouts = list(_changed(middle.layout, found.asked.space))[:_AROUND]
    scenario = found.asked.scenario
    base = document(scenario)
    points = [SweepPoint(base, layout.overrides(scenario)) for layout in layouts]
    for place, outcome in answer_points(points, pool=ALONE, folder=folder):
        yield layouts[place], outcome


def _changed(layout: ParallelLayout, whole: Space) -> Iterator[ParallelLayout]:
    """The neighbours of a layout along each axis that is searched."""
    axes: dict[str, tuple[Any, ...]] = {
        "pipeline": tuple(whole.pipelines(layout.nodes)),
        "virtual": whole.virtual,
        "tensor": whole.tensor,
        "expert": whole.expert,
        "micro_batch": whole.micro_batch,
        "memory": whole.memory,
        "schedule": whole.schedule,
    }
    for name, values in axes.items():
        own = getattr(layout, name)
        others = [one for one in values if one != own]
        if name not in ("memory", "schedule"):
            below, above = [v for v in others if v < own], [v for v in others if v > own]
            others = [*below[-1:], *above[:2]]
        for value in others:
            yield replace(layout, **{name: value})


def _scaled(scenario: Scenario, asked: SearchAsked, note: Note) -> Scaling:
    """One layout on several sizes."""
    wanted = Sizes(nodes_of(scenario, asked.gpus), asked.goal)

    def told(counts: SweepProgress) -> None:
        note(counts.done / max(counts.points, 1))

    return scale(scenario, wanted, pool=ALONE, folder=points_folder(), progress=told)


def _in_time(found: Scaling) -> Scaling:
    """The same with the deadline that the plan meets by a little, where it fits: nobody has said
    another yet."""
    own = found.scenario.cluster.nodes
    for nodes, one in found.rows:
        if nodes == own and one.status == "fits":
            return replace(found, goal=Goal(ceil(SLACK * (one.kpis["days"] or 0.0))))
    return found


def _sizes_found(found: Scaling) -> SearchResult:
    """One layout on several sizes, as points and as a decision between them."""
    scenario, goal = found.scenario, found.goal
    decided = fixed_contest(found, pool=ALONE, folder=points_folder())
    return SearchResult(
        distinct([*spots_of(decided), *_unfit_sizes(scenario, found)]),
        (scaling_sentence(found),),
        (),
        found.to_json(),
        decided,
        goal.words,
    )


def _unfit_sizes(scenario: Scenario, found: Scaling) -> Iterator[FoundLayout]:
    own = layout_of(scenario)
    for nodes, outcome in found.rows:
        if outcome.status != "fits":
            yield unfit_spot(scenario, replace(own, nodes=nodes), outcome)


def _swept(source: ScenarioSource, asked: SweepAsked, note: Note) -> Sweep:
    scenario = source.load({})
    grid = grid_asked(source, scenario, asked.axes)

    def told(counts: SweepProgress) -> None:
        note(counts.done / max(counts.points, 1))

    wanted = SweepRequest(scenario, source, grid, asked.fidelity)
    return sweep(wanted, pool=ALONE, folder=points_folder(), progress=told)


def _threshold_progress(note: Note) -> Callable[[Progress], None]:
    """The same for thresholds: levers, round by round, then the tornado."""

    def told(progress: Progress) -> None:
        share = progress.done / max(progress.total, 1)
        note(0.7 + 0.3 * share if "uncertain" in progress.doing else 0.7 * share)

    return told
