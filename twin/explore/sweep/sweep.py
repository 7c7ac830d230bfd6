"""A sweep, answered: every point with its values, how many could be answered, and which of them are
on the frontier of days against cost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from pydantic import ValidationError

from twin.answers.csv_text import to_csv
from twin.answers.executors import Died, Executor, PoolChoice, play
from twin.answers.nearest import written
from twin.answers.parquet import Column, to_parquet
from twin.answers.run_store import source_digest, unwritable, write_file
from twin.errors import Problem, UsageError
from twin.explore.sweep.grid import Grid, PointMaker, ScenarioSource, Values
from twin.explore.sweep.points import (
    PointFidelity,
    PointOutcome,
    Status,
    SweepPoint,
    answer_point,
    failed,
    impossible,
    keep,
    known_outcome,
    problem_of,
    tidy,
)
from twin.kinds.base import Kind, kind_named, kind_of
from twin.loading import scenario_hash
from twin.scenario import Root
from twin.spec.expect import FIGURES
from twin.spec.kpis import Kpi


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """How far a sweep is."""

    points: int
    """In all."""
    done: int = 0
    cached: int = 0
    """Of those done: recalled, or the same scenario as one that was played."""
    failed: int = 0
    """Of those done: not answered."""


Told = Callable[[SweepProgress], None]


@dataclass(slots=True)
class _Course:
    """What is found out before anything is played."""

    play_unfit: bool
    folder: Path | None
    waiting: dict[tuple[str, str], list[int]] = field(
        default_factory=dict[tuple[str, str], list[int]]
    )
    """Places of the points to play, by hash and fidelity: equal scenarios share one."""

    def at_once(self, place: int, point: SweepPoint | PointOutcome) -> PointOutcome | None:
        """The outcome of a point that need not be played; None where it has to be."""
        if isinstance(point, PointOutcome):
            return point
        try:
            name = scenario_hash(point.scenario())
        except ValidationError as error:
            return impossible(problem_of(error), point.fidelity)
        same = self.waiting.get((name, point.fidelity))
        if same is not None:
            same.append(place)
            return None
        known = known_outcome(self.folder, name, point.fidelity, play_unfit=self.play_unfit)
        if known is None:
            self.waiting[name, point.fidelity] = [place]
        return known


def answer_points(
    points: Sequence[SweepPoint | PointOutcome],
    *,
    pool: PoolChoice | Executor,
    folder: Path | None,
    play_unfit: bool = True,
    progress: Told | None = None,
) -> Generator[tuple[int, PointOutcome]]:
    """What is said of each point, as (its place, outcome), in the order in which they are known:
    those that need no play first. `folder` is where outcomes are kept (`points_folder()`; None: not
    at all). What a killed process had finished is there when the points are asked for again.

    Raises `UsageError` where a cluster cannot be reached.
    """
    if folder is not None:
        tidy(folder)
    course, counts = _Course(play_unfit, folder), SweepProgress(len(points))
    for place, point in enumerate(points):
        found = course.at_once(place, point)
        if found is not None:
            counts = _counted(counts, found)
            yield place, _told(point, found)
    if progress is not None:
        progress(counts)
    for place, outcome in _played(points, course, pool):
        counts = _counted(counts, outcome)
        if progress is not None:
            progress(counts)
        yield place, _told(points[place], outcome)


def _told(point: SweepPoint | PointOutcome, outcome: PointOutcome) -> PointOutcome:
    return point.told(outcome) if isinstance(point, SweepPoint) else outcome


def _played(
    points: Sequence[SweepPoint | PointOutcome], course: _Course, pool: PoolChoice | Executor
) -> Iterator[tuple[int, PointOutcome]]:
    """The outcomes of points that have to be played, each at all its places."""
    places = list(course.waiting.items())
    tasks = [point for _, (first, *_) in places if isinstance(point := points[first], SweepPoint)]
    if not tasks:
        return
    # Workers of this machine keep what they have played at once; those of a cluster may have
    # another disk, so that what comes back from there is kept here.
    theirs = course.folder if pool.is_here else None
    function = partial(
        answer_point, folder=theirs, play_unfit=course.play_unfit, source=source_digest()
    )
    for index, result in play(function, tasks, pool=pool):
        (name, _), (first, *others) = places[index]
        if isinstance(result, Died):
            result = replace(failed(result.reason, tasks[index].fidelity), hash=name)  # noqa: PLW2901
        elif theirs is None and course.folder is not None and result.status != "failed":
            keep(course.folder, result)
        yield first, result
        yield from ((place, replace(result, cached=True)) for place in others)


def _counted(counts: SweepProgress, outcome: PointOutcome) -> SweepProgress:
    return replace(
        counts,
        done=counts.done + 1,
        cached=counts.cached + outcome.cached,
        failed=counts.failed + (outcome.status == "failed"),
    )


VERSION: Final = 1
"""Version of the JSON document."""
_KEPT: Final = (
    "status",
    "code",
    "path",
    "reason",
    "hint",
    "hash",
    "kpis",
    "intervals",
    "step_ns",
    "headroom_bytes",
    "peak_stage",
)
"""What the document says of an outcome: nothing of when and where it was played, so that a sweep
that was interrupted ends with the same points as one that was not."""


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One point: what was changed, as it was asked for, and what is said of it."""

    values: Values
    outcome: PointOutcome


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a sweep has found."""

    name: str
    hash: str
    """Of the scenario that is varied."""
    fidelity: PointFidelity
    axes: Mapping[str, tuple[Any, ...]]
    rows: tuple[SweepRow, ...]
    counts: SweepProgress
    kind: Kind
    """Of work that a point is."""

    @property
    def kpis(self) -> tuple[Kpi, ...]:
        """The key figures of a point."""
        return self.kind.kpis

    @property
    def fields(self) -> tuple[str, ...]:
        """The dotted path of every field that some point changes, in the order of asking."""
        return tuple(
            dict.fromkeys([*self.axes, *(path for row in self.rows for path in row.values)])
        )

    @property
    def frontier(self) -> tuple[int, ...]:
        """The rows that fit and that no other one beats in the two figures of `frontier_by`."""
        first, second = self.frontier_by
        fitting = [place for place, row in enumerate(self.rows) if _fits(row)]
        return frontier({one: (self.loss(one, first), self.loss(one, second)) for one in fitting})

    @property
    def frontier_by(self) -> tuple[str, str]:
        """The key figures that the frontier is about: how long, and cost, or what stands for it
        where some point that fits has no price. Neither counts failures. Where points of
        reinforcement learning do not write the same, neither tells: then twice what they write per
        second."""
        long, cost, unpriced = self.kind.frontier
        if self.kind.does_other_work(self.fields):
            return (unpriced, unpriced)
        fitting = [row.outcome.kpis for row in self.rows if _fits(row)]
        priced = all(figures.get(cost) is not None for figures in fitting)
        return (long, cost if priced else unpriced)

    def loss(self, place: int, key: str) -> float:
        """A key figure of a row, of which less is better; infinite where it has none, as a point of
        another kind than the others has."""
        value = self.rows[place].outcome.kpis.get(key)
        if value is None:
            return inf
        return value if FIGURES[key].better == "lower" else -value

    def count(self, status: Status) -> int:
        """How many rows ended so."""
        return Counter(row.outcome.status for row in self.rows)[status]

    def to_json(self) -> dict[str, Any]:
        """The sweep as a versioned document."""
        evaluated = sum(row.outcome.answered and not row.outcome.cached for row in self.rows)
        return {
            "version": VERSION,
            "name": self.name,
            "hash": self.hash,
            "fidelity": self.fidelity,
            "axes": {path: list(values) for path, values in self.axes.items()},
            "examined": len(self.rows),
            "evaluated": evaluated,
            "cached": self.counts.cached,
            "failed": self.counts.failed,
            "pruned": self.count("impossible"),
            "points": [
                {"overrides": dict(row.values)}
                | {key: value for key, value in row.outcome.to_json().items() if key in _KEPT}
                for row in self.rows
            ],
            "frontier_by": list(self.frontier_by),
            "frontier": list(self.frontier),
        }


def _fits(row: SweepRow) -> bool:
    return row.outcome.status == "fits"


def refuse_size(grid: Grid, limit: int) -> None:
    """Raise `UsageError` for a sweep of nothing, or of more points than the limit."""
    if not grid.size:
        message = "the scenario says no `sweep:`, and the command no --grid"
        fix = "write `--grid parallel.pipeline=8,16`, for example"
        raise UsageError([Problem("TW403", "", message, fix)])
    if grid.size > limit:
        sizes = " x ".join(str(len(values)) for values in grid.axes.values())
        message = f"{grid.size:,} points ({sizes}) are more than the limit of {limit:,}"
        fix = f"vary fewer values, or write `--limit {grid.size}`"
        raise UsageError([Problem("TW404", "", message, fix)])


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """What is to be swept, and how."""

    scenario: Root
    """That is varied."""
    source: ScenarioSource
    grid: Grid
    fidelity: PointFidelity = "events"

    @property
    def kind(self) -> Kind:
        """Of work that a point is."""
        return kind_of(self.scenario) if self.fidelity == "whole" else kind_named("step")


def sweep(
    asked: SweepRequest, *, pool: PoolChoice, folder: Path | None, progress: Told | None = None
) -> Sweep:
    """All points of a grid, answered. `folder` is where outcomes are kept; None: nowhere."""
    maker = PointMaker(asked.source, asked.fidelity)
    every = list(asked.grid)
    points = [maker.point(values) for values in every]
    last = SweepProgress(len(points))

    def told(counts: SweepProgress) -> None:
        nonlocal last
        last = counts
        if progress is not None:
            progress(counts)

    found = dict(answer_points(points, pool=pool, folder=folder, progress=told))
    return Sweep(
        name=asked.scenario.name,
        hash=scenario_hash(asked.scenario),
        fidelity=asked.fidelity,
        axes=asked.grid.axes,
        rows=tuple(SweepRow(values, found[place]) for place, values in enumerate(every)),
        counts=last,
        kind=asked.kind,
    )


def frontier(figures: Mapping[int, tuple[float, float]]) -> tuple[int, ...]:
    """The keys of the points on the Pareto frontier, in their order, by two figures of which less
    is better; equal points are on it together.

    >>> frontier({0: (1.0, 9.0), 1: (2.0, 9.0), 2: (5.0, 4.0)})
    (0, 2)
    """
    kept: list[int] = []
    least = last = (float("inf"), float("inf"))
    for key in sorted(figures, key=lambda one: figures[one]):
        pair = figures[key]
        if pair[1] < least[1] or pair == last:
            kept.append(key)
            least = last = pair
    return tuple(sorted(kept))


def check_output(path: Path) -> None:
    """Raise `UsageError` for a file that cannot be written, before anything is played."""
    if path.suffix not in WRITERS:
        message = f"`{path}` names no format of a sweep"
        fix = f"end it with one of: {', '.join(WRITERS)}"
        raise UsageError([Problem("TW065", "", message, fix)])
    if path.is_dir():
        raise UsageError([Problem("TW063", "", f"`{path}` is a folder", "name a file in it")])
    if not path.absolute().parent.is_dir():
        message = f"there is no folder `{path.parent}`"
        raise UsageError([Problem("TW063", "", message, f"mkdir -p {path.parent}")])


def write(sweep: Sweep, path: Path) -> None:
    """Write the file whole or not at all, in the format that its name ends with; it takes the place
    of what an earlier sweep wrote there. Raises `UsageError` where the system refuses."""
    data = WRITERS[path.suffix](sweep)
    try:
        write_file(path, data)
    except OSError as error:
        raise unwritable(path, error) from None


def table(sweep: Sweep) -> dict[str, list[Any]]:
    """One column per varied field, then per answer, by name; None where there is no value. Values
    of fields are as `--set` takes them; key figures have the units of their names."""
    on_frontier = set(sweep.frontier)
    columns: dict[str, list[Any]] = {
        path: [_cell(row.values[path]) if path in row.values else None for row in sweep.rows]
        for path in sweep.fields
    }
    outcomes = [row.outcome for row in sweep.rows]
    for name in ("status", "code", "reason", "hash"):
        columns[name] = [getattr(one, name) or None for one in outcomes]
    columns["frontier"] = [place in on_frontier for place in range(len(sweep.rows))]
    for name in ("headroom_bytes", "peak_stage", "step_ns"):
        columns[name] = [getattr(one, name) for one in outcomes]
    for kpi in sweep.kpis:
        columns[kpi.key] = [one.kpis.get(kpi.key) for one in outcomes]
    return columns


def _cell(value: Any) -> Any:
    plain = isinstance(value, int | float | str) and not isinstance(value, bool)
    return value if plain else written(value)


def _json(sweep: Sweep) -> bytes:
    return (json.dumps(sweep.to_json(), indent=2, allow_nan=False) + "\n").encode()


def _csv(sweep: Sweep) -> bytes:
    columns = table(sweep)
    return to_csv(columns, zip(*columns.values(), strict=True)).encode()


def _parquet(sweep: Sweep) -> bytes:
    units = {kpi.key: {"unit": kpi.unit} for kpi in sweep.kpis}
    units |= {"headroom_bytes": {"unit": "bytes"}, "step_ns": {"unit": "ns"}}
    about = {"twin.name": sweep.name, "twin.hash": sweep.hash, "twin.fidelity": sweep.fidelity}
    columns = {name: _column(found, units.get(name, {})) for name, found in table(sweep).items()}
    return to_parquet(columns, about)


_DTYPES: Final = ((np.bool_, {bool}), (np.int64, {int}), (np.float64, {int, float}))


def _column(values: list[Any], about: Mapping[str, str]) -> Column:
    """The narrowest column that holds the values: numbers, else words."""
    missing = np.array([value is None for value in values])
    types: set[type] = {type(value) for value in cast("list[object]", values)} - {type(None)}
    for dtype, fitting in _DTYPES:
        if types <= fitting and (types or dtype is np.int64):
            numbers = np.array([value or 0 for value in values], dtype)
            return Column(numbers, about, missing=missing)
    words = list(dict.fromkeys(str(value) for value in values if value is not None))
    places = {word: place for place, word in enumerate(words)}
    found = np.array([places.get(str(value), 0) for value in values], np.int32)
    return Column(found, about, words=words, missing=missing)


WRITERS: Final[Mapping[str, Callable[[Sweep], bytes]]] = {
    ".json": _json,
    ".csv": _csv,
    ".parquet": _parquet,
}
"""What writes a file, by the end of its name."""
