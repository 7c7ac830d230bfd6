"""A sweep, answered: every point with its values, how many could be answered, and which of them are
on the frontier of days against cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Final

from twin.answers.executors import PoolChoice
from twin.errors import Problem, UsageError
from twin.explore.sweep.answers import Counts, Told, answer_points
from twin.explore.sweep.grid import Grid, Maker, Source, Values
from twin.explore.sweep.outcome import Outcome, Status, Way
from twin.explore.sweep.pareto import frontier
from twin.kinds.rollouts.compare import is_other_work
from twin.loading import scenario_hash
from twin.scenario import Scenario
from twin.spec.expect import FIGURES
from twin.spec.kpis import KPIS, Kpi

VERSION: Final = 1
"""Version of the JSON document."""
_ENDS: Final = (
    ("days", "cost_usd", "gpu_hours"),
    (
        "iteration_seconds",
        "cost_usd_per_iteration",
        "trained_tokens_per_second_per_gpu",
    ),
    ("rollout_seconds", "cost_usd_of_rollouts", "tokens_per_second_per_gpu"),
)
"""How long, how much, and what stands for that without a price: of a training run, of an iteration
of reinforcement learning, of rollouts alone."""
_KEPT: Final = (
    "status",
    "code",
    "path",
    "reason",
    "hint",
    "hash",
    "kpis",
    "step_ns",
    "headroom_bytes",
    "peak_stage",
)
"""What the document says of an outcome: nothing of when and where it was played, so that a sweep
that was interrupted ends with the same points as one that was not."""


@dataclass(frozen=True, slots=True)
class Row:
    """One point: what was changed, as it was asked for, and what is said of it."""

    values: Values
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a sweep has found."""

    name: str
    hash: str
    """Of the scenario that is varied."""
    fidelity: Way
    axes: Mapping[str, tuple[Any, ...]]
    rows: tuple[Row, ...]
    counts: Counts
    kpis: tuple[Kpi, ...] = KPIS
    """The key figures of a point."""

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
        own = {kpi.key for kpi in self.kpis}
        long, cost, unpriced = next(ends for ends in _ENDS if ends[0] in own)
        if long != "days" and is_other_work(self.fields):
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


def _fits(row: Row) -> bool:
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
class Asked:
    """What is to be swept, and how."""

    scenario: Scenario
    """That is varied."""
    source: Source
    grid: Grid
    fidelity: Way = "fast"


def sweep(
    asked: Asked, *, pool: PoolChoice, folder: Path | None, progress: Told | None = None
) -> Sweep:
    """All points of a grid, answered. `folder` is where outcomes are kept; None: nowhere."""
    maker = Maker(asked.source, asked.fidelity)
    every = list(asked.grid)
    points = [maker.point(values) for values in every]
    last = Counts(len(points))

    def told(counts: Counts) -> None:
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
        rows=tuple(Row(values, found[place]) for place, values in enumerate(every)),
        counts=last,
        kpis=asked.scenario.kpis if asked.fidelity == "whole" else KPIS,
    )
