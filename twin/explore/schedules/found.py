"""An order that is found for a scenario: the known schedules by events, the search for a better
order within the memory of every stage, and the best of what it hands back by events, too.

Known schedules run on different shapes: chunks per stage, and where they are. The search takes the
shape of the best of them, with that one's split of layers. What it finds is compared with all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any, Final

import numpy as np

from twin.answers.executors import Executor, PoolChoice, open_executor
from twin.answers.nearest import Document, document, replaced
from twin.engine import lower, plan
from twin.errors import Problem, UsageError
from twin.explore.schedules.bound import least_ns
from twin.explore.schedules.known import copies, known_schedules, schedule_from
from twin.explore.schedules.search import MOST_TURNS, Order, Search, Words, order_of, peaks
from twin.explore.schedules.tables import ROOM, Bytes, Tables, tables_of
from twin.explore.sweep.points import PointOutcome, SweepPoint
from twin.explore.sweep.progress import Progress
from twin.explore.sweep.sweep import answer_points
from twin.loading import scenario_hash
from twin.planning.policies import SPARE
from twin.planning.types import Plan
from twin.reports.table import duration, percent
from twin.scenario import Scenario
from twin.schedules.base import Schedule
from twin.schedules.custom import Custom, custom
from twin.schedules.notation import turns_of

VERSION: Final = 1
"""Version of the JSON document."""
SECONDS: Final = 60.0
"""OURS: how long is searched, as long as a person waits."""
LEAST: Final = 1e-4
"""OURS: share of the step that a found order has to gain over the best known one. With more, small
gains are thrown away; with less, nobody sees what an order of one's own gains."""
SHAPES: Final = 2
NEAR: Final = 1.15
"""OURS: shapes that are searched, and how much longer than the best one's their step may be. With
fewer, a shape whose found order would win is not looked at; with more, each has less time."""


@dataclass(frozen=True, slots=True)
class Row:
    """A schedule with its answer by events."""

    name: str
    schedule: Schedule
    virtual: int
    outcome: PointOutcome

    @property
    def step_ns(self) -> int:
        """Of a schedule that runs."""
        assert self.outcome.step_ns is not None
        return self.outcome.step_ns

    @property
    def fits(self) -> bool:
        """Whether it runs and has the memory that it needs."""
        return self.outcome.status == "fits"


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of a scenario's schedules, and the best that was found."""

    scenario: Scenario
    written: Row
    known: tuple[Row, ...]
    """All that can run, the fastest first; the written one among them."""
    best: Row | None = None
    """A found order that is faster than all known ones that fit; None: none is."""
    layers: tuple[int, ...] = ()
    """Its split of layers."""
    least_seconds: float | None = None
    """No order of the searched shape is shorter, by the light model."""
    looked_at: int = 0
    """Orders that were looked at."""
    seconds: float = 0.0

    @property
    def best_known(self) -> Row | None:
        """The fastest known schedule that fits."""
        return next((row for row in self.known if row.fits), None)

    @property
    def chosen(self) -> Row | None:
        """The fastest of all that fit."""
        return self.best or self.best_known

    @property
    def gap(self) -> float | None:
        """By which share the step is longer than the bound."""
        if self.chosen is None or not self.least_seconds:
            return None
        return self.chosen.step_ns / 1e9 / self.least_seconds - 1

    @property
    def overrides(self) -> dict[str, Any]:
        """The chosen schedule as values of the scenario."""
        row = self.chosen
        assert row is not None
        found: dict[str, Any] = {
            "virtual": row.virtual,
            "schedule": row.schedule.model_dump(mode="json"),
        }
        if row is self.best:
            found["layers"] = list(self.layers)
        elif row.virtual != self.scenario.parallel.virtual:
            found["layers"] = None
        return {f"parallel.{name}": value for name, value in found.items()}

    @property
    def sentences(self) -> list[str]:
        """What was found, in words."""
        known = self.best_known
        if known is None:
            return [
                "No known schedule fits in memory: `twin check` names the nearest plans that do."
            ]
        if self.scenario.parallel.pipeline == 1:
            return ["One stage waits for no other: it has no order to search for."]
        looked = f"{self.looked_at:,} orders were tried in {duration(self.seconds)}."
        if self.best is None:
            first = f"No order was found that is faster than {known.name}, the best known."
        else:
            gain = 1 - self.best.step_ns / known.step_ns
            first = (
                f"A step takes {duration(self.best.step_ns / 1e9)} with the found order, "
                f"{percent(gain)} less than with {known.name}, the best known."
            )
        if (software := self.scenario.software) and software.runs and self.best:
            first += f" {software.name} does not run such orders."
        gap = [] if self.gap is None else [f"No order is more than {percent(self.gap)} faster."]
        return [" ".join((first, *gap)), looked]

    def to_json(self) -> dict[str, Any]:
        """The answer as a versioned document."""
        rows = [*self.known, *((self.best,) if self.best else ())]
        return {
            "version": VERSION,
            "name": self.scenario.name,
            "hash": scenario_hash(self.scenario),
            "written": told(self.written),
            "known": [told(row) for row in self.known],
            "found": None if self.best is None else told(self.best),
            "overrides": self.overrides if self.chosen and rows else {},
            "bound_seconds": self.least_seconds,
            "gap": self.gap,
            "orders_tried": self.looked_at,
            "search_seconds": self.seconds,
        }


