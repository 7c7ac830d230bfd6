"""How long a step takes with a split of its layers: a light model of the step, for many splits at
once.

The schedule's order is exact (`twin.planning.turn_levels`), and a step is the longest path through
it. A pass runs its kernels and the exchanges that they wait for. ZeRO-3 gathers each layer beside
the layer before it, so that only the first gather of a pass is waited for. The host thread, copies
and ZeRO's exchanges work a turn or two ahead, and turns wait for them. A host that waits for the
device in a pass cannot work ahead of that pass. A pair lasts as long as its busiest part. A message
takes its time on an idle link. A step opens with the weights that its first stage gathers. It
closes with each stage's reductions, an agreement of all stages, and each stage's update and
gathers.

Left out: links and SMs that several share, the order of blocks within a pass or a pair, and garbage
collections. Times are whole nanoseconds, so that equal is equal on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from twin.planning.layer_times import (
    BESIDE,
    FROM_HOST,
    GATHERED,
    HOST,
    PAIRED,
    PASSES,
    SHARDS,
    STOPS,
    TO_HOST,
    WAITED,
    PassParts,
)
from twin.planning.turn_levels import Lane, Numbers, TurnLevels, turn_levels
from twin.planning.walk import enough_microbatches
from twin.schedules.base import Pass, Schedule

MOST_TURNS: Final = 4096
"""OURS: passes of a step up to which all of it is walked; 3 ms on one core."""
AHEAD: Final[dict[int, int]] = {HOST: 1, SHARDS: 1, TO_HOST: 2, FROM_HOST: 2}
"""Parts that work ahead of kernels, and by how many turns. The host is at most one pass ahead of
the device; copies have the time until the next turn of their kind."""
Policies: TypeAlias = Sequence[int] | Sequence[Sequence[int]]
"""Places of memory policies, by part, for all splits or for each; one for all parts is enough."""
Shape: TypeAlias = tuple[int, int, int]
"""Stages, chunks per stage, micro-batches."""


@dataclass(frozen=True, slots=True)
class LayerCost:
    """Seconds of a layer: of each of `PASSES` by part; and by which it lengthens the two ends of a
    step on its stage."""

    passes: tuple[PassParts, ...]
    opens: float
    """The gather of its weights before the step."""
    reduces: float
    """The reduction of its gradients behind the passes."""
    closes: float
    """Its update, and the gather behind that."""


@dataclass(frozen=True, slots=True)
class StepCosts:
    """What a step is made of, whatever its split."""

    before: LayerCost
    """The embedding."""
    layers: tuple[LayerCost, ...]
    behind: tuple[LayerCost, ...]
    """Prediction modules and the head."""
    message: float
    """Seconds of a message between stages."""
    each_pass: float
    """Seconds of the host for a pass, beside its layers."""
    buckets: tuple[bool, bool]
    """Whether a first stage of one chunk gathers weights and reduces gradients beside passes."""


class StepLength:
    """The light model of a layout's step."""

    def __init__(self, by_policy: Sequence[StepCosts], schedule: Schedule, shape: Shape) -> None:
        """Of a layout that is possible; `by_policy`: its costs under each memory policy that parts
        may have. Policies are told by their place in it."""
        costs = by_policy[0]
        self.stages, _, self.microbatches = shape
        self.staggered, self.buckets = schedule.staggered, costs.buckets
        self.message, self.each_pass = round(costs.message * 1e9), round(costs.each_pass * 1e9)
        self.layers, self.behind = len(costs.layers), len(costs.behind)
        every = (costs.before, *costs.layers, *costs.behind)
        stacks = [(one.before, *one.layers, *one.behind) for one in by_policy]
        times = [_whole([layer.passes for layer in stack]) for stack in stacks]
        self.passes = np.stack(times)
        """By policy, layer, pass and part of a rank."""
        self.total = np.stack([_summed(own) for own in times])
        self.beside_gathers = {
            kind: np.stack([_summed(_with_gathers(own, kind)) for own in times]) for kind in PASSES
        }
        """By pass and policy, of every layer but the last of it."""
        self.ends = _summed(_whole([(one.opens, one.reduces, one.closes) for one in every]))
        self.lengths = _lengths(schedule, shape)
        self.steps = [turn_levels(schedule, *shape[:2], count) for count in self.lengths]
        chunk_map = self.steps[0].chunk_map
        self.part_of, self.stage_of = np.array(chunk_map.part_of), np.array(chunk_map.stage_of)
        self.parts = chunk_map.parts
        self.stages_of_part: dict[int, set[int]] = {}
        for part, stage in zip(chunk_map.part_of, chunk_map.stage_of, strict=True):
            self.stages_of_part.setdefault(part, set()).add(stage)
        self.turns = sum(len(step.kind) for step in self.steps)

    def __call__(self, splits: Sequence[Sequence[int]], policies: Policies = (0,)) -> list[int]:
        """Nanoseconds of a step with each split, whose parts have these policies."""
        passes, ends = self._of_parts(np.array(splits, np.int64), policies)
        lengths = [self._length(step, passes, ends) for step in self.steps]
        if len(lengths) == 1:
            return lengths[0].tolist()
        # The steady state repeats.
        short, long = self.lengths
        more = (lengths[1] - lengths[0]) * (self.microbatches - long) // (long - short)
        return (lengths[1] + more).tolist()

    def layer_weights(self, split: Sequence[int], policies: Sequence[int] = (0,)) -> list[int]:
        """By about how many nanoseconds one layer more on each part lengthens the longest path."""
        step = self.steps[-1]
        passes, ends = self._of_parts(np.array([split], np.int64), policies)
        done = self._done(step, passes)[:, 0]
        closed = done[step.last] + ends[0, self.part_of, 1:].sum(1)
        end = int(closed.argmax())
        counts = step.path(done, int(step.last[end]), self.message).tolist()
        layer = self.passes[:, self.layers]
        busy = np.maximum(layer[..., WAITED] + layer[..., PAIRED], layer[..., list(AHEAD)].max(-1))
        kinds = np.broadcast_to(np.array(policies), self.parts)
        weights = np.zeros(self.parts, np.int64)
        for turn, count in zip(step.kinds, counts, strict=True):
            for kind, chunk in turn:
                part = self.part_of[chunk]
                weights[part] += count * busy[kinds[part], PASSES.index(kind)]
        on_stage = self.part_of[self.stage_of == self.stage_of[end]]
        weights[on_stage] += np.diff(self.ends, axis=0)[self.layers, 1:].sum()
        return weights.tolist()

    def _of_parts(self, splits: Numbers, policies: Policies) -> tuple[Numbers, Numbers]:
        """Of every split and part of the model: nanoseconds by pass and part of a rank, and those
        of its ends."""
        edges = 1 + np.cumsum(np.pad(splits, ((0, 0), (1, 0))), axis=1)
        edges[:, 0], edges[:, -1] = 0, self.passes.shape[1]
        first, end = edges[:, :-1], edges[:, 1:]
        of = np.broadcast_to(np.array(policies, np.int64), splits.shape)
        times = self.total[of, end] - self.total[of, first]
        filled = end > first
        last = np.maximum(end - 1, 0)
        first = np.minimum(first, last)
        for number, kind in enumerate(PASSES):
            clock = self.beside_gathers[kind]
            begin, finish = (first, last) if kind == "F" else (last, first)
            waited = clock[of, last] - clock[of, first]
            waited += self.passes[of, begin, number, GATHERED]
            waited += self.passes[of, finish, number, WAITED]
            times[..., number, WAITED] = waited * filled
        times[..., HOST] += self.each_pass
        return times, self.ends[end] - self.ends[edges[:, :-1]]

    def _length(self, step: TurnLevels, passes: Numbers, ends: Numbers) -> Numbers:
        done = self._done(step, passes)
        return self._closed(done[step.last], self._beside_passes(passes, ends))

    def waits_for_kernels(self, split: Sequence[int], policies: Sequence[int] = (0,)) -> bool:
        """Whether the longest turn of a split lasts as long as its kernels and exchanges."""
        passes, _ = self._of_parts(np.array([split], np.int64), policies)
        durations, lanes = self._turns(self.steps[0], passes)
        return all(own.max() <= durations.max() for own, _ in lanes)

    def _done(self, step: TurnLevels, passes: Numbers) -> Numbers:
        """When every turn ends, by split."""
        durations, lanes = self._turns(step, passes)
        return step.ends(durations, self.message, lanes)

    def _turns(self, step: TurnLevels, passes: Numbers) -> tuple[Numbers, list[Lane]]:
        """Nanoseconds of every kind of turn by split, and what makes some of them longer."""
        turns = [
            [(self.part_of[chunk], PASSES.index(kind)) for kind, chunk in turn]
            for turn in step.kinds
        ]
        busy = np.stack([sum(passes[:, part, kind] for part, kind in turn) for turn in turns])
        alone = np.array([len(turn) == 1 for turn in turns])[:, None]
        waited, hidden = busy[..., WAITED], busy[..., PAIRED]
        durations = np.where(alone, waited + hidden, np.maximum(waited, hidden))
        for part in (BESIDE, STOPS):
            np.maximum(durations, busy[..., part], out=durations)
        away = np.array([step.offloaded[turn[0][1]] for turn in step.kinds])[:, None]
        lanes: list[Lane] = []
        for part, ahead in AHEAD.items():
            own = busy[..., part]
            if part in (TO_HOST, FROM_HOST):
                own = own * away // self.lengths[self.steps.index(step)]
            if (own > durations).any():
                lanes.append((own, ahead))
        return durations, lanes

    def _beside_passes(self, passes: Numbers, ends: Numbers) -> Numbers:
        """The ends of parts, of which a first stage of one chunk gathers and reduces beside its
        passes, bucket by bucket."""
        if len(self.part_of) > self.stages:
            return ends
        ends = ends.copy()
        last = "W" if any(turn[-1][0] == "W" for turn in self.steps[0].kinds) else "B"
        for place, kind in enumerate((PASSES.index("F"), PASSES.index(last))):
            if self.buckets[place]:
                hidden = ends[:, 0, place] - passes[:, 0, kind, WAITED]
                ends[:, 0, place] = np.maximum(hidden, 0)
        return ends

    def _closed(self, done: Numbers, ends: Numbers) -> Numbers:
        """The ends of steps whose chunks have had their last backward at these times."""
        chunks = ends[:, self.part_of].transpose(1, 2, 0)
        reduced = np.zeros((self.stages, done.shape[1]), np.int64)
        opens, closes = np.zeros_like(reduced), np.zeros_like(reduced)
        for chunk in np.argsort(done.max(1), kind="stable").tolist():
            stage = self.stage_of[chunk]
            reduced[stage] = np.maximum(reduced[stage], done[chunk]) + chunks[chunk, 1]
            opens[stage] += chunks[chunk, 0]
            closes[stage] += chunks[chunk, 2]
        reduced += opens[0]
        if self.staggered:
            return (reduced + closes).max(0)
        return reduced.max(0) + closes.max(0)


