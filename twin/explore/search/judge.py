"""Every layout of a space, judged before anything is planned: by the rules of layouts, by the least
memory, and by the least time.

The space is walked as a tree, and what no layout below a branch can mend prunes the branch: the
rank grid (is it whole, does it divide the model), then micro-batches and schedule, then ZeRO and
the memory policy. A layout counts as examined wherever it is pruned. The rules are those of
`twin.planning.feasibility`, each asked once per combination of what it depends on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final

from twin.errors import ScenarioError
from twin.explore.search.course import Course, Numbers, course, parts
from twin.explore.search.layout import Layout
from twin.explore.search.paces import Paces, Part, paces
from twin.explore.search.room import standing, waiting
from twin.explore.search.space import Grid, Space, Turn
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
    MEMORY: "does not fit: what stands and what waits at least, or the plan's ledger",
    TIME: "slower than asked for even at the bound",
    FAILED: "not judged: a bug in twin",
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A layout that no bound speaks against."""

    layout: Layout
    least_ns: float
    """No step of it is shorter."""
    least_bytes: float
    """The fullest GPU holds no less."""


@dataclass(slots=True)
class Judged:
    """What became of a space."""

    examined: int = 0
    pruned: Counter[str] = field(default_factory=Counter[str])
    """By code of a rule, or reason."""
    candidates: list[Candidate] = field(default_factory=list[Candidate])
    left_out: int = 0
    """Candidates that are not listed, none of which has a lower bound."""


