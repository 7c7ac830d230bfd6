"""How long a step takes with a split of its layers: a light model of the step, for many splits at
once.

The schedule's order is exact (`twin.planning.turn_levels`), and a step is the longest path through
it. A pass runs its kernels and the exchanges that they wait for. ZeRO-3 gathers each layer beside
the layer before it, so that only the first gather of a pass is waited for. ZeRO-2 and 3 reduce each
layer beside the layer behind it; what is left of that at the end of a pass takes half of the links
from the gathers of the next one. The host thread works up to a turn ahead, and turns wait for it; a
host that waits for the device in a pass cannot work ahead of that pass. Copies hold passes up as in
`twin.planning.offload`. Pairs run block by block (`twin.planning.pair_times`), and each pass of one
has its own beginning and end. Messages of a stage leave one after the other; tensor ranks gather
their parts behind the turn before. A step opens with the weights that its first stage gathers. It
closes with each stage's reductions, an agreement of all stages, and each stage's update and
gathers.

Left out: what else shares links, SMs that several share, the order of blocks within a pass, and
garbage collections. Times are whole nanoseconds, so that equal is equal on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from twin.planning.beside_turns import Beside, Copies, Lane, Numbers, Reductions
from twin.planning.layer_times import (
    BESIDE,
    FROM_HOST,
    GATHERED,
    HOST,
    PAIRED,
    PASSES,
    SHARDS,
    SOCKET,
    STOPS,
    TO_HOST,
    WAITED,
    PassParts,
)
from twin.planning.pair_times import Gpu, PairTable, Pieces, Spans
from twin.planning.turn_levels import Lanes, Passes, TurnLevels, turn_levels
from twin.planning.walk import enough_microbatches
from twin.schedules.base import Pass, Schedule

MOST_TURNS: Final = 4096
"""OURS: passes of a step up to which all of it is walked; 3 ms on one core."""
COPIES: Final = (TO_HOST, FROM_HOST, SOCKET)
BUSY: Final = (HOST, *COPIES, SHARDS)
"""Parts that work beside kernels."""
LEFT, HALVED = STOPS + 1, STOPS + 2
"""Parts of a pass beside those of its layers: reductions that are left when it ends; and what the
pass takes longer where reductions take half of the links from all of its gathers."""
Policies: TypeAlias = Sequence[int] | Sequence[Sequence[int]]
"""Places of memory policies, by part, for all splits or for each; one for all parts is enough."""
Split: TypeAlias = tuple[int, ...]
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
    pieces: tuple[Pieces, ...] = ()
    """Of each of `PASSES`, where passes run in pairs."""


@dataclass(frozen=True, slots=True)
class StepCosts:
    """What a step is made of, whatever its split."""

    before: LayerCost
    """The embedding."""
    layers: tuple[LayerCost, ...]
    behind: tuple[LayerCost, ...]
    """Prediction modules and the head."""
    sending: float
    """Seconds in which a message between stages keeps its sender's port busy."""
    message: float
    """Seconds until it is there."""
    gathering: float
    """Seconds in which tensor ranks bring its parts together, behind the turn before."""
    each_pass: float
    """Seconds of the host for a pass, beside its layers."""
    buckets: tuple[bool, bool]
    """Whether a first stage of one chunk gathers weights and reduces gradients beside passes."""
    gpu: Gpu


class _Parts(NamedTuple):
    """Of every split and part of the model: nanoseconds by pass and part of a rank, those of its
    ends, the place of its policy, and its layers, from the first to one past the last."""

    passes: Numbers
    ends: Numbers
    policy: Numbers
    first: Numbers
    end: Numbers

    def span(self, part: int, kind: Pass) -> Spans:
        """What a pass through a part runs."""
        every = self.policy, self.first, self.end
        return Spans(PASSES.index(kind), *(one[:, part] for one in every))


@dataclass(frozen=True, slots=True)
class Observed:
    """What events say of a step with one of the splits: mean nanoseconds of every kind of turn, and
    of a message between stages."""

    turns: Mapping[Passes, float]
    message: float


class _Turns(NamedTuple):
    """By kind of turn and split: nanoseconds of the turn, of each part of a rank in it, of how many
    micro-batches its activations go to the host, and of the passes of pairs."""

    durations: Numbers
    busy: Numbers
    away: Numbers
    lanes: Lanes | None


