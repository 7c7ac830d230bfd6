"""What a search is asked, and what it has found: layouts with their answers, sizes of the cluster,
the recommendation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from twin.answers.executors import PoolChoice
from twin.explore.search.judge import MEMORY, TIME, Candidate, JudgedSpace, words
from twin.explore.search.space import Goal, ParallelLayout, Space, days_and_money
from twin.explore.sweep.points import PointOutcome
from twin.explore.sweep.sweep import frontier
from twin.loading import scenario_hash
from twin.scenario import Scenario

VERSION: Final = 1
"""Version of the JSON document."""
MOST_PLAYED: Final = 16
"""Layouts of one size of cluster that are answered by the fast path at first."""
PATIENCE: Final = 120.0
"""Seconds after which a search closes no more of what is open: OURS, as long as people wait."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A layout with what is said of it."""

    layout: ParallelLayout
    least_ns: float
    fast: PointOutcome
    events: PointOutcome | None = None

    @property
    def best(self) -> PointOutcome:
        """The truest answer that is known."""
        return self.events or self.fast

    @property
    def step_ns(self) -> float:
        """By that answer."""
        assert self.best.step_ns is not None  # only what fits is kept
        return self.best.step_ns


@dataclass(slots=True)
class Size:
    """One size of the cluster: its layouts, best bound first, and what is known of them."""

    nodes: int
    space: JudgedSpace
    """Its layouts, judged."""
    most: int
    """Layouts that are answered by the fast path."""
    played: int = 0
    asked: int = 0
    fitting: list[Answered] = field(default_factory=list[Answered])
    unfit: int = 0
    failed: list[str] = field(default_factory=list[str])
    """Why layouts were not answered: bugs of ours, and workers that died."""

    @property
    def leader(self) -> Answered | None:
        """The fastest that is known."""
        return min(self.fitting, key=lambda one: one.step_ns, default=None)

    @property
    def following(self) -> Candidate | None:
        """The layout with the least bound of those that were not answered."""
        listed = self.space.candidates
        return listed[self.asked] if self.asked < len(listed) else None

    @property
    def bound_ns(self) -> float:
        """No layout that was not answered has a shorter step; infinite where all were."""
        return self.space.floor if self.following is None else self.following.least_ns

    def next(self) -> Candidate | None:
        """The next layout worth an answer."""
        candidate, leader = self.following, self.leader
        if candidate is None or self.asked >= self.most:
            return None
        if leader is not None and candidate.least_ns >= leader.step_ns:
            return None
        self.asked += 1
        return candidate

    @property
    def doubt(self) -> float:
        """Share of the leader's step by which what was not answered might be shorter."""
        leader = self.leader
        return 0.0 if leader is None else max(0.0, 1 - self.bound_ns / leader.step_ns)

    @property
    def left(self) -> int:
        """Candidates that were not answered."""
        return len(self.space.candidates) + self.space.unlisted - self.asked


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search is, for a bar: what it does now, and how much of it is done."""

    doing: str
    done: int
    total: int


Told = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What is searched for, and with what."""

    space: Space
    goal: Goal
    pool: PoolChoice
    folder: Path | None = None
    """Where answers are kept; None: nowhere."""
    most: int = MOST_PLAYED
    progress: Told | None = None
    seconds: float = PATIENCE
    """After so long nothing more is closed; what is named is simulated all the same."""

    @property
    def scenario(self) -> Scenario:
        """What all layouts share."""
        return self.space.scenario

    def tell(self, doing: str, done: int, total: int) -> None:
        """Say how far it is."""
        if self.progress is not None:
            self.progress(Progress(doing, done, total))


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What a search has found."""

    asked: SearchRequest
    examined: int
    pruned: Mapping[str, int]
    """By code of a rule, or reason."""
    sizes: tuple[Size, ...]
    pick: Answered | None
    """The best that meets the goal, by events."""
    nearest: Answered | None
    """Where nothing meets the goal: what comes nearest to it, by events."""
    open: int
    """Layouts that were not answered on sizes where one of them might be the pick."""
    at_most_better: float
    """By which share the best of them might be, in what the goal is judged by; 0: none is open."""
    enough: Answered | None = None
    """Where no size meets the deadline: the best of the first larger one that does."""
    launched: Answered | None = None
    """The pick as the scenario's software launches it, by events; None where that runs all of it.
    """

    @property
    def evaluated(self) -> int:
        """Layouts answered by the fast path."""
        return sum(size.played for size in self.sizes)

    @property
    def confirmed(self) -> int:
        """Of them, those answered by events."""
        return sum(one.events is not None for size in self.sizes for one in size.fitting)

    @property
    def alternatives(self) -> tuple[Answered, ...]:
        """Beside the pick, those of `alternatives` that were simulated."""
        found = alternatives(self.pick or self.nearest, self.sizes)
        return tuple(one for one in found if one.events)

    @property
    def frontier(self) -> tuple[Answered, ...]:
        """Of the best of each size those that no other one beats in days and cost."""
        leaders = [leader for size in self.sizes if (leader := size.leader)]
        figures = {n: days_and_money(one.best.kpis) for n, one in enumerate(leaders)}
        return tuple(leaders[n] for n in frontier(figures))

    @property
    def failures(self) -> tuple[str, ...]:
        """Why layouts were not answered, one reason for each."""
        return tuple(reason for size in self.sizes for reason in size.failed)

    @property
    def ends(self) -> set[str]:
        """How layouts ended: `fits`, or what a bound or an answer says; empty where the rules
        allow none."""
        found = {"fits"} if any(size.fitting for size in self.sizes) else set[str]()
        too_large = MEMORY in self.pruned or any(size.unfit for size in self.sizes)
        too_slow = {"fits"} if TIME in self.pruned else set[str]()
        failed = {"failed"} if self.failures else set[str]()
        return found | too_slow | failed | ({"does_not_fit"} if too_large else set())

    def to_json(self) -> dict[str, Any]:
        """The recommendation as a versioned document."""
        scenario = self.asked.scenario
        return {
            "version": VERSION,
            "name": scenario.name,
            "hash": scenario_hash(scenario),
            "goal": self.asked.goal.to_json(),
            "examined": self.examined,
            "pruned": dict(self.pruned),
            "pruned_because": {reason: words(reason) for reason in self.pruned},
            "evaluated": self.evaluated,
            "confirmed": self.confirmed,
            "failed": len(self.failures),
            "failed_because": sorted(set(self.failures)),
            "recommended": _point(self.pick, scenario) if self.pick else None,
            "nearest": _point(self.nearest, scenario) if self.nearest else None,
            "as_launched": _point(self.launched, scenario) if self.launched else None,
            "enough": _point(self.enough, scenario) if self.enough else None,
            "proven": not self.open,
            "open": self.open,
            "at_most_better": self.at_most_better,
            "alternatives": [_point(one, scenario) for one in self.alternatives],
            "frontier": [_point(one, scenario) for one in self.frontier],
            "sizes": [_of_size(size, scenario) for size in self.sizes],
        }


def alternatives(pick: Answered | None, sizes: Sequence[Size]) -> tuple[Answered, ...]:
    """Beside the pick, of other sizes: the cheapest that is faster, and the fastest that is
    cheaper."""
    if pick is None:
        return ()
    leaders = [leader for size in sizes if (leader := size.leader)]
    others = [one for one in leaders if one.layout.nodes != pick.layout.nodes]
    days, money = days_and_money(pick.best.kpis)
    figures = [(one, *days_and_money(one.best.kpis)) for one in others]
    faster = [(cost, one) for one, taken, cost in figures if taken < days]
    cheaper = [(taken, one) for one, taken, cost in figures if cost < money]
    found = [min(own, key=lambda pair: pair[0])[1] for own in (faster, cheaper) if own]
    return tuple(one for place, one in enumerate(found) if one not in found[:place])


def _point(one: Answered, scenario: Scenario) -> dict[str, Any]:
    return {
        "gpus": one.layout.nodes * scenario.cluster.node.gpus,
        "layout": one.layout.words,
        "overrides": one.layout.overrides(scenario),
        "fidelity": one.best.fidelity,
        "hash": one.best.hash,
        "step_seconds": one.step_ns / 1e9,
        "fast_step_seconds": None if one.fast.step_ns is None else one.fast.step_ns / 1e9,
        "least_step_seconds": one.least_ns / 1e9,
        "headroom_bytes": one.best.headroom_bytes,
        "kpis": dict(one.best.kpis),
    }


def _of_size(size: Size, scenario: Scenario) -> dict[str, Any]:
    leader = size.leader
    return {
        "nodes": size.nodes,
        "gpus": size.nodes * scenario.cluster.node.gpus,
        "candidates": len(size.space.candidates) + size.space.unlisted,
        "evaluated": size.played,
        "not_evaluated": size.left,
        "does_not_fit": size.unfit,
        "failed": len(size.failed),
        "at_most_faster": size.doubt,
        "best": None if leader is None else _point(leader, scenario),
    }
