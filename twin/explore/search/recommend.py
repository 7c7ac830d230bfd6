"""How many GPUs, and which layout: the best of a space for a goal, and what every size of cluster
could do.

Three answers of rising truth and cost are asked of ever fewer layouts: a bound, a third of a
millisecond (`twin.explore.search.judge`), the fast path, and events.

1. Of each size of cluster, layouts are answered by the fast path in the order of their bounds,
   until no bound is below the best answer, or `most` are answered.
2. The best for the goal is simulated by events, then the next best, until what was simulated is
   better than all that was only estimated. So a pick is always simulated. Where nothing meets the
   goal, the nearest is found in the same way.
3. A size is open while the bound of its next layout would meet the goal and beat the pick by more
   than `TIE`. Open sizes get twice as many answers, until none is open or the time is spent. Then
   the pick is proven, or it is said how many layouts are open and how much better they might be.
4. Of Pareto-optimal sizes the layouts within `NEAR` of the best are simulated, and what is named
   beside the pick.
   Where nothing meets a deadline, larger clusters are tried: how many GPUs would it take?

So the result is that of trying all, as far as a bound is none above the fast path (it is built so)
and the fast path none above events (where links are shared it is too fast, and a few parts in a
hundred too slow at times).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from math import inf
from time import monotonic
from typing import Final

from twin.answers.executors import Died, Executor, open_executor, play
from twin.answers.nearest import document
from twin.answers.run_store import source_digest
from twin.errors import Problem, UsageError
from twin.explore.search.judge import Candidate, Judge, JudgedSpace
from twin.explore.search.recommendation import (
    Answered,
    Recommendation,
    SearchRequest,
    Size,
    alternatives,
)
from twin.explore.search.space import (
    DAY,
    Goal,
    Kpis,
    Space,
    days_and_money,
    layout_of,
)
from twin.explore.sweep.points import PointOutcome, SweepPoint, answer_point, failed
from twin.explore.sweep.sweep import frontier
from twin.planning.launched import launched
from twin.spec.cluster import MOST_GPUS

TIE: Final = 0.01
"""By which share another layout has to be better to take the decision: OURS. The fast path ranks
layouts that are closer no better than by chance."""
NEAR: Final = 0.03
"""Share of a size's best step within which layouts are simulated: OURS. The fast path may rank them
wrongly, since it leaves out what shared links cost."""
MOST_BEYOND: Final = 4
"""Layouts of one larger cluster that are answered by the fast path where no size meets a deadline.
"""


def recommend(asked: SearchRequest) -> Recommendation:
    """The best layout of a space for a goal. Raises `UsageError` where a cluster of workers cannot
    be reached."""
    with closing(open_executor(asked.pool)) as executor:
        ends = monotonic() + asked.seconds
        found = _Search(asked, executor, ends).run()
        if found.pick is None and asked.goal.days is not None and monotonic() < ends:
            return replace(found, enough=_enough(asked, executor, ends))
        return found


def _enough(asked: SearchRequest, executor: Executor, ends: float) -> Answered | None:
    """The best of the first larger cluster that meets the goal, sizes doubling; None where none
    does, or the time is spent."""
    nodes = 2 * max(asked.space.nodes)
    while nodes * asked.scenario.cluster.node.gpus <= MOST_GPUS and monotonic() < ends:
        larger = replace(asked, space=replace(asked.space, nodes=(nodes,)), most=MOST_BEYOND)
        search = _Search(larger, executor, ends)
        if search.judge(asked.goal):
            search.answer(search.sizes)
            if search.decide(asked.goal.met) is not None:
                return search.pick
        nodes *= 2
    return None


@dataclass(slots=True)
class _Search:
    """A search under way."""

    asked: SearchRequest
    executor: Executor
    ends: float
    """Of `time.monotonic`."""
    sizes: tuple[Size, ...] = ()

    def run(self) -> Recommendation:
        """Search to the end, or until the time is spent."""
        asked = self.asked
        if not self.judge(asked.goal):
            # Nothing is done in time: then what comes nearest is of interest.
            self.judge(Goal())
        self.answer(self.sizes)
        self._decide()
        self._confirm_leaders()
        asked_before = -1
        while (open_sizes := self._open()) and monotonic() < self.ends:
            if (asked_now := sum(size.asked for size in self.sizes)) == asked_before:
                break
            asked_before = asked_now
            self._widen(open_sizes)
            self.answer(open_sizes)
            self._decide()
        while self._confirm_leaders() and monotonic() < self.ends:
            pass
        self._decide()  # events of a leader may be below its estimate
        self._confirm_alternatives()
        pruned: Counter[str] = Counter()
        for size in self.sizes:
            pruned.update(size.space.pruned)
        open_sizes = self._open()
        return Recommendation(
            asked,
            sum(size.space.examined for size in self.sizes),
            dict(pruned.most_common()),
            self.sizes,
            self.pick,
            self.nearest if self.pick is None else None,
            sum(size.left for size in open_sizes),
            max((self._better(size) for size in open_sizes), default=0.0),
            launched=self._launched(),
        )

    def _launched(self) -> Answered | None:
        """The pick as the scenario's software launches it, where that is another plan."""
        pick, scenario = self.pick, self.asked.scenario
        if pick is None:
            return None
        asked = pick.layout.applied(scenario)
        if (made := launched(asked)) is asked:
            return None
        layout = layout_of(made)
        point = SweepPoint(document(scenario), layout.overrides(scenario), "events")
        for _, outcome in _answers(self.asked, iter([point]), self.executor):
            return Answered(layout, 0.0, outcome, outcome) if outcome.answered else None
        return None

    def judge(self, goal: Goal) -> bool:
        """Judge all sizes; whether any layout is left."""
        judged = _judged(self.asked, goal, self.asked.space.nodes, self.executor)
        most = self.asked.most
        self.sizes = tuple(Size(nodes, found, most) for nodes, found in judged.items())
        return any(size.space.candidates for size in self.sizes)

    @property
    def pick(self) -> Answered | None:
        """The best of what was simulated that meets the goal."""
        goal = self.asked.goal
        meeting = [one for one in self._fitting if one.events and goal.met(one.best.kpis)]
        return min(meeting, key=self._worth, default=None)

    @property
    def nearest(self) -> Answered | None:
        """What comes nearest to the goal, of what was simulated."""
        return min((one for one in self._fitting if one.events), key=self._excess, default=None)

    @property
    def _fitting(self) -> list[Answered]:
        return [one for size in self.sizes for one in size.fitting]

    def _worth(self, one: Answered) -> tuple[float, float]:
        return self.asked.goal.worth(one.best.kpis)

    def _excess(self, one: Answered) -> tuple[float, ...]:
        """By how much it is beyond the goal, then what it is worth."""
        return self.asked.goal.excess(one.best.kpis), *self._worth(one)

    def _decide(self) -> None:
        """Simulate the best for the goal, or what comes nearest to it."""
        if self.decide(self.asked.goal.met) is None:
            self.decide(lambda _: True, self._excess)

    def decide(
        self,
        keep: Callable[[Kpis], bool],
        rank: Callable[[Answered], tuple[float, ...]] | None = None,
    ) -> Answered | None:
        """Simulate the best of what is kept, until what was simulated leads."""
        rank = rank or self._worth
        while True:
            ranked = sorted((one for one in self._fitting if keep(one.best.kpis)), key=rank)
            if not ranked or ranked[0].events:
                return ranked[0] if ranked else None
            ahead = list(takewhile(lambda one: one.events is None, ranked))
            self._confirm(ahead[: self.executor.places])

    def _confirm(self, ones: Sequence[Answered]) -> None:
        """Simulate layouts by events."""
        base, scenario = document(self.asked.scenario), self.asked.scenario
        points = (SweepPoint(base, one.layout.overrides(scenario), "events") for one in ones)
        size_of = {size.nodes: size for size in self.sizes}
        before = sum(one.events is not None for one in self._fitting)
        for done, (place, outcome) in enumerate(_answers(self.asked, points, self.executor), 1):
            one = ones[place]
            size = size_of[one.layout.nodes]
            size.fitting.remove(one)
            if outcome.status == "fits":
                size.fitting.append(replace(one, events=outcome))
            else:
                size.failed.append(outcome.reason)
            self.asked.tell("simulating the best", before + done, before + len(ones))

    def _confirm_leaders(self) -> bool:
        """Simulate what is within `NEAR` of the best of Pareto-optimal sizes; whether there was any
        to simulate."""
        waiting = [
            one
            for size in _in_question(self.sizes)
            for one in size.fitting
            if one.events is None and size.leader is not None
            if one.step_ns <= (1 + NEAR) * size.leader.step_ns
        ]
        if waiting:
            self._confirm(waiting)
        return bool(waiting)

    def _confirm_alternatives(self) -> None:
        """Simulate what is named beside the pick, however late it is; that may make it another."""
        while waiting := [one for one in self._alternatives if one.events is None]:
            self._confirm(waiting)
            self._decide()

    @property
    def _alternatives(self) -> tuple[Answered, ...]:
        return alternatives(self.pick or self.nearest, self.sizes)

    def _open(self) -> tuple[Size, ...]:
        """Sizes on which a layout that was not answered might take the decision."""
        return tuple(size for size in self.sizes if self._better(size) > TIE)

    def _better(self, size: Size) -> float:
        """By which share a layout of a size that was not answered might be better than the pick; 1
        where there is no pick."""
        if size.bound_ns == inf:
            return 0.0
        goal, pick, kpis = self.asked.goal, self.pick, self._at_best(size)
        if not goal.met(kpis):
            return 0.0
        return 1.0 if pick is None else 1 - goal.worth(kpis)[0] / self._worth(pick)[0]

    def _at_best(self, size: Size) -> Kpis:
        """Days and cost of the best layout of a size that was not answered, were its bound its
        step. A GPU-hour costs what it costs the cheapest that was answered."""
        scenario = self.asked.scenario
        days = size.bound_ns / 1e9 * scenario.train.tokens / scenario.train.global_batch / DAY
        hours = 24 * days * size.nodes * scenario.cluster.node.gpus
        known = [one.best.kpis for one in self._fitting]
        prices = [(one["cost_usd"] or 0.0) / (one["gpu_hours"] or inf) for one in known]
        cost = None if scenario.cost is None else hours * min(prices, default=0.0)
        return {"days": days, "gpu_hours": hours, "cost_usd": cost}

    def _widen(self, sizes: Sequence[Size]) -> None:
        """Let twice as many layouts of sizes be answered."""
        asked, most = self.asked, 2 * max(size.most for size in sizes)
        function = partial(extend_size, asked.space, asked.goal, most)
        known = [(size.nodes, size.space) for size in sizes]
        for place, result in play(function, known, pool=self.executor):
            size = sizes[place]
            size.most = most
            if isinstance(result, Died):
                size.failed.append(result.reason)
            else:
                size.space = result

    def answer(self, sizes: Sequence[Size]) -> None:
        """Answer layouts by the fast path, size by size, while bounds are below the best."""
        asked = self.asked
        sent: list[tuple[Size, Candidate]] = []

        def tasks() -> Iterator[SweepPoint]:
            base = document(asked.scenario)
            while True:
                before = len(sent)
                for size in sizes:
                    if (candidate := size.next()) is not None:
                        sent.append((size, candidate))
                        yield SweepPoint(base, candidate.layout.overrides(asked.scenario))
                if len(sent) == before:
                    return

        for place, outcome in _answers(asked, tasks(), self.executor):
            size, candidate = sent[place]
            size.played += 1
            if outcome.status == "fits":
                size.fitting.append(Answered(candidate.layout, candidate.least_ns, outcome))
            elif outcome.status == "failed":
                size.failed.append(outcome.reason)
            else:
                size.unfit += 1
            asked.tell("estimating layouts", sum(one.played for one in self.sizes), len(sent))


