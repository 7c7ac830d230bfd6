"""What a search is asked, and what it has found: layouts with their answers, sizes of the cluster,
the recommendation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Final

from twin.answers.executors import PoolChoice
from twin.explore.search.judge import MEMORY, TIME, Candidate, JudgedSpace, words
from twin.explore.search.space import Goal, ParallelLayout, Space, days_and_money
from twin.explore.sweep.points import PointOutcome
from twin.explore.sweep.progress import Progress
from twin.explore.sweep.sweep import frontier
from twin.loading import scenario_hash
from twin.scenario import Scenario

VERSION: Final = 1
"""Version of the JSON document."""
MOST_PLAYED: Final = 16
"""Layouts of one size of cluster that are simulated at first, those left out that do not fit."""
PATIENCE: Final = 40.0
"""Seconds after which a search looks at no more layouts: OURS, as long as people wait."""
UNFIT: Final = 4
"""OURS: by how many layouts of a size that do not fit may outnumber those that do, before others
that seem tight wait."""
NEAR: Final = 0.03
"""Share of a size's best step within which every layout is simulated, as far as bounds tell: OURS,
what layouts differ by on a real cluster from one day to the next."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A layout with what is said of it."""

    layout: ParallelLayout
    least_ns: float
    answer: PointOutcome
    """By events."""

    @property
    def step_ns(self) -> float:
        """Of the answer."""
        assert self.answer.step_ns is not None  # only what fits is kept
        return self.answer.step_ns


@dataclass(slots=True)
class Size:
    """One size of the cluster: its layouts, the most promising first, and what is known of them."""

    nodes: int
    space: JudgedSpace
    """Its layouts, judged."""
    most: int
    """Layouts that are simulated."""
    asked: int = 0
    late: int = 0
    """Layouts that their bounds put beyond `NEAR` of the best."""
    fitting: list[Answered] = field(default_factory=list[Answered])
    unfit: int = 0
    failed: list[str] = field(default_factory=list[str])
    """Why layouts were not answered: bugs of ours, and workers that died."""

    @property
    def leader(self) -> Answered | None:
        """The fastest that is known."""
        return min(self.fitting, key=lambda one: one.step_ns, default=None)

    @property
    def bound_ns(self) -> float:
        """No layout that was not answered has a shorter step; infinite where all were."""
        waiting = (one.least_ns for one in self.space.candidates[self.asked :])
        return min(self.space.floor, min(waiting, default=inf))

    def next(self) -> Candidate | None:
        """The next layout worth an answer: none that its bound puts farther than `NEAR` from the
        best."""
        candidates = self.space.candidates
        while self.asked < len(candidates) and len(self.fitting) < self.most:
            self._prefer_likely()
            candidate = candidates[self.asked]
            if not self._is_late(candidate):
                self.asked += 1
                return candidate
            del candidates[self.asked]
            self.late += 1
        return None

    def _prefer_likely(self) -> None:
        """Put a layout that seems to fit first, while many did not fit."""
        candidates = self.space.candidates
        if candidates[self.asked].likely or self.unfit < len(self.fitting) + UNFIT:
            return
        for place in range(self.asked + 1, len(candidates)):
            if candidates[place].likely:
                candidates.insert(self.asked, candidates.pop(place))
                return

    def _is_late(self, candidate: Candidate) -> bool:
        leader = self.leader
        return leader is not None and candidate.least_ns > (1 + NEAR) * leader.step_ns

    @property
    def doubt(self) -> float:
        """Share of the leader's step by which what was not answered might be shorter."""
        leader = self.leader
        return 0.0 if leader is None else max(0.0, 1 - self.bound_ns / leader.step_ns)

    @property
    def left(self) -> int:
        """Candidates that were not answered."""
        return len(self.space.candidates) + self.space.unlisted + self.late - self.asked


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
    """After so long only a size with few answers gets more."""

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
    """The best that meets the goal."""
    nearest: Answered | None
    """Where nothing meets the goal: what comes nearest to it."""
    open: int
    """Layouts that were not simulated on sizes where one of them might be the pick."""
    at_most_better: float
    """By which share the best of them might be, in what the goal is judged by; 0: none is open."""
    enough: Answered | None = None
    """Where no size meets the deadline: the best of the first larger one that does."""
    launched: Answered | None = None
    """The pick as the scenario's software launches it; None where that runs all of it.
    """

    @property
    def evaluated(self) -> int:
        """Layouts that were planned, and simulated if they fit."""
        return sum(size.asked for size in self.sizes)

    @property
    def simulated(self) -> int:
        """Those that fit."""
        return sum(len(size.fitting) for size in self.sizes)

    @property
    def alternatives(self) -> tuple[Answered, ...]:
        """Beside the pick, of other sizes: the cheapest that is faster, and the fastest that is
        cheaper."""
        pick = self.pick or self.nearest
        if pick is None:
            return ()
        leaders = [leader for size in self.sizes if (leader := size.leader)]
        others = [one for one in leaders if one.layout.nodes != pick.layout.nodes]
        days, money = days_and_money(pick.answer.kpis)
        figures = [(one, *days_and_money(one.answer.kpis)) for one in others]
        faster = [(cost, one) for one, taken, cost in figures if taken < days]
        cheaper = [(taken, one) for one, taken, cost in figures if cost < money]
        found = [min(own, key=lambda pair: pair[0])[1] for own in (faster, cheaper) if own]
        return tuple(one for place, one in enumerate(found) if one not in found[:place])

    @property
    def frontier(self) -> tuple[Answered, ...]:
        """Of the best of each size those that no other one beats in days and cost."""
        leaders = [leader for size in self.sizes if (leader := size.leader)]
        figures = {n: days_and_money(one.answer.kpis) for n, one in enumerate(leaders)}
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
            "simulated": self.simulated,
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


def _point(one: Answered, scenario: Scenario) -> dict[str, Any]:
    return {
        "gpus": one.layout.nodes * scenario.cluster.node.gpus,
        "layout": one.layout.words,
        "overrides": one.layout.overrides(scenario),
        "fidelity": one.answer.fidelity,
        "hash": one.answer.hash,
        "step_seconds": one.step_ns / 1e9,
        "least_step_seconds": one.least_ns / 1e9,
        "headroom_bytes": one.answer.headroom_bytes,
        "kpis": dict(one.answer.kpis),
    }


def _of_size(size: Size, scenario: Scenario) -> dict[str, Any]:
    leader = size.leader
    return {
        "nodes": size.nodes,
        "gpus": size.nodes * scenario.cluster.node.gpus,
        "candidates": len(size.space.candidates) + size.space.unlisted,
        "evaluated": size.asked,
        "not_evaluated": size.left,
        "does_not_fit": size.unfit,
        "failed": len(size.failed),
        "at_most_faster": size.doubt,
        "best": None if leader is None else _point(leader, scenario),
    }
