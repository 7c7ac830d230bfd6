"""One layout over sizes of the cluster: what more GPUs bring when nothing else changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twin.answers.executors import PoolChoice
from twin.answers.nearest import document
from twin.explore.search.space import Goal, Kpis, days_and_money, layout_of
from twin.explore.sweep.points import PointOutcome, SweepPoint
from twin.explore.sweep.sweep import Told, answer_points, frontier
from twin.kinds.base import Fidelity
from twin.loading import scenario_hash
from twin.scenario import Scenario

VERSION = 1
"""Version of the JSON document."""
_OF_POINTS = ("status", "fidelity", "code", "reason", "hint", "hash")


@dataclass(frozen=True, slots=True)
class Scaling:
    """A layout on clusters of several sizes."""

    scenario: Scenario
    goal: Goal
    rows: tuple[tuple[int, PointOutcome], ...]
    """Nodes, and what is said of them."""

    @property
    def _fitting(self) -> dict[int, Kpis]:
        return {n: one.kpis for n, (_, one) in enumerate(self.rows) if one.status == "fits"}

    @property
    def frontier(self) -> tuple[int, ...]:
        """Rows that fit and that no other beats in days and cost."""
        return frontier({n: days_and_money(kpis) for n, kpis in self._fitting.items()})

    @property
    def pick(self) -> int | None:
        """The row that meets the goal best."""
        meeting = {n: kpis for n, kpis in self._fitting.items() if self.goal.met(kpis)}
        return min(meeting, key=lambda n: self.goal.worth(meeting[n]), default=None)

    @property
    def ends(self) -> set[str]:
        """How sizes ended."""
        return {one.status for _, one in self.rows}

    def to_json(self) -> dict[str, Any]:
        """The scaling as a versioned document."""
        pruned = Counter(one.code for _, one in self.rows if one.status == "impossible")
        points = [self._point(nodes, one) for nodes, one in self.rows]
        return {
            "version": VERSION,
            "name": self.scenario.name,
            "hash": scenario_hash(self.scenario),
            "goal": self.goal.to_json(),
            "layout": layout_of(self.scenario).words,
            "examined": len(self.rows),
            "pruned": dict(pruned),
            "evaluated": sum(one.answered for _, one in self.rows),
            "recommended": None if self.pick is None else points[self.pick],
            "frontier": [points[n] for n in self.frontier],
            "points": points,
        }

    def _point(self, nodes: int, one: PointOutcome) -> dict[str, Any]:
        return {
            "nodes": nodes,
            "gpus": nodes * self.scenario.cluster.node.gpus,
            "overrides": {"cluster.nodes": nodes},
            **{key: getattr(one, key) for key in _OF_POINTS},
            "step_seconds": None if one.step_ns is None else one.step_ns / 1e9,
            "headroom_bytes": one.headroom_bytes,
            "kpis": dict(one.kpis),
        }


@dataclass(frozen=True, slots=True)
class Sizes:
    """Which sizes, and what is asked of them."""

    nodes: Sequence[int]
    goal: Goal
    fidelity: Fidelity = "events"


def scale(
    scenario: Scenario,
    sizes: Sizes,
    *,
    pool: PoolChoice,
    folder: Path | None,
    progress: Told | None = None,
) -> Scaling:
    """A scenario's own layout on clusters of these sizes."""
    base = document(scenario)
    assumed = scenario.software_assumed
    points = [
        SweepPoint(base, {"cluster.nodes": nodes}, sizes.fidelity, assumed) for nodes in sizes.nodes
    ]
    found: dict[int, PointOutcome] = dict(
        answer_points(points, pool=pool, folder=folder, progress=progress)
    )
    rows = tuple((nodes, found[place]) for place, nodes in enumerate(sizes.nodes))
    return Scaling(scenario, sizes.goal, rows)