class StepLength:
    """The light model of a layout's step."""

    def __init__(self, by_policy: Sequence[StepCosts], schedule: Schedule, shape: Shape) -> None:
        """Of a layout that is possible; `by_policy`: its costs under each memory policy that parts
        may have. Policies are told by their place in it."""
        costs = by_policy[0]
        self.stages, _, self.microbatches = shape
        self.staggered, self.buckets = schedule.staggered, costs.buckets
        self.message, self.each_pass = round(costs.message * 1e9), round(costs.each_pass * 1e9)
        self.sending, self.gathering = round(costs.sending * 1e9), round(costs.gathering * 1e9)
        self.ratios: Mapping[Passes, float] = {}
        """Of turns as events have them, over those here."""
        self.layers, self.behind = len(costs.layers), len(costs.behind)
        every = (costs.before, *costs.layers, *costs.behind)
        stacks = [(one.before, *one.layers, *one.behind) for one in by_policy]
        times = [_whole([layer.passes for layer in stack]) for stack in stacks]
        self.passes = np.stack(times)
        """By policy, layer, pass and part of a rank."""
        self.total = np.stack([_summed(own) for own in times])
        self.pairs = PairTable([[layer.pieces for layer in stack] for stack in stacks], costs.gpu)
        self.gathers = bool(self.passes[..., GATHERED].any())
        self.reduces = bool(self.passes[..., SHARDS].any())
        self.slots = [
            {kind: _Slots.of(times, kind, share) for kind in PASSES}
            for share in ((1, 2) if self.gathers and self.reduces else (1,))
        ]
        """Where gathers have the links to themselves, and where they have half of them."""
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
        self.known: dict[tuple[int, ...], dict[Split, int]] = {}
        """Lengths by policies and split."""

    def __call__(self, splits: Sequence[Sequence[int]], policies: Policies = (0,)) -> list[int]:
        """Nanoseconds of a step with each split, whose parts have these policies."""
        parts = self._of_parts(np.array(splits, np.int64), policies)
        lengths = [self._length(step, parts) for step in self.steps]
        if len(lengths) == 1:
            return lengths[0].tolist()
        # The steady state repeats.
        short, long = self.lengths
        more = (lengths[1] - lengths[0]) * (self.microbatches - long) // (long - short)
        return (lengths[1] + more).tolist()

    def of(self, splits: Sequence[Split], policies: tuple[int, ...]) -> list[int]:
        """The same, each worked out once."""
        known = self.known.setdefault(policies, {})
        if new := [split for split in dict.fromkeys(splits) if split not in known]:
            known |= zip(new, self(new, policies), strict=True)
        return [known[split] for split in splits]

    def corrected(
        self, split: Sequence[int], policies: Sequence[int], seen: Observed
    ) -> StepLength:
        """The same with turns that last as much longer as they do by events with one split, with
        all that they wait for but copies."""
        step, found = self.steps[-1], copy(self)
        parts = self._of_parts(np.array([split], np.int64), policies)
        own = self._turns(step, parts).durations[:, 0].tolist()
        found.ratios = {
            turn: seen.turns[turn] / length
            for turn, length in zip(step.kinds, own, strict=True)
            if length and turn in seen.turns
        }
        found.sending, found.message, found.known = 0, round(seen.message), {}
        return found

    def layer_weights(self, split: Sequence[int], policies: Sequence[int] = (0,)) -> list[int]:
        """By about how many nanoseconds one layer more on each part lengthens the longest path."""
        step = self.steps[-1]
        parts = self._of_parts(np.array([split], np.int64), policies)
        done, there, _ = (one[:, 0] for one in self._done(step, parts))
        closed = done[step.last] + parts.ends[0, self.part_of, 1:].sum(1)
        end = int(closed.argmax())
        counts = step.path(done, there, int(step.last[end]), self.message).tolist()
        layer = self.passes[:, self.layers]
        beside = layer[..., list(BUSY)].max(-1)
        busy = np.maximum(layer[..., WAITED] + layer[..., PAIRED], beside)
        kinds = np.broadcast_to(np.array(policies), self.parts)
        weights = np.zeros(self.parts, np.int64)
        for turn, count in zip(step.kinds, counts, strict=True):
            for kind, chunk in turn:
                part = self.part_of[chunk]
                weights[part] += count * busy[kinds[part], PASSES.index(kind)]
        on_stage = self.part_of[self.stage_of == self.stage_of[end]]
        weights[on_stage] += np.diff(self.ends, axis=0)[self.layers, 1:].sum()
        return weights.tolist()

    def _of_parts(self, splits: Numbers, policies: Policies) -> _Parts:
        edges = 1 + np.cumsum(np.pad(splits, ((0, 0), (1, 0))), axis=1)
        edges[:, 0], edges[:, -1] = 0, self.passes.shape[1]
        first, end = edges[:, :-1], edges[:, 1:]
        of = np.broadcast_to(np.array(policies, np.int64), splits.shape)
        times = self.total[of, end] - self.total[of, first]
        filled, last = end > first, np.maximum(end - 1, 0)
        begun, first = first, np.minimum(first, last)
        if self.reduces:
            times = np.concatenate((times, np.zeros_like(times[..., :2])), axis=-1)
        for number, kind in enumerate(PASSES):
            begin, finish = (first, last) if kind == "F" else (last, first)
            gather = self.passes[of, begin, number, GATHERED]
            alone, *halved = (one[kind].between(of, first, last) for one in self.slots)
            waited = alone + gather + self.passes[of, finish, number, WAITED]
            times[..., number, WAITED] = waited * filled
            if self.reduces and kind != "F":
                shards, gathered = (self.passes[..., number, one] for one in (SHARDS, GATHERED))
                before = np.minimum(first + 1, last)
                left = (shards - gathered)[of, before] - self.passes[of, first, number, WAITED]
                left = np.where(last > first, np.maximum(left, 0), 0)
                times[..., number, LEFT] = (left + (shards - gathered)[of, first]) * filled
            for slots in halved:
                times[..., number, HALVED] = (slots - alone + gather) * filled
        times[..., HOST] += self.each_pass
        return _Parts(times, self.ends[end] - self.ends[begun], of, begun, end)

    def _length(self, step: TurnLevels, parts: _Parts) -> Numbers:
        *_, through = self._done(step, parts)
        return self._closed(through[step.last], self._beside_passes(parts))

    def copies_beside_pairs(self, policies: Sequence[int]) -> bool:
        """Whether passes run in pairs while activations go to the host."""
        in_pairs = any(len(turn) > 1 for turn in self.steps[-1].kinds)
        return in_pairs and bool(self.passes[[*set(policies)]][..., (TO_HOST, FROM_HOST)].any())

    def waits_for_kernels(self, split: Sequence[int], policies: Sequence[int] = (0,)) -> bool:
        """Whether the longest turn of a split lasts as long as its kernels and exchanges."""
        parts = self._of_parts(np.array([split], np.int64), policies)
        turns = self._turns(self.steps[0], parts)
        return bool(turns.busy[..., list(BUSY)].max() <= turns.durations.max())

    def _done(self, step: TurnLevels, parts: _Parts) -> tuple[Numbers, Numbers, Numbers]:
        """When every turn ends, its passes have their results, and what it reduces is reduced, by
        split."""
        durations, busy, away, lanes = self._turns(step, parts)
        message, seen = (self.sending, self.message, self.gathering), bool(self.ratios)
        if seen:
            ratios = np.array([[self.ratios.get(turn, 1.0)] for turn in step.kinds])
            durations = np.rint(durations * ratios).astype(np.int64)
            lanes = lanes.scaled(ratios) if lanes else None
        besides: list[Beside] = []
        reductions = None
        if self.reduces:
            links, left, halved = (busy[..., part] for part in (SHARDS, LEFT, HALVED))
            reductions = Reductions(links, left, halved * (not seen))
            besides.append(reductions)
        # The host is at most one pass ahead of the device.
        if (busy[..., HOST] > durations).any() and not seen:
            besides.append(Lane(busy[..., HOST], 1))
        count = self.lengths[self.steps.index(step)]
        out, back, socket = (busy[..., part] * away // count for part in COPIES)
        if (out > durations).any() or (back > durations).any():
            besides.append(Copies(out, back, step.with_pass("F"), step.with_pass("B", "I")))
        if (socket > durations).any():
            besides.append(Lane(socket, 2))
        done, there = step.ends(durations, message, besides, lanes)
        return done, there, np.maximum(done, reductions.reduced) if reductions else done

    def _turns(self, step: TurnLevels, parts: _Parts) -> _Turns:
        turns = [
            [(self.part_of[chunk], PASSES.index(kind)) for kind, chunk in turn]
            for turn in step.kinds
        ]
        busy = np.stack([sum(parts.passes[:, part, kind] for part, kind in turn) for turn in turns])
        durations, lanes = busy[..., WAITED] + busy[..., PAIRED], None
        pairs = [place for place, turn in enumerate(turns) if len(turn) > 1]
        if pairs:
            lanes = self._lanes(step, parts, pairs, durations)
        longest = np.maximum(durations, np.maximum(busy[..., BESIDE], busy[..., STOPS]))
        if lanes:
            lanes = lanes.scaled(longest / np.maximum(durations, 1))
        away = np.array([step.offloaded[turn[0][1]] for turn in step.kinds])[:, None]
        return _Turns(longest, busy, away, lanes)

    def _lanes(
        self, step: TurnLevels, parts: _Parts, pairs: Sequence[int], durations: Numbers
    ) -> Lanes:
        """When the passes of turns begin and have their results; `durations` become those of
        pairs."""
        begins, there, back = np.zeros_like(durations), durations.copy(), durations.copy()
        for place in pairs:
            spans = [parts.span(self.part_of[chunk], kind) for kind, chunk in step.kinds[place]]
            times = self.pairs.times(*spans)
            durations[place], begins[place], there[place], back[place] = times
            if step.one_way[place]:
                np.maximum(back[place], there[place] + self.message, out=back[place])
        return Lanes(begins, (there, back))

    def _beside_passes(self, parts: _Parts) -> Numbers:
        """The ends of parts, of which a first stage of one chunk gathers and reduces beside its
        passes, bucket by bucket."""
        passes, ends = parts.passes, parts.ends
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
        if not self.buckets[1]:
            # Reductions wait for all passes of their stage.
            done = np.stack([done[self.stage_of == stage].max(0) for stage in self.stage_of])
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


@dataclass(frozen=True, slots=True)
class _Slots:
    """How long a pass runs from one layer to the next: the layer's kernels, or what it takes the
    links beside them if that is longer: to gather the next layer, and to reduce the one before. By
    policy and by the earlier layer of each two in the model."""

    first: Numbers
    """Of the first layer of a pass, with none before it."""
    clock: Numbers
    """Sums of the others."""

    @staticmethod
    def of(times: Sequence[Numbers], kind: Pass, share: int) -> _Slots:
        """Gathers have one part in `share` of the links."""
        rows = [_slots(own[:, PASSES.index(kind)], kind, share) for own in times]
        first, others = (np.stack(column) for column in zip(*rows, strict=True))
        return _Slots(first, np.stack([_summed(row) for row in others]))

    def between(self, of: Numbers, first: Numbers, last: Numbers) -> Numbers:
        """Nanoseconds of a pass through these layers, without the last one that it runs."""
        inner = np.maximum(last - 1, first)
        sums = self.clock[of, inner] - self.clock[of, first]
        return sums + np.where(last > first, self.first[of, inner], 0)


def _slots(own: Numbers, kind: Pass, share: int) -> tuple[Numbers, Numbers]:
    kernels, gathers = own[:, WAITED], own[:, GATHERED]
    reductions, first = own[:, SHARDS] - gathers, np.zeros_like(gathers)
    if kind == "F":
        first[:-1] = np.maximum(kernels[:-1], share * gathers[1:])
        return first, first
    # Of a layer and the one behind it, where a pass ends with the first.
    first[:-1] = np.maximum(kernels[1:], share * gathers[:-1])
    others = first.copy()
    others[:-2] = np.maximum(others[:-2], gathers[:-2] + reductions[2:])
    return first, others


def _summed(times: Numbers) -> Numbers:
    return np.concatenate((np.zeros_like(times[:1]), times.cumsum(0)))


def _whole(seconds: Sequence[object]) -> Numbers:
    return np.rint(np.array(seconds) * 1e9).astype(np.int64)
