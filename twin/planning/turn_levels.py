"""A schedule's order as levels: what every stage runs in turn, and what each turn waits for.

A turn is a pass, or the two of a pair. It waits for the turn before it on its stage and for the
results that its passes take. Turns of one level wait for earlier levels only. So the ends of a
level, for many splits at once, are a few operations on arrays (Kahn 1962, CACM 5(11)).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from twin.arch.remembered import remembered
from twin.compiled import machine
from twin.planning import machine_levels
from twin.planning.beside_turns import Beside, Level, Numbers
from twin.planning.columns import Columns, columns_of
from twin.schedules.base import ChunkMap, Pass, Schedule

Passes: TypeAlias = tuple[tuple[Pass, int], ...]
"""One pass of a chunk, or the two of a pair."""

BEGINNING: Final = 0
"""The turn before the first; it ends at 0."""


@dataclass(frozen=True)
class Lanes:
    """Of pairs, by kind of turn and split: nanoseconds from the start of a turn."""

    begins: Numbers
    """Until the forward begins."""
    results: tuple[Numbers, Numbers]
    """Until the first pass, the forward of a pair, and the second one have their results."""

    @cached_property
    def early(self) -> NDArray[np.bool_]:
        """Whether the second pass has its result before the forward begins."""
        return self.results[1] <= self.begins

    def give(
        self, level: Level, results: Numbers, start: Numbers, free: tuple[Numbers, Numbers]
    ) -> None:
        """Note when turns that start now have their results; `free`: when both passes, and the
        second ones, could start but for what works beside kernels."""
        both, second = free
        results[level.turns] = start + self.results[0][level.kind]
        # What is through before the forward begins does not wait for it.
        np.copyto(start, second, where=self.early[level.kind] & (start == both))
        turns = len(results) // 2
        own = slice(turns + level.turns.start, turns + level.turns.stop)
        results[own] = start + self.results[1][level.kind]

    def scaled(self, ratios: NDArray[np.float64]) -> Lanes:
        """Of turns that last so much longer, by kind and split."""
        begins, *results = (np.rint(one * ratios) for one in (self.begins, *self.results))
        there, back = (one.astype(np.int64) for one in results)
        return Lanes(begins.astype(np.int64), (there, back))


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
    pair's other; and as many more as there are turns, where it is that of a pair's second pass."""
    bounds: tuple[tuple[int, int], ...]
    """Of every level, its first turn and one past its last."""
    last: Numbers
    """The turn with the last backward of every chunk."""
    sends: Numbers
    """How many messages each kind of turn sends, and takes."""
    takes: Numbers
    one_way: tuple[bool, ...]
    """Whether it is a pair whose messages go to the same stage, the backward's behind the other."""
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
        self,
        durations: Numbers,
        message: tuple[int, int, int] = (0, 0, 0),
        besides: Sequence[Beside] = (),
        lanes: Lanes | None = None,
    ) -> tuple[Numbers, Numbers]:
        """When every turn ends (ns), [turns, splits], and when the results of its passes are there,
        for the second ones once more as many rows; durations by kind and split. A message keeps
        its sender's port busy for the one time, and is there after the other; then it is gathered.
        """
        if (code := machine.code()) is not None:
            return machine_levels.ends(code, self, durations, message, besides, lanes)
        return self._ends(durations, message, besides, lanes)

    def _ends(
        self,
        durations: Numbers,
        message: tuple[int, int, int],
        besides: Sequence[Beside],
        lanes: Lanes | None,
    ) -> tuple[Numbers, Numbers]:
        """The same, level by level: the specification."""
        shape = len(self.kind), durations.shape[1]
        done, begun = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        sending, delay, gathers = message[0] * self.sends[:, None], message[1], message[2] > 0
        gathering = message[2] * self.takes[:, None]
        gone = results = np.zeros((2 * shape[0], shape[1]), np.int64) if lanes else done
        if message[0]:
            gone, delay = results.copy(), message[1] - message[0]
        gone[BEGINNING] = -delay
        # Behind a gather both passes of a pair wait for both messages.
        begins = lanes.begins if lanes and not gathers else None
        forward, backward = self.last_with if besides else (self.before, self.before)
        for one in besides:
            one.begin(shape)
        for first, end in self.bounds:
            own = slice(first, end)
            level = Level(own, self.kind[own], self.before[own], forward[own], backward[own])
            early = start = done[level.before]
            for place, source in enumerate(reversed(self.sources), 1 - len(self.sources)):
                arrives = gone[source[own]]
                arrives += delay
                if begins is not None and not place:
                    arrives -= begins[level.kind]
                    early = start.copy()
                np.maximum(start, arrives, out=start)
            start += gathering[level.kind]
            free = start.copy() if lanes else start
            for one in besides:
                one.hold(level, begun, start)
            begun[own] = start
            start += durations[level.kind]
            for one in besides:
                one.work(level, begun, start)
            done[own] = start
            if lanes:
                early = free if begins is None else early
                lanes.give(level, results, start - durations[level.kind], (free, early))
            if message[0]:
                self._sent(level, gone, results, sending)
        return done, results

    def _sent(self, level: Level, gone: Numbers, results: Numbers, sending: Numbers) -> None:
        """Messages of a turn leave behind those of the turn before."""
        every = range(0, len(gone), len(self.kind))
        last = np.maximum.reduce([gone[level.before + more] for more in every])
        for more in every:
            own = slice(level.turns.start + more, level.turns.stop + more)
            gone[own] = np.maximum(last, results[own]) + sending[level.kind]

    def path(self, ends: Numbers, results: Numbers, last: int, message: int) -> Numbers:
        """How often each kind of turn is on the longest path to a turn, of one split."""
        counts, turns = np.zeros(len(self.kinds), np.int64), len(self.kind)
        done: list[int] = ends.tolist()
        there: list[int] = results.tolist()
        kinds: list[int] = self.kind.tolist()
        before: list[int] = self.before.tolist()
        sources: list[list[int]] = [source.tolist() for source in self.sources]
        at = last
        while at != BEGINNING:
            counts[kinds[at]] += 1
            rows = [own[at] for own in sources if own[at] != BEGINNING]
            came = [(there[row] + message, row % turns) for row in rows]
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
    pairs = any(len(passes) > 1 for passes in kinds)
    given = table[:, 3:5] * table[:, 5:7]
    given = place[given // 2] + len(place) * (given % 2)
    away = np.zeros(len(chunk_map.stage_of), np.int64)
    for own in orders:
        np.add.at(away, np.array([chunk for _, chunk in own.rows])[own.trips.row], 1)
    targets, sources = (
        [[*_targets(turn, chunk_map, sources=way)] for turn in kinds] for way in (False, True)
    )
    return TurnLevels(
        chunk_map=chunk_map,
        kinds=tuple(kinds),
        kind=table[:, 1].copy(),
        before=place[table[:, 2]],
        sources=tuple(given[:, column].copy() for column in range(1 + pairs)),
        bounds=tuple(pairwise(starts)),
        last=_last(tuple(kinds), table[:, 1], len(away)),
        sends=np.array([sum(one is not None for one in row) for row in targets], np.int64),
        takes=np.array([sum(one is not None for one in row) for row in sources], np.int64),
        one_way=tuple(
            stages > 2 and len(row) > 1 and len({*row}) == 1 and row[0] is not None
            for row in targets
        ),
        offloaded=away * chunk_map.copies,
    )


def _targets(turn: Passes, chunk_map: ChunkMap, *, sources: bool = False) -> Iterator[int | None]:
    """The stage that takes the result of each pass of a turn, or whose result it takes; none where
    that is its own."""
    stage_of = chunk_map.stage_of
    for kind, chunk in turn:
        after = (kind == "F") != sources
        other = None if kind == "W" else (chunk_map.after if after else chunk_map.before)[chunk]
        stage = None if other is None else stage_of[other]
        yield None if stage == stage_of[chunk] else stage


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
    # Of a result twice the turn, and one more where a pair's second pass has it.
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
                level.append(1 + max(level[before], level[first // 2], level[second // 2]))
                ways = near[place], far[place]
                rows.append((level[turn], kind[place], before, first, second, *ways))
                if gives[place]:
                    done[gives[place]] = 2 * turn
                if more[place]:
                    done[more[place]] = 2 * turn + 1
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
