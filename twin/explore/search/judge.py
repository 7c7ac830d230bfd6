"""Every layout of a space, judged before anything is planned: by the rules of layouts, by the least
memory, and by the least time.

The space is walked as a tree, and what no layout below a branch can mend prunes the branch: the
rank grid (is it whole, does it divide the model), then micro-batches and schedule, then ZeRO and
the memory policy. A layout counts as examined wherever it is pruned. The rules are those of
`twin.planning.feasibility`, each asked once per combination of what it depends on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final, TypeAlias

from twin.errors import ScenarioError
from twin.explore.search.bounds import (
    Memo,
    ModelTimes,
    Numbers,
    TimeBound,
    model_times,
    parts,
    states_bytes,
    time_bound,
    waiting,
)
from twin.explore.search.space import Grid, ParallelLayout, Space, Turn
from twin.planning import feasibility, plan
from twin.planning.feasibility import CODES, RULES, Rule, microbatches
from twin.planning.model_rules import every_second_product_is_known, fully_shard_shards_parameters
from twin.scenario import Scenario
from twin.spec.memory import MemorySpec

OF_THE_TURN: Final[tuple[Rule, ...]] = (
    feasibility.every_stage_has_a_layer,
    feasibility.schedule_can_run,
    feasibility.whole_order_can_be_played,
)
"""Rules of micro-batches, schedule, stages and chunks."""
OF_ZERO: Final[tuple[Rule, ...]] = (
    feasibility.kept_parameters_serve_one_microbatch,
    feasibility.copies_reduce_at_the_end,
)
OF_MEMORY: Final[tuple[Rule, ...]] = (every_second_product_is_known, fully_shard_shards_parameters)
OF_THE_BATCH: Final[tuple[Rule, ...]] = (feasibility.microbatches_are_whole,)
OF_THE_GRID: Final[tuple[Rule, ...]] = tuple(
    rule for rule in RULES if rule not in (*OF_THE_TURN, *OF_ZERO, *OF_MEMORY, *OF_THE_BATCH)
)
"""All others: what the degrees of the rank grid, the model and the cluster decide."""
MEMORY: Final = "memory"
TIME: Final = "too_slow"
FAILED: Final = "failed"
"""Reasons beside the codes of rules."""
WORDS: Final = {
    MEMORY: "does not fit in memory",
    TIME: "cannot meet the deadline",
    FAILED: "not judged: a bug in the twin",
}


MOST_WAITING: Final = 2000
"""Candidates of a size that are kept beyond those listed: OURS, some hundred kilobytes."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A layout that no bound speaks against."""

    layout: ParallelLayout
    least_ns: float
    """No step of it is shorter."""
    least_bytes: float
    """The fullest GPU holds no less."""


Waiting: TypeAlias = tuple[float, int, bool, Candidate]
"""A bound in nanoseconds, a number that orders equals, whether the bound is tight, the layout."""


@dataclass(slots=True)
class JudgedSpace:
    """What became of a space."""

    examined: int = 0
    pruned: Counter[str] = field(default_factory=Counter[str])
    """By code of a rule, or reason."""
    candidates: list[Candidate] = field(default_factory=list[Candidate])
    waiting: list[Waiting] = field(default_factory=list[Waiting])
    """A heap of candidates that are not listed yet, none of which has a lower bound."""
    left_out: int = 0
    """Candidates beyond those that wait."""
    floor: float = inf
    """The least bound of those (nanoseconds)."""

    @property
    def unlisted(self) -> int:
        """Candidates that are not listed."""
        return len(self.waiting) + self.left_out