def _judged(
    asked: SearchRequest, goal: Goal, nodes: Sequence[int], executor: Executor
) -> dict[int, JudgedSpace]:
    """Sizes, judged, those of one worker together."""
    count = min(executor.places, len(nodes))
    groups = [nodes[first::count] for first in range(count)]
    function = partial(judge_sizes, asked.space, goal, asked.most)
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
    bounds (`Judge.shortlist`). What the sizes share is worked out once."""
    slowest = goal.slowest_ns(space.scenario)
    judge, judged = Judge(space, slowest_ns=slowest), dict[int, JudgedSpace]()
    for size in nodes:
        judge.space, judge.found = replace(space, nodes=(size,)), JudgedSpace()
        for _ in judge.all():
            pass
        judge.shortlist(most)
        judged[size] = judge.found
    return judged


def extend_size(
    space: Space, goal: Goal, most: int, judged: tuple[int, JudgedSpace]
) -> JudgedSpace:
    """A size with more of its layouts listed."""
    nodes, found = judged
    slowest = goal.slowest_ns(space.scenario)
    judge = Judge(replace(space, nodes=(nodes,)), slowest_ns=slowest, found=found)
    judge.extend(most)
    return found


def _answers(
    asked: SearchRequest, points: Iterator[SweepPoint], executor: Executor
) -> Iterator[tuple[int, PointOutcome]]:
    """What is said of points, each kept as soon as it is known."""
    folder = asked.folder if asked.pool.cluster is None else None
    function = partial(answer_point, folder=folder, play_unfit=False, source=source_digest())
    for place, result in play(function, points, pool=executor):
        if isinstance(result, Died):
            yield place, failed(result.reason)
        elif asked.scenario.software_assumed and result.unnamed:
            yield place, replace(result, intervals=result.unnamed)
        else:
            yield place, result


def _in_question(sizes: Sequence[Size]) -> Sequence[Size]:
    """Sizes whose leader may be on the frontier, on which the pick is."""
    leaders = [(size, leader) for size in sizes if (leader := size.leader)]
    figures = {n: days_and_money(one.best.kpis) for n, (_, one) in enumerate(leaders)}
    return [leaders[n][0] for n in frontier(figures)]
