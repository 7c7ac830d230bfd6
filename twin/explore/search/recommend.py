"""How many GPUs, and which layout: the best of a space for a goal, and what every size of cluster
could do.

Three answers of rising truth and cost are asked of ever fewer layouts: a bound, a third of a
millisecond (`twin.explore.search.judge`), the fast path, and events. Of each size of cluster the
layouts are answered by the fast path in the order of their bounds, until no bound is below the best
answer: what is left cannot be faster. Then the best are confirmed by events, again in order, until
an answer by events is below all that is left by the fast path. So the result is that of trying all,
as far as a bound is none above the fast path (it is built so) and the fast path none above events
(where links are shared it is too fast, and a few parts in a hundred too slow at times).

A size stops after `MOST_PLAYED` answers; then how much faster what is left might be is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from twin.answers.executors import Died, Executor, PoolChoice, open_executor, play
from twin.answers.nearest import document
from twin.answers.run_store import source_digest
from twin.errors import Problem, UsageError
from twin.explore.search.judge import MEMORY, TIME, Candidate, Judge, JudgedSpace, words
from twin.explore.search.space import Goal, ParallelLayout, Space, days_and_money
from twin.explore.sweep.points import PointOutcome, SweepPoint, answer_point, failed
from twin.explore.sweep.sweep import frontier
from twin.loading import scenario_hash
from twin.scenario import Scenario

VERSION: Final = 1
"""Version of the JSON document."""
MOST_PLAYED: Final = 16
"""Layouts of one size of cluster that are answered by the fast path."""
MOST_CONFIRMED: Final = 4
"""Of them those that are confirmed by events."""


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
    candidates: list[Candidate]
    left_out: int = 0
    """Candidates beyond those listed, none of which has a lower bound."""
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

    def next(self, most: int) -> Candidate | None:
        """The next layout worth an answer."""
        if self.asked >= min(most, len(self.candidates)):
            return None
        candidate, leader = self.candidates[self.asked], self.leader
        if leader is not None and candidate.least_ns >= leader.step_ns:
            return None
        self.asked += 1
        return candidate

    @property
    def doubt(self) -> float:
        """Share of the leader's step by which what was not answered might be shorter."""
        leader = self.leader
        if leader is None or self.asked >= len(self.candidates):
            return 0.0
        return max(0.0, 1 - self.candidates[self.asked].least_ns / leader.step_ns)

    @property
    def left(self) -> int:
        """Candidates that were not answered."""
        return len(self.candidates) + self.left_out - self.asked


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

    @property
    def evaluated(self) -> int:
        """Layouts answered by the fast path."""
        return sum(size.played for size in self.sizes)

    @property
    def confirmed(self) -> int:
        """Of them, those answered by events."""
        return sum(one.events is not None for size in self.sizes for one in size.fitting)

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
            "frontier": [_point(one, scenario) for one in self.frontier],
            "sizes": [_of_size(size, scenario) for size in self.sizes],
        }


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
        "candidates": len(size.candidates) + size.left_out,
        "evaluated": size.played,
        "not_evaluated": size.left,
        "does_not_fit": size.unfit,
        "failed": len(size.failed),
        "at_most_faster": size.doubt,
        "best": None if leader is None else _point(leader, scenario),
    }


def recommend(asked: SearchRequest) -> Recommendation:
    """The best layout of a space for a goal. Raises `UsageError` where a cluster of workers cannot
    be reached."""
    with closing(open_executor(asked.pool)) as executor:
        return _recommended(asked, executor)


def _recommended(asked: SearchRequest, executor: Executor) -> Recommendation:
    judged = _judged(asked, executor)
    if not any(found.candidates for found in judged.values()):
        # Nothing is done in time: then what comes nearest is of interest.
        judged = _judged(replace(asked, goal=Goal()), executor)
    sizes = tuple(Size(nodes, found.candidates, found.left_out) for nodes, found in judged.items())
    pruned: Counter[str] = Counter()
    for found in judged.values():
        pruned.update(found.pruned)
    _play(asked, sizes, executor)
    pick = _confirm(asked, sizes, executor)
    examined = sum(found.examined for found in judged.values())
    return Recommendation(asked, examined, dict(pruned.most_common()), sizes, pick)


