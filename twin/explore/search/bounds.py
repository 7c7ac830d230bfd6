"""The least time of a layout, however its layers are split, before it is planned: bounds for a
search.

Of a stage, let A be the time before its first forward can begin (forwards of the layers before it),
R its micro-batches per chunk, T the least time of one micro-batch through all its layers, forward
and backward, D the same without weight gradients that are put off, and Z the backwards that still
have to run before it when its own last one has ended. A step then takes at least

    max over stages of max(A + R T, A + R D + Z)

since a stage's kernels run one after the other, and so do a stream's transfers, which T is no less
than. Nobody knows the split here, so two stages are looked at that every split has:

- the mean one: T and D are at least the model's over the stages. Stages begin one after the other,
  each behind one layer more, so A and Z are at least those of half the other stages' layers;
- a full one: some stage holds L / p layers, rounded up, and where many do, the last of them is
  behind the others.

With equal stages of one chunk this is (m + p - 1)(F + B) for 1F1B (Narayanan et al. 2021, section
2.2.1), which 1F1B then takes. Where a schedule runs forwards in pairs with backwards, T counts the
kernels of both.

A stage has `Room` for so many layers, so few stages cannot hold them all. Where a stage has one
chunk, A is the time of all layers before it. Then S, the work of the first i stages, obeys

    S_i <= S_i-1 + min(room_i T, (X - q S_i-1) / R)

for a step X, q the part of its work that a layer delays those behind it by. The least X for which
the last S is all work is a bound (`StepBound.nanoseconds`).

Then it closes: when all ranks have agreed on the gradient norm, the stage with most layers updates
and gathers, as the engine has it (`closing`). Messages between stages, copies to the host,
reductions, and what shares links, or SMs with other than exchanges of experts, are left out: they
add time. `twin.explore.search.least_times` says what one layer costs at least.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf, sqrt
from typing import Any, Final, TypeVar

from twin.arch.ops import BLOCKS, Weights
from twin.engine.closing import closed, closing_ns
from twin.explore.search.least_times import (
    BEHIND,
    COPIES,
    WAYS,
    LayerTimes,
    idle_costs,
    kinds_of,
    unplanned,
)
from twin.explore.search.room import Room, fullest, needed
from twin.planning.types import Chunk
from twin.planning.walk import enough_microbatches
from twin.scenario import Scenario
from twin.schedules.base import Pass, Schedule

T = TypeVar("T")

EXACT: Final = 1e-4
"""OURS: part of a bound to which it is worked out."""


class Memo(dict[object, Any]):
    """Results by what they depend on."""

    def once(self, make: Callable[[], T], *key: object) -> T:
        """What `make` gives for this key, made once."""
        if key not in self:
            self[key] = make()
        return self[key]


@dataclass(frozen=True, slots=True, eq=False)
class StepBound:
    """The least step of one way to cut a layer, over a pipeline, for any number of micro-batches
    (ns)."""

    stages: int
    mean: float
    """T of the whole model, over the stages."""
    work: tuple[float, float]
    """T and D of all transformer layers."""
    full: tuple[float, float]
    """T and D of a stage with the most layers that one stage must have."""
    more: float
    """T of one layer more."""
    ahead: tuple[float, float]
    """A, and A + Z, of the last of the full stages."""
    each: tuple[float, float]
    """A, and A + Z, of one layer; 0 where stages begin with copies of each other."""
    layers: int
    """Transformer layers."""
    one: float
    """T of the shortest of them, of an even split the longest."""
    evenly: bool
    heaviest: tuple[float, float]
    """T and D of the longest transformer layer."""
    delays: tuple[float, float]
    """The least part of its T that a layer adds to A, and of its D to A + Z; 0 where stages have
    more than one chunk."""
    busy: float
    """The busiest stream of transfers of a stage."""

    def nanoseconds(self, runs: int, rooms: Sequence[Room] = ()) -> float:
        """The least step of so many micro-batches per chunk, where stages have that room; none:
        for all layers."""
        full = max(runs * own + ahead for own, ahead in zip(self.full, self.ahead, strict=True))
        full = min(full, runs * (self.full[0] + self.more))
        crowded = runs * self.one * fullest(rooms, self.layers) if rooms else 0.0
        filled = needed(rooms, self.layers)
        means = (
            self._mean(runs * own, ahead, filled)
            for own, ahead in zip(self.work, self.each, strict=True)
        )
        stages = rooms or (Room(self.stages, self.layers),)
        ordered = (self._in_order(n, runs, stages) for n in (0, 1) if self.delays[n] > 0)
        crowded += self.ahead[1] if self.evenly else 0.0
        return max(full, crowded, *means, *ordered, runs * self.mean, runs * self.busy)

    def _mean(self, work: float, each: float, filled: int) -> float:
        """Of the stages that hold a transformer layer, so many as give the least."""
        best = sqrt(2 * work / each) if each else inf
        count = min(float(self.stages), max(filled, best))
        return work / count + each * (count - 1) / 2

    def _in_order(self, kind: int, runs: int, rooms: Sequence[Room]) -> float:
        """The least step in which stages of one chunk could do all work, each behind those before
        it."""
        work, delay = self.work[kind], self.delays[kind]
        low, high = runs * work / self.stages, (runs + delay) * work
        while high - low > EXACT * high:
            step = (low + high) / 2
            if self._done(kind, step, runs, rooms) < work:
                low = step
            else:
                high = step
        return low

    def _done(self, kind: int, step: float, runs: int, rooms: Sequence[Room]) -> float:
        """Work that stages do in a step of this length at most."""
        delay, done = self.delays[kind], 0.0
        for room in rooms:
            most = room.layers * self.heaviest[kind]
            # So many are full, before what is left of the step holds the others back.
            spare = step - runs * most - delay * done
            fills = int(spare / (delay * most)) + 1 if spare >= 0 < most else 0
            full = min(room.stages, fills) if most else room.stages
            done += full * most
            limit = step / delay
            done = limit - (limit - done) * (1 - delay / runs) ** (room.stages - full)
        return done


def step_bound(
    model: Sequence[LayerTimes],
    schedule: Schedule,
    shape: tuple[int, int],
    kinds: Sequence[Pass],
    *,
    evenly: bool = False,
) -> StepBound:
    """The bound of a model for a schedule's `shape`, stages and chunks on each, with these `kinds`
    of backward passes; `evenly` that of an even split whose pairs last as long as one layer's: no
    bound, but nearer to a step."""
    stages, virtual = shape
    copies = schedule.chunk_map(stages, virtual).copies
    pairs = "no" if not schedule.pairs else "ordered" if evenly else "kernels"
    turns = [layer.turns(kinds, pairs) for layer in model]
    total = copies * sum(one[0] * of.count for one, of in zip(turns, model, strict=True))
    blocks = [(one, of) for one, of in zip(turns, model, strict=True) if of.layer.kind in BLOCKS]
    layers = copies * sum(of.count for _, of in blocks)
    full = -(-layers // stages)
    held = [_lightest([(one[n], copies * of.count) for one, of in blocks], full) for n in (0, 1)]
    work = [copies * sum(one[n] * of.count for one, of in blocks) for n in (0, 1)]
    most = layers - stages * (full - 1)
    lead = min(of.passes["F"].alone for _, of in blocks), min(one[2] for one, _ in blocks)
    # Stages begin with copies of each other.
    first, both = lead if copies == 1 else (0.0, 0.0)
    before = (most - 1) * (full if virtual == 1 else 1)
    if evenly:
        # Rounds wait for the longest chunk: an even one, or the head's.
        behind = [one for one, of in zip(turns, model, strict=True) if of.layer.kind in BEHIND]
        each = -(-layers // (stages * virtual))
        for n in (0, 1):
            longest = max(each * max(one[n] for one, _ in blocks), sum(one[n] for one in behind))
            held[n] = virtual * longest
        before = (stages // copies - 1) * layers / (stages * virtual * copies)
    delays = (0.0, 0.0)
    if copies == virtual == 1 and not evenly:
        starts = ((of.passes["F"].alone, one) for one, of in blocks)
        pairs_of = [(begins / one[0], one[2] / one[1]) for begins, one in starts]
        delays = (min(1.0, *(a for a, _ in pairs_of)), min(1.0, *(b for _, b in pairs_of)))
    busy = min(_busiest(model, WAYS[kind], copied=evenly) for kind in kinds)
    return StepBound(
        stages=stages,
        mean=total / stages,
        work=(work[0], work[1]),
        full=(held[0], held[1]),
        more=inf if evenly else min(one[0] for one, _ in blocks),
        ahead=(before * lead[0], before * lead[1]) if evenly else (before * first, before * both),
        each=(first, both),
        layers=layers,
        one=(max if evenly else min)(one[0] for one, _ in blocks),
        evenly=evenly,
        heaviest=(max(one[0] for one, _ in blocks), max(one[1] for one, _ in blocks)),
        delays=delays,
        busy=copies * busy / stages,
    )


def _busiest(model: Sequence[LayerTimes], passes: Sequence[Pass], *, copied: bool) -> float:
    """Nanoseconds of the busiest stream of transfers in these passes of all layers. A stage whose
    backward follows at once sends nothing away: copies bound no split."""
    busy = defaultdict[int, float](float)
    for layer in model:
        for stream, time in (one for kind in passes for one in layer.passes[kind].busy.items()):
            if copied or stream not in COPIES:
                busy[stream] += layer.count * time
    return max(busy.values(), default=0.0)


def _lightest(weights: Sequence[tuple[float, int]], count: int) -> float:
    """What so many layers take at least, of kinds with a time and a number of layers each."""
    total = 0.0
    for time, there in sorted(weights):
        taken = min(there, count)
        total, count = total + taken * time, count - taken
    return total


def backwards(schedule: Schedule, shape: tuple[int, int], microbatches: int) -> tuple[Pass, ...]:
    """The kinds of backward passes that a schedule runs: whole ones, or of the input only."""
    walked = enough_microbatches(schedule, *shape, microbatches)
    return _backwards(schedule, *shape, walked)  # pyright: ignore[reportArgumentType]


@lru_cache(maxsize=4096)
def _backwards(
    schedule: Schedule, stages: int, virtual: int, microbatches: int
) -> tuple[Pass, ...]:
    first = schedule.stage_order(0, stages, virtual, microbatches)
    last = schedule.stage_order(stages - 1, stages, virtual, microbatches)
    kinds = {one.kind for one in (*first, *last)}
    return tuple(kind for kind in ("B", "I") if kind in kinds)


def closing(scenario: Scenario) -> tuple[float, float]:
    """Nanoseconds in which a step closes behind its passes, on a stage with as many layers of a
    kind as one has to hold, links to itself: from when all ranks have agreed on the gradient norm,
    and before that."""
    plan = unplanned(scenario)
    costs = idle_costs(plan)
    blocks = [one for one in kinds_of(scenario) if one[0].kind in BLOCKS]
    layer, count = max(blocks, key=lambda one: one[1])
    held = -(-count * plan.mesh.copies // plan.mesh.pipeline)
    weights = sum((layer.weights for _ in range(held)), Weights())
    chunk = Chunk(0, 0, (layer,) * held, weights, 0)
    return closing_ns(closed(plan, costs, [chunk])[0], costs.alone)
