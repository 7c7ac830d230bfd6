"""Every layout of a space, judged before anything is planned: by the rules of layouts, by the least
memory, and by the least time.

The space is walked as a tree, and what no layout below a branch can mend prunes the branch: the
rank grid (is it whole, does it divide the model), then micro-batches and schedule, then ZeRO and
the memory policy. A layout counts as examined wherever it is pruned. The rules are those of
`twin.planning.feasibility`, each asked once per combination of what it depends on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from twin.explore.search.bounds import Memo, backwards, closing, step_bound
from twin.explore.search.least_times import WAYS, LayerTimes, model_times
from twin.explore.search.room import Held, held_bytes, rooms, waiting
from twin.explore.search.space import Grid, ParallelLayout, Space, Turn
from twin.planning import feasibility
from twin.planning.feasibility import CODES, RULES, Rule, microbatches
from twin.planning.model_rules import every_second_product_is_known, fully_shard_shards_parameters
from twin.scenario import Scenario
from twin.schedules.base import Pass

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
"""Reasons beside the codes of rules."""
WORDS: Final = {
    MEMORY: "does not fit in memory",
    TIME: "cannot meet the deadline",
}


FILLED: Final = 0.92
"""OURS: share of the memory beyond which weights, states and activations leave too little for
working sets and buffers, as it seems; it only orders candidates."""
TIGHT: Final = 1.1
"""OURS: by how much a layout has to be faster to be tried before one that seems to have room. Of
eight spaces that were searched to the end, the best of 3 seemed not to."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A layout that no bound speaks against."""

    layout: ParallelLayout
    least_ns: float
    """No step of it is shorter."""
    guess_ns: float
    """About the step of a split that fills stages evenly, as far as they have room."""
    likely: bool
    """Whether a split seems to fit in memory."""

    @property
    def order(self) -> float:
        """Less is more promising."""
        return self.guess_ns * (1 if self.likely else TIGHT)