def _judged(asked: SearchRequest, executor: Executor) -> dict[int, JudgedSpace]:
    """Every size, judged, those of one worker together."""
    nodes = asked.space.nodes
    count = min(executor.places, len(nodes))
    groups = [nodes[first::count] for first in range(count)]
    function = partial(judge_sizes, asked.space, asked.goal, asked.most)
    found: dict[int, JudgedSpace] = {}
    asked.tell("judging layouts", 0, len(nodes))
    for place, result in play(function, groups, pool=executor):
        if isinstance(result, Died):
            sizes = ", ".join(map(str, groups[place]))
            message = f"judging {sizes} nodes was not finished: {result.reason}"
            raise UsageError([Problem("TW431", "", message, "ask for fewer sizes")])
        found |= result
        asked.tell("judging layouts", len(found), len(nodes))
    return {one: found[one] for one in nodes}


def judge_sizes(
    space: Space, goal: Goal, most: int, nodes: Sequence[int]
) -> dict[int, JudgedSpace]:
    """All layouts of some sizes of the cluster, judged; of the candidates those with the least
    bounds (`Judge.best`). What the sizes share is worked out once."""
    slowest = goal.slowest_ns(space.scenario)
    judge, judged = Judge(space, slowest_ns=slowest), dict[int, JudgedSpace]()
    for size in nodes:
        judge.space, judge.found = replace(space, nodes=(size,)), JudgedSpace()
        for _ in judge.all():
            pass
        judge.found.candidates = judge.best(most)
        judged[size] = judge.found
    return judged


def _play(asked: SearchRequest, sizes: Sequence[Size], executor: Executor) -> None:
    """Answer layouts by the fast path, size by size in turn, until no bound is below the best."""
    sent: list[tuple[Size, Candidate]] = []

    def tasks() -> Iterator[SweepPoint]:
        base = document(asked.scenario)
        while True:
            before = len(sent)
            for size in sizes:
                if (candidate := size.next(asked.most)) is not None:
                    sent.append((size, candidate))
                    yield SweepPoint(base, candidate.layout.overrides(asked.scenario))
            if len(sent) == before:
                return

    for place, outcome in _answers(asked, tasks(), executor):
        size, candidate = sent[place]
        size.played += 1
        if outcome.status == "fits":
            size.fitting.append(Answered(candidate.layout, candidate.least_ns, outcome))
        elif outcome.status == "failed":
            size.failed.append(outcome.reason)
        else:
            size.unfit += 1
        asked.tell("playing layouts, fast path", sum(one.played for one in sizes), len(sent))


def _answers(
    asked: SearchRequest, points: Iterator[SweepPoint], executor: Executor
) -> Iterator[tuple[int, PointOutcome]]:
    """What is said of points, each kept as soon as it is known."""
    folder = asked.folder if asked.pool.cluster is None else None
    function = partial(answer_point, folder=folder, play_unfit=False, source=source_digest())
    for place, result in play(function, points, pool=executor):
        yield place, failed(result.reason) if isinstance(result, Died) else result


def _confirm(asked: SearchRequest, sizes: Sequence[Size], executor: Executor) -> Answered | None:
    """Play the leaders by events, until each size's leader is confirmed and nothing left by the
    fast path is before it; then the best that meets the goal."""
    done = 0
    while True:
        waiting = [
            (size, leader)
            for size in _in_question(sizes)
            if (leader := size.leader) is not None
            and leader.events is None
            and sum(one.events is not None for one in size.fitting) < MOST_CONFIRMED
        ]
        if not waiting:
            break
        asked.tell("confirming leaders by events", done, done + len(waiting))
        base = document(asked.scenario)
        points = (
            SweepPoint(base, leader.layout.overrides(asked.scenario), "events")
            for _, leader in waiting
        )
        for place, outcome in _answers(asked, points, executor):
            size, leader = waiting[place]
            size.fitting.remove(leader)
            if outcome.status == "fits":
                size.fitting.append(replace(leader, events=outcome))
            else:
                size.failed.append(outcome.reason)
            done += 1
            asked.tell("confirming leaders by events", done, done + len(waiting))
    return _best(asked.goal, sizes)


def _in_question(sizes: Sequence[Size]) -> Sequence[Size]:
    """Sizes whose leader may be on the frontier, on which the pick is."""
    leaders = [(size, leader) for size in sizes if (leader := size.leader)]
    figures = {n: days_and_money(one.best.kpis) for n, (_, one) in enumerate(leaders)}
    return [leaders[n][0] for n in frontier(figures)]


def _best(goal: Goal, sizes: Sequence[Size]) -> Answered | None:
    """Of all leaders the best that meets the goal."""
    leaders = [leader for size in sizes if (leader := size.leader)]
    meeting = [one for one in leaders if goal.met(one.best.kpis)]
    return min(meeting, key=lambda one: goal.worth(one.best.kpis), default=None)