@dataclass(slots=True)
class Judge:
    """Judges layouts around one scenario; what they share is worked out once."""

    space: Space
    slowest_ns: float = inf
    """The longest step that is of interest."""
    found: Judged = field(default_factory=Judged)
    _paces: dict[object, Paces] = field(default_factory=dict[object, Paces])
    _parts: dict[object, tuple[Part, ...]] = field(default_factory=dict[object, tuple[Part, ...]])
    _courses: dict[object, Course] = field(default_factory=dict[object, Course])
    _standing: dict[object, Numbers] = field(default_factory=dict[object, Numbers])
    _waiting: dict[object, Numbers] = field(default_factory=dict[object, Numbers])
    _verdicts: dict[object, str | None] = field(default_factory=dict[object, str | None])

    @property
    def scenario(self) -> Scenario:
        """What all layouts share."""
        return self.space.scenario

    def all(self) -> Iterator[Judged]:
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
        scenario = first.applied(self.scenario)
        if broken := _first(OF_THE_GRID, scenario):
            self.found.pruned[broken] += below
            return
        per_turn = len(zeros) * len(space.memory)
        for turn in turns:
            layout = space.layout(grid, turn, zeros[0], space.memory[0])
            scenario = layout.applied(self.scenario)
            broken = _first(OF_THE_BATCH, scenario) or self._of_turn(scenario, grid, turn)
            if broken:
                self.found.pruned[broken] += per_turn
                continue
            for zero in zeros:
                self._zero(grid, turn, zero)

    def _of_turn(self, scenario: Scenario, grid: Grid, turn: Turn) -> str | None:
        key = grid.pipeline, turn.schedule, turn.virtual, microbatches(scenario)
        if key not in self._verdicts:
            self._verdicts[key] = _first(OF_THE_TURN, scenario)
        return self._verdicts[key]

    def _zero(self, grid: Grid, turn: Turn, zero: int) -> None:
        """Judge the memory policies of one choice of ZeRO."""
        space = self.space
        layout = space.layout(grid, turn, zero, space.memory[0])
        scenario = layout.applied(self.scenario)
        count = microbatches(scenario)
        key = grid.pipeline, turn.schedule, turn.virtual, count, zero, "zero"
        if key not in self._verdicts:
            self._verdicts[key] = _first(OF_ZERO, scenario)
        if broken := self._verdicts[key]:
            self.found.pruned[broken] += len(space.memory)
            return
        if self._is_too_large(layout, scenario):
            self.found.pruned[MEMORY] += len(space.memory)
            return
        for memory in space.memory:
            layout = space.layout(grid, turn, zero, memory)
            reason = self._leaf(layout, count)
            if reason is not None:
                self.found.pruned[reason] += 1

    def _is_too_large(self, layout: Layout, scenario: Scenario) -> bool:
        """Whether what stands for the whole step is too much even if it were cut evenly over the
        stages."""
        found = self.paces(layout, scenario)
        held = self._held(layout, scenario)
        total = sum(float(held[pace.index]) for pace in found.stack)
        return total * layout.schedule.chunk_map(layout.pipeline, 1).copies > (
            self._budget * layout.pipeline
        )

    def _leaf(self, layout: Layout, count: int) -> str | None:
        """Judge one layout: why it is pruned, or None for a candidate."""
        scenario = layout.applied(self.scenario)
        if broken := _first(OF_MEMORY, scenario):
            return broken
        cut = self.course(layout, scenario)
        held = cut.holds @ self._held(layout, scenario)
        if "activations" not in layout.memory.offload:
            held = held + self._waits(layout, cut, count)
        else:
            held = held + cut.kept
        least_bytes = float(held.max())
        if least_bytes > self._budget:
            return MEMORY
        least_ns = cut.nanoseconds(count // cut.chunk_map.copies)
        if least_ns > self.slowest_ns:
            return TIME
        self.found.candidates.append(Candidate(layout, least_ns, least_bytes))
        return None

    @property
    def _budget(self) -> float:
        gpu = self.scenario.cluster.node.gpu
        return gpu.memory - sum(entry.bytes for entry in gpu.reserve)

    def course(self, layout: Layout, scenario: Scenario, *, tight: bool = False) -> Course:
        """The bound of a layout, for any number of micro-batches."""
        cut = (*_cut(layout), layout.pipeline, layout.virtual)
        key = (*cut, layout.schedule, tight)
        if key not in self._courses:
            found, stages = self.paces(layout, scenario), layout.pipeline
            per_stage = layout.schedule.chunk_map(stages, layout.virtual).parts // stages
            if cut not in self._parts:
                self._parts[cut] = parts(found, (stages, per_stage))
            pipeline = layout.schedule, stages
            self._courses[key] = course(found, self._parts[cut], pipeline, tight=tight)
        return self._courses[key]

    def refined(self, candidate: Candidate) -> Candidate:
        """The candidate with its tight bound."""
        layout = candidate.layout
        scenario = layout.applied(self.scenario)
        cut = self.course(layout, scenario, tight=layout.schedule.pairs)
        least_ns = cut.nanoseconds(microbatches(scenario) // cut.chunk_map.copies)
        return replace(candidate, least_ns=least_ns)

    def best(self, most: int) -> list[Candidate]:
        """Of the candidates whose plan fits those with the least tight bounds, in order; so many,
        and one more, which says what the rest could do at best. Those that are found too large are
        pruned."""
        queue = [(one.least_ns, n, False) for n, one in enumerate(self.found.candidates)]
        heapify(queue)
        kept: dict[int, Candidate] = {}
        found: list[Candidate] = []
        while queue and len(found) <= most:
            _, number, tight = heappop(queue)
            if not tight:
                kept[number] = self.refined(self.found.candidates[number])
                heappush(queue, (kept[number].least_ns, number, True))
            elif kept[number].least_ns > self.slowest_ns:
                self.found.pruned[TIME] += 1
            elif reason := self._unplanned(kept[number]):
                self.found.pruned[reason] += 1
            else:
                found.append(kept[number])
        self.found.left_out = len(queue)
        return found

    def _unplanned(self, candidate: Candidate) -> str | None:
        """Why a candidate's plan is none that fits; None where it is one."""
        try:
            fits = plan(candidate.layout.applied(self.scenario)).memory.fits
        except ScenarioError as error:
            return error.problems[0].code
        except Exception:  # noqa: BLE001  a bug costs its layout, and is told there
            return FAILED
        return None if fits else MEMORY

    def paces(self, layout: Layout, scenario: Scenario) -> Paces:
        """What the layers cost, as the layout cuts them."""
        cut = _cut(layout)
        if cut not in self._paces:
            self._paces[cut] = paces(scenario)
        return self._paces[cut]

    def _held(self, layout: Layout, scenario: Scenario) -> Numbers:
        """What stands for the whole step, by kind of layer."""
        key = (
            *(layout.nodes, layout.pipeline, layout.tensor, layout.context, layout.expert),
            *(layout.expert_tensor, layout.zero, layout.memory.states_on_host),
            *(layout.schedule.chunk_map(layout.pipeline, layout.virtual).copies,),
        )
        if key not in self._standing:
            self._standing[key] = standing(scenario, self.paces(layout, scenario))
        return self._standing[key]

    def _waits(self, layout: Layout, cut: Course, count: int) -> Numbers:
        """What waits for the backward on the device."""
        key = id(cut), count
        if key not in self._waiting:
            self._waiting[key] = waiting(cut, layout.schedule, count)
        return self._waiting[key]


def _cut(layout: Layout) -> tuple[object, ...]:
    """What the paces of a layout's layers depend on. From ZeRO-2 on passes reduce or gather over
    all replicas."""
    memory: MemorySpec = layout.memory
    wide = (layout.zero, layout.nodes, layout.pipeline) if layout.zero >= 2 else ()
    return (
        *(layout.tensor, layout.context, layout.expert, layout.expert_tensor),
        *(layout.micro_batch, memory.recompute, memory.fp8_store, memory.fully_shard),
        *wide,
    )


def _first(rules: tuple[Rule, ...], scenario: Scenario) -> str | None:
    """The code of the first problem that these rules find."""
    return next((problem.code for rule in rules for problem in rule(scenario)), None)


def words(reason: str) -> str:
    """What a reason for pruning means."""
    return CODES.get(reason) or WORDS[reason]
