"""A schedule's order as levels: what every stage runs in turn, and what each turn waits for.

A turn is a pass, or the two of a pair. It waits for the turn before it on its stage and for the
results that its passes take. Turns of one level wait for earlier levels only. So the ends of a
level, for many splits at once, are a few operations on arrays (Kahn 1962, CACM 5(11)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from twin.arch.remembered import remembered
from twin.planning.beside_turns import Beside, Level, Numbers
from twin.planning.columns import Columns, columns_of
from twin.schedules.base import ChunkMap, Pass, Schedule

Passes: TypeAlias = tuple[tuple[Pass, int], ...]
"""One pass of a chunk, or the two of a pair."""

BEGINNING: Final = 0
"""The turn before the first; it ends at 0."""
_KEPT: Final = 32


@dataclass(frozen=True, eq=False)
class TurnLevels:
    """All turns of a step, level by level, numbered from 1."""

    chunk_map: ChunkMap
    kinds: tuple[Passes, ...]
    kind: Numbers
    """Index into `kinds` of every turn; the beginning's is 0, too."""
    before: Numbers
    """The turn before it on its stage."""
    sources: tuple[Numbers, ...]
    """The turns of other stages whose results its passes take, first of the one pass, then of a
    pair's other."""
    bounds: tuple[tuple[int, int], ...]
    """Of every level, its first turn and one past its last."""
    last: Numbers
    """The turn with the last backward of every chunk."""
    sends: Numbers
    """How many messages each kind of turn sends."""
    offloaded: Numbers
    """Of every chunk, how many micro-batches' activations go to the host, where any do."""

    @cached_property
    def last_with(self) -> tuple[Numbers, Numbers]:
        """Of every turn, the last one before it on its stage with a forward, and with a backward
        pass."""
        found = np.full((2, len(self.kind)), BEGINNING)
        has = np.array([self.with_pass("F"), self.with_pass("B", "I")])[:, self.kind]
        for first, end in self.bounds:
            before = self.before[first:end]
            found[:, first:end] = np.where(has[:, before], before, found[:, before])
        return found[0], found[1]

    def with_pass(self, *names: Pass) -> NDArray[np.bool_]:
        """Of every kind of turn, whether it has a pass of these."""
        return np.array([any(name in names for name, _ in turn) for turn in self.kinds])

    def ends(
        self, durations: Numbers, message: tuple[int, int] = (0, 0), besides: Sequence[Beside] = ()
    ) -> Numbers:
        """When every turn ends (ns): [turns, splits]; durations by kind and split. A message keeps
        its sender's port busy for the one time, and is there after the other."""
        shape = len(self.kind), durations.shape[1]
        done, begun = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        sending, delay = message[0] * self.sends[:, None], message[1]
        gone, queues = done, bool((sending > durations).any())
        if queues:
            gone, delay = done.copy(), message[1] - message[0]
        gone[BEGINNING] = -delay
        forward, backward = self.last_with if besides else (self.before, self.before)
        for one in besides:
            one.begin(shape)
        for first, end in self.bounds:
            own = slice(first, end)
            before, kind = self.before[own], self.kind[own]
            start = done[before]
            for source in self.sources:
                arrives = gone[source[own]]
                arrives += delay
                np.maximum(start, arrives, out=start)
            if besides:
                level = Level(own, kind, before, forward[own], backward[own])
                for one in besides:
                    one.hold(level, begun, start)
                begun[own] = start
                start += durations[kind]
                for one in besides:
                    one.work(level, begun, start)
            else:
                start += durations[kind]
            done[own] = start
            if queues:
                np.maximum(gone[before], start, out=start)
                start += sending[kind]
                gone[own] = start
        return done

    def path(self, ends: Numbers, last: int, message: int) -> Numbers:
        """How often each kind of turn is on the longest path to a turn, of one split."""
        counts = np.zeros(len(self.kinds), np.int64)
        done: list[int] = ends.tolist()
        kinds: list[int] = self.kind.tolist()
        before: list[int] = self.before.tolist()
        sources: list[list[int]] = [source.tolist() for source in self.sources]
        at = last
        while at != BEGINNING:
            counts[kinds[at]] += 1
            came = [(done[own[at]] + message, own[at]) for own in sources if own[at] != BEGINNING]
            at = max([(done[before[at]], before[at]), *came])[1]
        return counts


@dataclass(frozen=True, slots=True)
class _Stage:
    """The turns of a stage in columns. A slot is where the result of a pass is kept: by direction,
    chunk and micro-batch; slot 0 is there from the beginning."""

    kind: list[int]
    sources: list[list[int]]
    """Slots that the turns wait for: of their first passes, and of the second of pairs."""
    crosses: list[list[int]]
    gives: list[list[int]]
    """Slots that they fill; slot 0: none."""