@dataclass(slots=True)
class JudgedSpace:
    """What became of a space."""

    examined: int = 0
    pruned: Counter[str] = field(default_factory=Counter[str])
    """By code of a rule, or reason."""
    candidates: list[Candidate] = field(default_factory=list[Candidate])
    """Those that promise most, the best first."""
    unlisted: int = 0
    """Candidates beyond those."""
    floor: float = inf
    """The least bound of those (nanoseconds)."""

    def __add__(self, other: JudgedSpace) -> JudgedSpace:
        """What became of both."""
        return JudgedSpace(
            self.examined + other.examined,
            self.pruned + other.pruned,
            sorted((*self.candidates, *other.candidates), key=lambda one: one.order),
            self.unlisted + other.unlisted,
            min(self.floor, other.floor),
        )

    def shorten(self, most: int) -> None:
        """Keep so many of the candidates, those that promise most."""
        left = self.candidates[most:]
        self.unlisted += len(left)
        self.floor = min(self.floor, *(one.least_ns for one in left), inf)
        del self.candidates[most:]


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

    def all(self) -> JudgedSpace:
        """Judge the whole space."""
        for grid in self.space.grids():
            self.grid(grid)
        self.found.candidates.sort(key=lambda one: one.order)
        return self.found

    def grid(self, grid: Grid) -> None:
        """Judge all layouts of one rank grid."""
        space, below = self.space, self.space.below(grid.pipeline)
        self.found.examined += below
        turns, zeros = space.turns(grid.pipeline), space.zeros(grid.pipeline)
        first = space.layout(grid, turns[0], zeros[0], space.memory[0])
        if broken := _first(OF_THE_GRID, first.applied(self.scenario)):
            self.found.pruned[broken] += below
            return
        known = Memo()
        for turn in turns:
            self._turn(grid, turn, zeros, known)

    def _turn(self, grid: Grid, turn: Turn, zeros: Sequence[int], known: Memo) -> None:
        """Judge all layouts of one micro-batch and schedule; what is `known` of the grid's other
        ones is asked once per size of the micro-batch."""
        space = self.space

        def applied() -> Scenario:
            return space.layout(grid, turn, zeros[0], space.memory[0]).applied(self.scenario)

        def batches() -> tuple[str | None, int]:
            broken = _first(OF_THE_BATCH, scenario := applied())
            return broken, 0 if broken else microbatches(scenario)

        broken, count = known.once(batches, turn.micro_batch)
        # Schedules and policies are the space's own objects: their identity is quicker to compare.
        key = grid.pipeline, id(turn.schedule), turn.virtual, count
        if broken := broken or self._known.once(
            lambda: _first(OF_THE_TURN, applied()), "turn", *key
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

        def broken() -> str | None:
            return _first(OF_ZERO, layout.applied(self.scenario))

        if found := self._known.once(broken, "zero", layout.zero, *key):
            return found
        total = sum(own.count * own.each for own in self._held(layout))
        return MEMORY if self._copies(layout) * total > self._budget * layout.pipeline else None

    def _leaf(self, layout: ParallelLayout, count: int) -> str | None:
        """Judge one layout: why it is pruned, or None for a candidate."""
        memory, shape = layout.memory, (layout.pipeline, layout.virtual)
        if broken := self._known.once(
            lambda: _first(OF_MEMORY, layout.applied(self.scenario)), id(memory), layout.zero
        ):
            return broken
        away, schedule = bool(memory.activations_on_host), layout.schedule
        waits = self._known.once(
            lambda: waiting(schedule, shape, count, away=away),
            *("waits", id(schedule), *shape, count, away),
        )
        kinds = backwards(schedule, shape, count)
        times, copies = self._times(layout, kinds), self._copies(layout)
        held = self._held(layout)
        found = rooms(times, held, waits, self._budget) if copies == 1 else ()
        if found is None:
            return MEMORY
        least, guess = self._known.once(
            lambda: [
                step_bound(times, schedule, shape, kinds, evenly=one) for one in (False, True)
            ],
            *("bound", id(times), id(schedule), *shape, kinds),
        )
        closes, reduces = self._closing(layout)
        least_ns = least.nanoseconds(count // copies, found)
        # Stages of a staggered step do not wait for each other's norms.
        least_ns += 0.0 if schedule.staggered else closes
        if least_ns > self.slowest_ns:
            return TIME
        usual = rooms(times, held, waits, FILLED * self._budget, copies=copies, usual=True)
        guess_ns = guess.nanoseconds(count // copies, usual or ())
        # The last chunk's reductions have no passes beside them.
        guess_ns += closes + reduces / layout.virtual
        self.found.candidates.append(Candidate(layout, least_ns, guess_ns, usual is not None))
        return None

    @property
    def _budget(self) -> float:
        gpu = self.scenario.cluster.node.gpu
        return gpu.memory - sum(entry.bytes for entry in gpu.reserve)

    def _copies(self, layout: ParallelLayout) -> int:
        schedule, shape = layout.schedule, (layout.pipeline, layout.virtual)
        return self._known.once(
            lambda: schedule.chunk_map(*shape).copies, "copies", id(schedule), *shape
        )

    def _times(self, layout: ParallelLayout, kinds: Sequence[Pass]) -> tuple[LayerTimes, ...]:
        """The least times of the layers, as the layout cuts them, with these kinds of backward
        passes: from ZeRO-2 on passes reduce or gather over all replicas."""
        pairs = layout.schedule.pairs
        if layout.pipeline > 1:
            # All schedules of a pipeline share them.
            kinds, pairs = tuple(WAYS), True
        wide = (layout.zero, layout.nodes, layout.pipeline) if layout.zero >= 2 else ()
        if self.scenario.train.routing.kind != "balanced":
            # What experts keep depends on how many layers of them a rank has.
            wide = (*wide, layout.pipeline, self._copies(layout))
        return self._known.once(
            lambda: model_times(layout.applied(self.scenario), kinds, pairs=pairs),
            *("times", layout.tensor, layout.context, layout.expert, layout.expert_tensor),
            *(layout.micro_batch, id(layout.memory), *wide, kinds, pairs),
        )

    def _closing(self, layout: ParallelLayout) -> tuple[float, float]:
        """How long its steps close at least, and reduce before that (ns)."""
        return self._known.once(
            lambda: closing(layout.applied(self.scenario)),
            *("closing", layout.nodes, layout.pipeline, layout.tensor, layout.context),
            *(layout.expert, layout.expert_tensor, layout.zero, layout.memory.states_on_host),
            self._copies(layout),
        )

    def _held(self, layout: ParallelLayout) -> tuple[Held, ...]:
        """Bytes that are held for the whole step, by kind of layer."""
        return self._known.once(
            lambda: held_bytes(layout.applied(self.scenario)),
            *("held", layout.nodes, layout.pipeline, layout.tensor, layout.context),
            *(layout.expert, layout.expert_tensor, layout.zero, layout.memory.states_on_host),
            self._copies(layout),
        )


def _first(rules: tuple[Rule, ...], scenario: Scenario) -> str | None:
    """The code of the first problem that these rules find."""
    return next((problem.code for rule in rules for problem in rule(scenario)), None)


def words(reason: str) -> str:
    """What a reason for pruning means."""
    return CODES.get(reason) or WORDS[reason]