def told(row: Row) -> dict[str, Any]:
    """A schedule in plain data."""
    found = row.outcome
    return {
        "name": row.name,
        "virtual": row.virtual,
        "fits": row.fits,
        "step_seconds": None if found.step_ns is None else found.step_ns / 1e9,
        "bubble_fraction": found.kpis.get("bubble_fraction"),
        "headroom_bytes": found.headroom_bytes,
    }


def find(scenario: Scenario, *, pool: PoolChoice, seconds: float = SECONDS, seed: int = 0) -> Found:
    """What `finding` ends with."""
    with closing(open_executor(pool)) as executor:
        *_, found = finding(scenario, pool=executor, seconds=seconds, seed=seed)
    assert isinstance(found, Found)
    return found


def finding(
    scenario: Scenario,
    *,
    pool: Executor,
    folder: Path | None = None,
    seconds: float = SECONDS,
    stop: Callable[[], bool] | None = None,
    seed: int = 0,
) -> Iterator[Progress | Found]:
    """The search for the best known schedule of a scenario, and for a better order: how far it is,
    and at the end what it found. `stop` ends it with what is known. Raises `UsageError`
    where the plan itself cannot run."""
    return _Run(scenario, pool, folder, stop or (lambda: False), seconds, seed).run()


@dataclass(slots=True)
class _Run:
    """A search under way."""

    scenario: Scenario
    executor: Executor
    folder: Path | None
    stop: Callable[[], bool]
    seconds: float
    seed: int
    base: Document = field(init=False)
    found: Found = field(init=False)

    def __post_init__(self) -> None:
        self.base = document(self.scenario)

    def run(self) -> Iterator[Progress | Found]:
        begun = monotonic()
        rows: list[Row] = []
        variants = list(known_schedules(self.scenario))
        yield from self._rows(variants, "known schedules", rows)
        written = next(row for row in rows if row.name == variants[0][0])
        if not written.outcome.answered:
            one = written.outcome
            raise UsageError([Problem(one.code or "TW431", one.path, one.reason, one.hint)])
        known = sorted((one for one in rows if one.outcome.answered), key=_step)
        self.found = Found(self.scenario, written, tuple(known))
        several = self.scenario.parallel.pipeline > 1
        for share, row in enumerate(_of_each_shape(known) if several else ()):
            yield from self._better(row, self.seconds / 2**share / 1.5)
        yield replace(self.found, seconds=monotonic() - begun)

    def _rows(
        self, variants: Sequence[tuple[str, dict[str, Any]]], doing: str, rows: list[Row]
    ) -> Iterator[Progress]:
        """Ask events about schedules, and add what they say to `rows`."""
        points = [SweepPoint(self.base, values, "events") for _, values in variants]
        answers = answer_points(points, pool=self.executor, folder=self.folder)
        for done, (place, outcome) in enumerate(answers, 1):
            name, values = variants[place]
            schedule = schedule_from(values["parallel.schedule"])
            rows.append(Row(name, schedule, int(values["parallel.virtual"]), outcome))
            yield Progress(doing, done, len(points))

    def _better(self, row: Row, seconds: float) -> Iterator[Progress]:
        """Search orders of the shape of a known schedule."""
        shape = _Shape.of(self.base, row)
        orders = [one for one in self.found.known if one.fits and _same_shape(one, row)]
        search = shape.search(orders, self.seed)
        least = least_ns(shape.whole, pairs=shape.pairs) / 1e9
        known = self.found.least_seconds
        self.found = replace(self.found, least_seconds=min(least, known or least))
        search.rounds(1, 1)  # compiles what is not compiled yet
        begun, ends = monotonic(), monotonic() + seconds
        while monotonic() < ends and not self.stop():
            for _ in search.run(min(ends, monotonic() + seconds / 3)):
                yield Progress("orders of passes (seconds)", int(monotonic() - begun), int(seconds))
                if self.stop():
                    break
            if not shape.tighten(search):
                search = shape.search(orders, self.seed + 1, search)
        rows: list[Row] = []
        variants = [("found", shape.values(one)) for one in shape.schedules(search)]
        yield from self._rows(variants, "found orders", rows)
        self.found = replace(self.found, looked_at=self.found.looked_at + search.looked_at)
        self._keep(min((one for one in rows if one.fits), key=_step, default=None), shape)

    def _keep(self, row: Row | None, shape: _Shape) -> None:
        """Keep a found order that is faster than all before."""
        others = [one.step_ns for one in (self.found.best, self.found.best_known) if one]
        if row is not None and row.step_ns < (1 - LEAST) * min(others):
            self.found = replace(self.found, best=row, layers=shape.layers)


def _step(row: Row) -> int:
    return row.step_ns


def _same_shape(one: Row, other: Row) -> bool:
    maps = [
        (row.schedule.chunk_map(4, row.virtual), row.schedule.staggered) for row in (one, other)
    ]
    return one.virtual == other.virtual and maps[0] == maps[1]


