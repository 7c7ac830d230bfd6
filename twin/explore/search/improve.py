"""The search for a better plan, by events: single edits, pairs of them, the split of layers, memory
by stage, and the order of passes where it is asked for.

Each step begins with the best plan of the steps before. An edit that breaks a rule, or does not fit
in memory, is never offered. Pairs are tried in the order of what both halves gain by themselves. An
edit that does not fit takes part in a pair where the other half frees the memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import inf
from pathlib import Path
from time import monotonic
from typing import Final

from pydantic import ValidationError

from twin.answers.executors import Executor, PoolChoice, open_executor
from twin.answers.nearest import document, replaced
from twin.errors import Problem, ScenarioError, UsageError
from twin.explore.schedules.found import Found, finding
from twin.explore.search.edits import Edit, edits, stage_policies
from twin.explore.search.improvement import (
    LEAST,
    Improvement,
    Milestone,
    Tried,
    first_of_each_field,
)
from twin.explore.sweep.points import PointOutcome, SweepPoint, answer_point
from twin.explore.sweep.progress import Progress
from twin.explore.sweep.sweep import answer_points
from twin.planning.compile import SplitRanking, outlook
from twin.planning.split_search import Split
from twin.scenario import Scenario

MOST_PAIRS: Final = 16
"""Pairs that are tried: OURS, what a minute has room for on two cores. With fewer, the best pair of
a plan with many edits may be missed."""
MOST_SPLITS: Final = 16
"""OURS: splits that are simulated in a round. With fewer, a split that the light model ranks too
low is missed; with more, a round takes longer than a person waits."""
PATIENCE: Final = 60.0
"""Seconds after which nothing more is tried: OURS, as long as a person waits."""


def improve(
    scenario: Scenario,
    *,
    pool: PoolChoice,
    folder: Path | None = None,
    seconds: float = PATIENCE,
    passes: float = 0.0,
    stop: Callable[[], bool] | None = None,
) -> Improvement:
    """What `improving` ends with."""
    *_, found = improving(
        scenario, pool=pool, folder=folder, seconds=seconds, passes=passes, stop=stop
    )
    return found


def improving(
    scenario: Scenario,
    *,
    pool: PoolChoice,
    folder: Path | None = None,
    seconds: float = PATIENCE,
    passes: float = 0.0,
    stop: Callable[[], bool] | None = None,
) -> Iterator[Improvement]:
    """The search for a better plan: what is known, again after each answer. `passes` seconds are
    spent on the order of passes; `stop` is asked now and then, and ends the search with what is
    known. Raises `UsageError` where the plan itself cannot run."""
    ends, asked = monotonic() + seconds, stop or (lambda: False)
    with closing(open_executor(pool)) as executor:
        yield from _Search(scenario, folder, asked, ends, executor).run(passes)


@dataclass(slots=True)
class _Search:
    """A search under way."""

    scenario: Scenario
    folder: Path | None
    stop: Callable[[], bool]
    ends: float
    """Of `time.monotonic`."""
    executor: Executor
    found: Improvement = field(init=False)
    now: Progress | None = None
    begun: float = field(default_factory=monotonic)
    """When the step of the search began."""

    def run(self, passes: float) -> Iterator[Improvement]:
        """All steps of the search."""
        near = yield from self._singles()
        if self.found.usual.status == "fits":
            for step in (lambda: self._pairs(near), self._splits, self._stages):
                if not self._late:
                    yield from step()
            if passes:
                yield from self._order(passes)
        self.now = None
        yield self._state

    @property
    def _state(self) -> Improvement:
        return replace(self.found, now=self.now)

    def _singles(self) -> Generator[Improvement, None, list[Edit]]:
        """Single edits of the written plan, those first that promise most; those that another edit
        could make fit."""
        self.executor.begin(answer_point)
        promising = sorted(edits(self.scenario), key=self._outlook)
        singles, known = [Edit((), {}), *promising], dict[int, PointOutcome]()
        for place, outcome in self._answers(singles, "single edits"):
            known[place] = outcome
            if 0 in known:
                self.found = _of_singles(self.scenario, singles, known)
                yield self._state
        if self.found.usual.status != "fits":
            return []
        written = Milestone("as written", Tried(singles[0], self.found.usual), False, 0.0)
        self.found = replace(self.found, milestones=(written,))
        self._pass("single edits", self.found.tried)
        large = [(singles[n], one) for n, one in known.items() if one.status == "does_not_fit"]
        return [edit for edit, outcome in large if _mended(outcome, self.found)]

    def _pairs(self, near: Sequence[Edit]) -> Iterator[Improvement]:
        """Pairs of single edits, also of those that do not fit alone."""
        over: list[Tried] = []
        for place, outcome in self._answers(near, "edits that need room", unfit=True):
            over += [Tried(near[place], outcome)] * outcome.answered
            yield self._state
        both = pairs(self.found, over)
        self.found = replace(self.found, untried=self.found.untried + len(both))
        for place, outcome in self._answers(both, "pairs"):
            fit = [Tried(both[place], outcome)] * (outcome.status == "fits")
            made = _ranked(*self.found.pairs, *fit)
            self.found = replace(self.found, pairs=made, untried=self.found.untried - 1)
            yield self._state
        self._pass("pairs", self.found.pairs)

    def _splits(self) -> Iterator[Improvement]:
        """Splits of layers, from the best few by the light model, one layer moved at a time."""
        best = self.found.best
        ranking, tried = SplitRanking(self._made(best.edit)), dict[Split, Tried | None]()
        asked = ranking.begin()[:MOST_SPLITS]
        while asked and not self._late:
            before = _first(tried)
            made = [best.edit.then(_split_as(one)) for one in asked]
            tried |= dict.fromkeys(asked)
            for place, outcome in self._answers(made, "splits of layers"):
                if outcome.status == "fits":
                    tried[asked[place]] = Tried(made[place], outcome)
                yield self._state
            own = _first(tried)
            if own is None or own == before:
                break
            around = ranking.around(own)
            asked = [one for one in around if one not in tried][:MOST_SPLITS]
        self._pass("split of layers", [one for one in tried.values() if one], least=0.0)

    def _stages(self) -> Iterator[Improvement]:
        """Memory policies that stages choose."""
        best, tried = self.found.best, list[Tried]()
        made = [best.edit.then(one) for one in stage_policies(self._made(best.edit))]
        for place, outcome in self._answers(made, "memory by stage"):
            tried += [Tried(made[place], outcome)] * (outcome.status == "fits")
            yield self._state
        self._pass("memory by stage", tried)

    def _order(self, seconds: float) -> Iterator[Improvement]:
        """The order in which stages run their passes."""
        best = self.found.best
        tried: list[Tried] = []
        for known in finding(
            self._made(best.edit),
            pool=self.executor,
            folder=self.folder,
            seconds=seconds,
            stop=self.stop,
        ):
            if isinstance(known, Found):
                self.found = replace(self.found, order=known)
                if known.chosen is not None:
                    edit = Edit(("order of passes",), known.overrides)
                    tried = [Tried(best.edit.then(edit), known.chosen.outcome)]
            else:
                self.now = known
                yield self._state
        self._pass("order of passes", tried)

    def _pass(self, name: str, tried: Sequence[Tried], *, least: float = LEAST) -> None:
        """Note what a step of the search came to: a plan that is by more than `least` better than
        the best before, or that one."""
        done, now = self.found.milestones, monotonic()
        best = min(tried, key=lambda one: one.step_ns, default=None)
        if best is not None and best.step_ns >= (1 - least) * done[-1].best.step_ns:
            best = None
        passed = Milestone(name, best or done[-1].best, best is not None, now - self.begun)
        self.begun = now
        self.found = replace(self.found, milestones=(*done, passed))

    def _outlook(self, edit: Edit) -> tuple[bool, float]:
        """Whether an edit seems not to fit, and about its step."""
        try:
            found = outlook(self._made(edit))
        except (ScenarioError, ValidationError):
            return True, inf
        return not found.fits, found.step_ns

    def _made(self, edit: Edit) -> Scenario:
        return replaced(document(self.scenario), edit.overrides)

    def _answers(
        self, asked: Sequence[Edit], doing: str, *, unfit: bool = False
    ) -> Iterator[tuple[int, PointOutcome]]:
        """What events say of edits, by place, until told to stop, or out of time. The plan as it is
        gets its answer in any case."""
        if self._late:
            return
        base = document(self.scenario)
        points = [SweepPoint(base, one.overrides, "events") for one in asked]
        answers = answer_points(points, pool=self.executor, folder=self.folder, play_unfit=unfit)
        with closing(answers):
            for done, answer in enumerate(answers, 1):
                self.now = Progress(doing, done, len(points))
                yield answer
                if self._late:
                    return

    @property
    def _late(self) -> bool:
        """Whether no more is to be tried."""
        return hasattr(self, "found") and (self.stop() or monotonic() >= self.ends)


def _of_singles(
    scenario: Scenario, singles: Sequence[Edit], known: Mapping[int, PointOutcome]
) -> Improvement:
    """What is known once the plan itself is. Raises `UsageError` where that cannot run."""
    usual = known[0]
    if not usual.answered:
        raise UsageError([Problem(usual.code or "TW431", usual.path, usual.reason, usual.hint)])
    if usual.status != "fits":
        return Improvement(scenario, usual)
    ends = Counter(one.status for place, one in known.items() if place)
    fit = [Tried(singles[n], one) for n, one in known.items() if n and one.status == "fits"]
    return Improvement(
        scenario,
        usual,
        _ranked(*fit),
        impossible=ends["impossible"] + ends["failed"],
        too_large=ends["does_not_fit"],
        untried=len(singles) - len(known),
    )


def _split_as(split: Split) -> Edit:
    return Edit(("split of layers",), {"parallel.layers": list(split)})


def _first(tried: Mapping[Split, Tried | None]) -> Split | None:
    """The split with the shortest step."""
    fit = {split: one.step_ns for split, one in tried.items() if one}
    return min(fit, key=lambda one: fit[one], default=None)


def _ranked(*tried: Tried) -> tuple[Tried, ...]:
    return tuple(sorted(tried, key=lambda one: one.step_ns))


def _mended(large: PointOutcome, found: Improvement) -> bool:
    """Whether some edit frees as much memory as a plan is short of."""
    return any(_room(found, one.outcome, large) >= 0 for one in found.tried)


def _room(found: Improvement, *halves: PointOutcome) -> float:
    """The memory to spare with both halves of a pair, were their bytes independent."""
    usual = found.usual.headroom_bytes or 0.0
    return usual + sum((one.headroom_bytes or 0.0) - usual for one in halves)


def pairs(found: Improvement, over: Sequence[Tried] = ()) -> list[Edit]:
    """The pairs to try: of the best edits of each field, and those `over` the memory with edits
    that free enough; those first whose halves gain most by themselves."""
    best = first_of_each_field(found.tried)
    both = [*combinations(best, 2), *((one, other) for one in over for other in found.tried)]
    ranked = [
        (one.step_ns * other.step_ns, made)
        for one, other in both
        if (made := one.edit.joined(other.edit)) is not None
        and _room(found, *(half.outcome for half in (one, other) if not half.edit.adapts)) >= 0
    ]
    ranked.sort(key=lambda one: one[0])
    return [made for _, made in ranked[:MOST_PAIRS]]