def _lengths(schedule: Schedule, shape: Shape) -> tuple[int, ...]:
    """Micro-batches that are walked: all, or two lengths that differ by some periods."""
    stages, per_stage, microbatches = shape
    period = schedule.period(*shape)
    if period is None or 2 * stages * per_stage * microbatches <= MOST_TURNS:
        return (microbatches,)
    enough = enough_microbatches(schedule, *shape)
    more = 0 if period >= stages else period * -(-stages // period)
    long = enough + more
    return (long - (more or period), long) if 4 * long < 3 * microbatches else (microbatches,)


def _with_gathers(passes: Numbers, kind: Pass) -> Numbers:
    """Nanoseconds of every layer's kernels, or of the gather beside them if that takes longer: of
    the next layer, in a backward pass of the layer before."""
    own = passes[:, PASSES.index(kind)]
    kernels, gathers = own[:, WAITED], own[:, GATHERED]
    beside = np.zeros_like(gathers)
    if kind == "F":
        beside[:-1] = gathers[1:]
        return np.maximum(kernels, beside)
    # Of a layer and the one behind it, where a pass ends with the first.
    beside[:-1] = np.maximum(kernels[1:], gathers[:-1])
    return beside


def _summed(times: Numbers) -> Numbers:
    return np.concatenate((np.zeros_like(times[:1]), times.cumsum(0)))


def _whole(seconds: Sequence[object]) -> Numbers:
    return np.rint(np.array(seconds) * 1e9).astype(np.int64)