@dataclass(slots=True)
class Judge:
    """Judges layouts around one scenario; what they share is worked out once."""

    space: Space
    slowest_ns: float = inf
    """The longest step that is of interest."""
    found: JudgedSpace = field(default_factory=JudgedSpace)
    _known: Memo = field(default_factory=Memo)

    @property
    def scenario(self) -> Scenario:
        """What all layouts share."""
        return self.space.scenario

    def all(self) -> Iterator[JudgedSpace]:
        """Judge the whole space; gives what is known so far after every grid."""
        for grid in self.space.grids():
            self.grid(grid)
            yield self.found

    def grid(self, grid: Grid) -> None:
        """Judge all layouts of one rank grid."""
        space, below = self.space, self.space.below(grid.pipeline)
        self.found.examined += below
        turns, zeros = space.turns(grid.pipeline), space.zeros(grid.pipeline)
        first = space.layout(grid, turns[0], zeros[0], space.memory[0])
        if broken := _first(OF_THE_GRID, first.applied(self.scenario)):
            self.found.pruned[broken] += below
            return
        for turn in turns:
            self._turn(grid, turn, zeros)

    def _turn(self, grid: Grid, turn: Turn, zeros: Sequence[int]) -> None:
        """Judge all layouts of one micro-batch and schedule."""
        space = self.space
        scenario = space.layout(grid, turn, zeros[0], space.memory[0]).applied(self.scenario)
        broken = _first(OF_THE_BATCH, scenario)
        count = 0 if broken else microbatches(scenario)
        key = grid.pipeline, turn.schedule, turn.virtual, count
        if broken := broken or self._known.once(
            lambda: _first(OF_THE_TURN, scenario), "turn", *key
        ):
            self.found.pruned[broken] += len(zeros) * len(space.memory)
            return
        for zero in zeros:
            layout = space.layout(grid, turn, zero, space.memory[0])
            if broken := self._zero(layout, key):
                self.found.pruned[broken] += len(space.memory)
                continue
            leaves = (self._leaf(replace(layout, memory=one), count) for one in space.memory)
            self.found.pruned.update(reason for reason in leaves if reason is not None)

    def _zero(self, layout: ParallelLayout, key: tuple[object, ...]) -> str | None:
        """Why no memory policy makes a ZeRO stage possible; None where one may. Too large is what
        does not fit even if the states were cut evenly over the stages."""
        scenario = layout.applied(self.scenario)
        if broken := self._known.once(lambda: _first(OF_ZERO, scenario), "zero", layout.zero, *key):
            return broken
        held = self._held(layout, scenario)
        total = sum(float(held[layer.index]) for layer in self._times(layout, scenario).stack)
        copies = layout.schedule.chunk_map(layout.pipeline, 1).copies
        return MEMORY if total * copies > self._budget * layout.pipeline else None

    def _leaf(self, layout: ParallelLayout, count: int) -> str | None:
        """Judge one layout: why it is pruned, or None for a candidate."""
        scenario = layout.applied(self.scenario)
        if broken := _first(OF_MEMORY, scenario):
            return broken
        bound = self.bound(layout, scenario)
        kept = bound.kept
        if not layout.memory.activations_on_host:
            kept = self._known.once(
                lambda: waiting(bound, layout.schedule, count), id(bound), count
            )
        least_bytes = float((bound.holds @ self._held(layout, scenario) + kept).max())
        if least_bytes > self._budget:
            return MEMORY
        least_ns = bound.nanoseconds(count // bound.chunk_map.copies)
        if least_ns > self.slowest_ns:
            return TIME
        self.found.candidates.append(Candidate(layout, least_ns, least_bytes))
        return None

    @property
    def _budget(self) -> float:
        gpu = self.scenario.cluster.node.gpu
        return gpu.memory - sum(entry.bytes for entry in gpu.reserve)

    def bound(
        self, layout: ParallelLayout, scenario: Scenario, *, tight: bool = False
    ) -> TimeBound:
        """The bound of a layout, for any number of micro-batches."""
        cut, stages, schedule = _cut(layout), layout.pipeline, layout.schedule
        times = self._times(layout, scenario)

        def made() -> TimeBound:
            chunks = schedule.chunk_map(stages, layout.virtual)
            shape, mirrored = (stages, chunks.parts // stages), chunks.copies > 1
            key = "parts", *cut, *shape, mirrored
            model = self._known.once(lambda: parts(times, shape, mirrored=mirrored), *key)
            return time_bound(times, model, (schedule, stages), tight=tight)

        return self._known.once(made, "bound", *cut, stages, layout.virtual, schedule, tight)

    def refined(self, candidate: Candidate) -> Candidate:
        """The candidate with its tight bound."""
        layout = candidate.layout
        scenario = layout.applied(self.scenario)
        bound = self.bound(layout, scenario, tight=layout.schedule.pairs)
        least_ns = bound.nanoseconds(microbatches(scenario) // bound.chunk_map.copies)
        return replace(candidate, least_ns=least_ns)

    def shortlist(self, most: int) -> None:
        """List the candidates with the least bounds, as `extend` does."""
        found = self.found
        queue = [(one.least_ns, n, False, one) for n, one in enumerate(found.candidates)]
        heapify(queue)
        found.candidates, found.waiting = [], queue
        self.extend(most)
        if len(queue) > MOST_WAITING:
            queue.sort()
            found.left_out, found.floor = len(queue) - MOST_WAITING, queue[MOST_WAITING][0]
            found.waiting = queue[:MOST_WAITING]

    def extend(self, most: int) -> None:
        """List more candidates whose plan fits, in the order of their tight bounds, until there are
        so many, and one more, which says what the rest could do at best. Those that are found too
        large or too slow are pruned."""
        found = self.found
        queue = found.waiting
        while queue and len(found.candidates) <= most and queue[0][0] <= found.floor:
            _, number, tight, candidate = heappop(queue)
            if not tight:
                candidate = self.refined(candidate)
                heappush(queue, (candidate.least_ns, number, True, candidate))
            elif candidate.least_ns > self.slowest_ns:
                found.pruned[TIME] += 1
            elif reason := self._unplanned(candidate):
                found.pruned[reason] += 1
            else:
                found.candidates.append(candidate)

    def _unplanned(self, candidate: Candidate) -> str | None:
        """Why a candidate's plan is none that fits; None where it is one."""
        try:
            fits = plan(candidate.layout.applied(self.scenario)).memory.fits
        except ScenarioError as error:
            return error.problems[0].code
        except Exception:  # noqa: BLE001  a bug costs its layout, and is told there
            return FAILED
        return None if fits else MEMORY

    def _times(self, layout: ParallelLayout, scenario: Scenario) -> ModelTimes:
        """The least times of the layers, as the layout cuts them."""
        return self._known.once(lambda: model_times(scenario), "times", *_cut(layout))

    def _held(self, layout: ParallelLayout, scenario: Scenario) -> Numbers:
        """Bytes that are held for the whole step, by kind of layer."""
        return self._known.once(
            lambda: states_bytes(scenario, self._times(layout, scenario)),
            *("held", layout.nodes, layout.pipeline, layout.tensor, layout.context),
            *(layout.expert, layout.expert_tensor, layout.zero, layout.memory.states_on_host),
            layout.schedule.chunk_map(layout.pipeline, layout.virtual).copies,
        )


def _cut(layout: ParallelLayout) -> tuple[object, ...]:
    """What the least times of a layout's layers depend on, and their weights, by which they are
    balanced: pairs hide exchanges. From ZeRO-2 on passes reduce or gather over all replicas."""
    memory: MemorySpec = layout.memory
    wide = (layout.zero, layout.nodes, layout.pipeline) if layout.zero >= 2 else ()
    return (
        *(layout.tensor, layout.context, layout.expert, layout.expert_tensor),
        *(layout.micro_batch, memory.recompute, memory.fp8_store, memory.fully_shard),
        *(layout.schedule.pairs, *wide),
    )


def _first(rules: tuple[Rule, ...], scenario: Scenario) -> str | None:
    """The code of the first problem that these rules find."""
    return next((problem.code for rule in rules for problem in rule(scenario)), None)


def words(reason: str) -> str:
    """What a reason for pruning means."""
    return CODES.get(reason) or WORDS[reason]
