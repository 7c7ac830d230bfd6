"""How many GPUs, and which layout: the best of a space for a goal, and what every size of cluster
could do.

Two answers are asked: bounds of every layout (`twin.explore.search.judge`), and events of those
that promise most.

1. Of each size of cluster, layouts are simulated in the order of what they promise, but for those
   whose bound is farther than `NEAR` from the best, until `most` of them are. The first `WEIGHED`
   are put in the order of the light model before (`twin.planning.compile.outlook`).
2. A size is open while the bound of a layout that was not simulated would meet the goal and beat
   the pick by more than `TIE`. Open sizes get twice as many answers, until none is open or the time
   is spent. Then the pick is proven, or it is said how many layouts are open and how much better
   they might be. Where nothing meets the goal, the same rule proves it.
   Where nothing meets a deadline, larger clusters are tried: how many GPUs would it take?

So the result is that of trying all, as far as it is proven.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import inf
from time import monotonic
from typing import Final

from twin.answers.executors import Died, Executor, open_executor, play
from twin.answers.nearest import document
from twin.answers.run_store import source_digest
from twin.errors import Problem, UsageError
from twin.explore.search.judge import MEMORY, Candidate, Judge, JudgedSpace
from twin.explore.search.recommendation import (
    Answered,
    Recommendation,
    SearchRequest,
    Size,
)
from twin.explore.search.space import (
    DAY,
    Goal,
    Kpis,
    ParallelLayout,
    Space,
    layout_of,
)
from twin.explore.sweep.points import PointOutcome, SweepPoint, answer_point, failed
from twin.planning.compile import Outlook, outlook
from twin.planning.launched import launched
from twin.scenario import Scenario
from twin.spec.cluster import MOST_GPUS

TIE: Final = 0.01
"""By which share another layout has to be better to take the decision: OURS, what real runs of one
layout differ by."""
LISTED: Final = 1024
"""Candidates of a size that are listed, as many of each way to cut layers: OURS, several times what
a search looks at."""
WEIGHED: Final = 40
"""OURS: layouts of a size that the light model orders. Of 40 that were simulated on 2,304 and 25 on
4,096 H800, the best was second and first."""
LEAST: Final = 3
"""Layouts of a size that are simulated however long it takes: OURS."""
MOST_BEYOND: Final = 4
"""Layouts of one larger cluster that are simulated where no size meets a deadline."""


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
            if search.pick is not None:
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
        while (open_sizes := self._open()) and monotonic() < self.ends:
            before = sum(size.asked for size in open_sizes)
            for size in open_sizes:
                size.most = 2 * max(size.most, len(size.fitting))
            self.answer(open_sizes)
            if sum(size.asked for size in open_sizes) == before:
                break
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
            sum(size.left - size.late for size in open_sizes),
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
            return Answered(layout, 0.0, outcome) if outcome.answered else None
        return None

    def judge(self, goal: Goal) -> bool:
        """Judge all sizes; whether any layout is left."""
        judged = _judged(self.asked, goal, self.asked.space.nodes, self.executor)
        most = self.asked.most
        self.sizes = tuple(Size(nodes, found, most) for nodes, found in judged.items())
        self._weigh()
        return any(size.space.candidates for size in self.sizes)

    def _weigh(self) -> None:
        """Order what promises most by the light model; what no split can fit is left out."""
        first = [(size, one) for size in self.sizes for one in size.space.candidates[:WEIGHED]]
        function = partial(_outlook, self.asked.scenario)
        seen = [one.layout for _, one in first]
        self.asked.tell("weighing layouts", 0, len(seen))
        found = dict(play(function, seen, pool=self.executor))
        for size in self.sizes:
            own = [(one, found[at]) for at, (of, one) in enumerate(first) if of is size]
            kept = [
                replace(one, guess_ns=told.step_ns, likely=told.fits)
                for one, told in own
                if isinstance(told, Outlook) and not told.hopeless
            ]
            kept += [one for one, told in own if not isinstance(told, Outlook)]
            size.space.pruned.update([MEMORY] * (len(own) - len(kept)))
            size.space.candidates[: len(own)] = sorted(kept, key=_promise)

    @property
    def pick(self) -> Answered | None:
        """The best that meets the goal."""
        goal = self.asked.goal
        meeting = [one for one in self._fitting if goal.met(one.answer.kpis)]
        return min(meeting, key=self._worth, default=None)

    @property
    def nearest(self) -> Answered | None:
        """What comes nearest to the goal."""
        return min(self._fitting, key=self._excess, default=None)

    @property
    def _fitting(self) -> list[Answered]:
        return [one for size in self.sizes for one in size.fitting]

    def _worth(self, one: Answered) -> tuple[float, float]:
        return self.asked.goal.worth(one.answer.kpis)

    def _excess(self, one: Answered) -> tuple[float, ...]:
        """By how much it is beyond the goal, then what it is worth."""
        return self.asked.goal.excess(one.answer.kpis), *self._worth(one)

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
        known = [one.answer.kpis for one in self._fitting]
        prices = [(one["cost_usd"] or 0.0) / (one["gpu_hours"] or inf) for one in known]
        cost = None if scenario.cost is None else hours * min(prices, default=0.0)
        return {"days": days, "gpu_hours": hours, "cost_usd": cost}

    def answer(self, sizes: Sequence[Size]) -> None:
        """Simulate layouts, of one size after the other, until each size has its answers; those
        that do not fit are planned only."""
        asked = self.asked
        base, sent = document(asked.scenario), list[tuple[Size, Candidate]]()

        def tasks() -> Iterator[SweepPoint]:
            while True:
                before = len(sent)
                for size in sizes:
                    late = monotonic() > self.ends and len(size.fitting) >= LEAST
                    if not late and (candidate := size.next()) is not None:
                        sent.append((size, candidate))
                        overrides = candidate.layout.overrides(asked.scenario)
                        yield SweepPoint(base, overrides, "events")
                if len(sent) == before:
                    return

        begun = -1
        while begun < (begun := len(sent)):
            for place, outcome in _answers(asked, tasks(), self.executor):
                size, candidate = sent[begun + place]
                if outcome.status == "fits":
                    size.fitting.append(Answered(candidate.layout, candidate.least_ns, outcome))
                elif outcome.status == "failed":
                    size.failed.append(outcome.reason)
                else:
                    size.unfit += 1
                done = sum(len(one.fitting) for one in sizes)
                asked.tell("simulating layouts", done, sum(one.most for one in sizes))


def _judged(
    asked: SearchRequest, goal: Goal, nodes: Sequence[int], executor: Executor
) -> dict[int, JudgedSpace]:
    """Sizes, judged. What cuts a layer alike is judged by one worker, on all sizes, since it shares
    most."""
    space = asked.space
    cuts = [*product(space.tensor, space.context, space.expert)]
    found = {one: JudgedSpace() for one in nodes}
    asked.tell("judging layouts", 0, len(cuts))
    listed = -(-LISTED // len(cuts))
    function = partial(judge_cut, replace(space, nodes=tuple(nodes)), goal, listed)
    for done, (place, result) in enumerate(play(function, cuts, pool=executor), 1):
        if isinstance(result, Died):
            cut = ", ".join(map(str, cuts[place]))
            message = f"judging layouts of {cut} was not finished: {result.reason}"
            raise UsageError([Problem("TW431", "", message, "ask for fewer sizes")])
        for one, own in result.items():
            found[one] += own
        asked.tell("judging layouts", done, len(cuts))
    return found


def judge_cut(
    space: Space, goal: Goal, listed: int, cut: tuple[int, int, int]
) -> dict[int, JudgedSpace]:
    """All layouts that cut layers over so many tensor, context and expert ranks, judged, by size of
    the cluster; so many candidates of each are listed."""
    tensor, context, expert = ((one,) for one in cut)
    own = replace(space, tensor=tensor, context=context, expert=expert)
    judge, judged = Judge(own, goal.slowest_ns(space.scenario)), dict[int, JudgedSpace]()
    for size in space.nodes:
        judge.space, judge.found = replace(own, nodes=(size,)), JudgedSpace()
        judged[size] = judge.all()
        judged[size].shorten(listed)
    return judged


def _promise(one: Candidate) -> tuple[float, int]:
    """Less is more promising; of layouts alike first what copies less beside kernels, which the
    light model takes to be free."""
    return one.order, len(one.layout.memory.offload)


def _outlook(scenario: Scenario, layout: ParallelLayout) -> Outlook:
    return outlook(layout.applied(scenario))


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