@remembered(_KEPT)
def turn_levels(
    schedule: Schedule, stages: int, chunks_per_stage: int, microbatches: int
) -> TurnLevels:
    """The levels of a step of so many micro-batches."""
    chunk_map = schedule.chunk_map(stages, chunks_per_stage)
    orders = columns_of(schedule, stages, chunks_per_stage, microbatches)
    kinds: dict[Passes, int] = {}
    laid = [_stage(order, chunk_map, microbatches, kinds) for order in orders]
    table = np.array(_in_turn(laid, 1 + 2 * len(chunk_map.stage_of) * microbatches), np.int64)
    levels = table[:, 0]
    # The beginning is first; turns of a level keep their order.
    order = np.argsort(levels, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    table = table[order]
    starts = [*(1 + np.flatnonzero(np.diff(table[:, 0]))).tolist(), len(table)]
    both = (3, 4) if any(len(passes) > 1 for passes in kinds) else (3,)
    away = np.zeros(len(chunk_map.stage_of), np.int64)
    for own in orders:
        np.add.at(away, np.array([chunk for _, chunk in own.rows])[own.trips.row], 1)
    return TurnLevels(
        chunk_map=chunk_map,
        kinds=tuple(kinds),
        kind=table[:, 1].copy(),
        before=place[table[:, 2]],
        sources=tuple(place[table[:, column] * table[:, column + 2]] for column in both),
        bounds=tuple(pairwise(starts)),
        last=_last(tuple(kinds), table[:, 1], len(away)),
        sends=np.array([sum(_crosses(one, chunk_map) for one in row) for row in kinds], np.int64),
        offloaded=away * chunk_map.copies,
    )


def _crosses(one: tuple[Pass, int], chunk_map: ChunkMap) -> bool:
    """Whether the result of a pass goes to another stage."""
    kind, chunk = one
    target = None if kind == "W" else (chunk_map.after if kind == "F" else chunk_map.before)[chunk]
    return target is not None and chunk_map.stage_of[target] != chunk_map.stage_of[chunk]


def _stage(
    order: Columns, chunk_map: ChunkMap, microbatches: int, kinds: dict[Passes, int]
) -> _Stage:
    """The turns of a stage; `kinds` grows by those that are new."""
    size = len(chunk_map.stage_of)
    slots = np.array([_slots(row, chunk_map, microbatches, size) for row in order.rows], np.int64)
    own = slots[order.row]
    own[:, :2] += np.where(own[:, :2] > 0, order.microbatch[:, None], 0)
    second = np.concatenate(([False], order.paired[:-1]))
    first = np.flatnonzero(~second)
    pair = order.paired[first]
    with_second = np.where(pair, first + 1, first)
    other = np.where(pair[:, None], own[with_second], 0)
    rows: list[int] = order.row[first].tolist()
    seconds: list[int] = np.where(pair, order.row[with_second], -1).tolist()
    named: dict[tuple[int, int], int] = {}
    for one in dict.fromkeys(zip(rows, seconds, strict=True)):
        passes = tuple(order.rows[row] for row in one if row >= 0)
        named[one] = kinds.setdefault(passes, len(kinds))
    both = own[first], other
    return _Stage(
        [named[one] for one in zip(rows, seconds, strict=True)],
        [columns[:, 0].tolist() for columns in both],
        [columns[:, 2].tolist() for columns in both],
        [columns[:, 1].tolist() for columns in both],
    )


def _slots(
    row: tuple[Pass, int], chunk_map: ChunkMap, microbatches: int, size: int
) -> tuple[int, int, int]:
    """Of a pass of micro-batch 0: the slot that it waits for, the one that it fills, and whether
    they are of different stages."""
    kind, chunk = row
    if kind == "W":
        return 0, 0, 0
    source = (chunk_map.before if kind == "F" else chunk_map.after)[chunk]
    shift = 1 if kind == "F" else 1 + size * microbatches
    gives = shift + chunk * microbatches
    if source is None:
        return 0 if kind == "F" else 1 + chunk * microbatches, gives, 0
    crosses = chunk_map.stage_of[source] != chunk_map.stage_of[chunk]
    return shift + source * microbatches, gives, int(crosses)


def _in_turn(stages: Sequence[_Stage], slots: int) -> list[tuple[int, ...]]:
    """All turns, each behind what it waits for: level, kind, the turn before, two sources, and
    whether each crosses stages. The first is the beginning."""
    rows: list[tuple[int, ...]] = [(0, 0, 0, 0, 0, 0, 0)]
    level, done = [0], [-1] * slots
    done[0] = BEGINNING
    at, tails = [0] * len(stages), [BEGINNING] * len(stages)
    moved = True
    while moved:
        moved = False
        for number, stage in enumerate(stages):
            (one, two), (near, far), (gives, more) = stage.sources, stage.crosses, stage.gives
            kind, before, place = stage.kind, tails[number], at[number]
            while place < len(kind):
                first, second = done[one[place]], done[two[place]]
                if first < 0 or second < 0:
                    break
                turn = len(level)
                level.append(1 + max(level[before], level[first], level[second]))
                ways = near[place], far[place]
                rows.append((level[turn], kind[place], before, first, second, *ways))
                if gives[place]:
                    done[gives[place]] = turn
                if more[place]:
                    done[more[place]] = turn
                before, place, moved = turn, place + 1, True
            tails[number], at[number] = before, place
    return rows


def _last(kinds: Sequence[Passes], kind: Numbers, chunks: int) -> Numbers:
    """The turn with the last backward of every chunk."""
    found = np.zeros(chunks, np.int64)
    for number, passes in enumerate(kinds):
        for name, chunk in passes:
            if name in "BW":
                turns = np.flatnonzero(kind[1:] == number)
                found[chunk] = max(found[chunk], 1 + turns[-1]) if len(turns) else found[chunk]
    return found