def _of_each_shape(known: Sequence[Row]) -> list[Row]:
    """The best that fits of each shape, the best first."""
    found: list[Row] = []
    for row in known:
        if row.fits and not any(_same_shape(row, one) for one in found):
            found.append(row)
    near = [row for row in found if row.step_ns <= NEAR * found[0].step_ns]
    return near[:SHAPES]


@dataclass(slots=True)
class _Shape:
    """Chunks, where they are, and what their passes take and hold."""

    base: Document
    row: Row
    plan: Plan
    tables: Tables
    """Of the searched step, which may have fewer micro-batches."""
    pairs: bool
    layers: tuple[int, ...]

    @classmethod
    def of(cls, base: Document, row: Row) -> _Shape:
        """The shape of a known schedule, with its split of layers."""
        changed = base["parallel"]["virtual"] != row.virtual
        values: dict[str, Any] = {
            "parallel.schedule": row.schedule.model_dump(mode="json"),
            "parallel.virtual": row.virtual,
        }
        own = schedule_from(base["parallel"]["schedule"])
        if changed or copies(own) != copies(row.schedule):
            values["parallel.layers"] = None
        made = plan(replaced(base, values))
        pairs = row.schedule.pairs or _pairs(made.scenario)
        tables = tables_of(made, lower(made), pairs=pairs)
        shape = cls(base, row, made, tables, pairs, made.layers_per_part)
        order = order_of(tables, shape.words(row.schedule, made.microbatches))
        count = shape.searched // copies(row.schedule)
        shape.tables = tables.with_room(_room(made, tables, order))._replace(microbatches=count)
        return shape

    def search(self, rows: Sequence[Row], seed: int, before: Search | None = None) -> Search:
        """A search that begins with known orders, and with those of a search before."""
        known = [row.schedule for row in rows if self.pairs or not row.schedule.pairs]
        words = [self.words(schedule, self.searched) for schedule in known]
        left_out = self.plan.microbatches - self.searched
        return Search(
            self.tables, words, pairs=self.pairs, seed=seed, left_out=left_out, before=before
        )

    def tighten(self, search: Search) -> bool:
        """Whether what was found fits by the ledger; where it does not, stages have less room."""
        for schedule in self.schedules(search)[:1]:
            memory = plan(replaced(self.base, self.values(schedule))).memory
            over = np.array([one.peak_bytes - memory.budget for one in memory.stages])
            if over.max() > 0:
                self.tables = self.tables.with_room(self.tables.stages[ROOM] - np.maximum(over, 0))
                return False
        return True

    def schedules(self, search: Search) -> list[Custom]:
        """What was found, for the whole step, the best first by the light model."""
        scenario, found = self.plan.scenario, list[tuple[int, Custom]]()
        shape = scenario.parallel.pipeline, self.row.virtual, self.plan.microbatches
        chunk_map = self.row.schedule.chunk_map(*shape[:2])
        for order in search.best:
            words = order.turns(len(chunk_map.stage_of))
            made = custom(words, chunk_map, post_validation=self.row.schedule.staggered)
            if not made.problems(*shape):
                step = order_of(self.whole, [tuple(turns_of(one)) for one in made.order(*shape)])
                found.append((step.ns, made))
        return [made for _, made in sorted(found, key=lambda one: one[0])]

    def values(self, schedule: Schedule) -> dict[str, Any]:
        """A found schedule as values of the scenario."""
        return {
            "parallel.schedule": schedule.model_dump(mode="json"),
            "parallel.virtual": self.row.virtual,
            "parallel.layers": list(self.layers),
        }

    def words(self, schedule: Schedule, microbatches: int) -> Words:
        """The order of a schedule in turns."""
        shape = self.plan.scenario.parallel.pipeline, self.row.virtual, microbatches
        return tuple(tuple(turns_of(order)) for order in schedule.order(*shape))

    @property
    def whole(self) -> Tables:
        """Tables of the whole step."""
        count = self.plan.microbatches // copies(self.row.schedule)
        return self.tables._replace(microbatches=count)

    @property
    def searched(self) -> int:
        """Micro-batches of the step that is searched: fewer by whole rounds where all are many."""
        stages, count = self.plan.scenario.parallel.pipeline, self.plan.microbatches
        if self.row.schedule.period(stages, self.row.virtual, count) is None:
            return count
        most = max(6 * stages, MOST_TURNS // (3 * self.tables.size))
        return count - max(0, count - most) // stages * stages


def _pairs(scenario: Scenario) -> bool:
    """Whether there is an all-to-all for pairs to hide, and the scenario's software runs them."""
    runs = scenario.software.runs if scenario.software else None
    return scenario.model.moe is not None and (runs is None or runs.pairs)


def _room(made: Plan, tables: Tables, order: Order) -> Bytes:
    """Bytes for what passes hold on each stage: the budget less what stands, which is what the
    ledger counts beside the same order."""
    fullest = np.array([stage.peak_bytes for stage in made.memory.stages])
    left = made.memory.budget - SPARE * made.memory.capacity - fullest
    return np.maximum(left, 0) + peaks(tables, order)
