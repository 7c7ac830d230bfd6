"""A schedule's order as levels: what every stage runs in turn, and what each turn waits for.

A turn is a pass, or the two of a pair. It waits for the turn before it on its stage and for the
results that its passes take. Turns of one level wait for earlier levels only. So the ends of a
level, for many splits at once, are a few operations on arrays (Kahn 1962, CACM 5(11)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from twin.arch.remembered import remembered
from twin.planning.columns import Columns, columns_of
from twin.schedules.base import ChunkMap, Pass, Schedule

Numbers: TypeAlias = NDArray[np.int64]
Passes: TypeAlias = tuple[tuple[Pass, int], ...]
"""One pass of a chunk, or the two of a pair."""

Lane: TypeAlias = tuple[Numbers, int]
"""What works beside kernels: nanoseconds for every kind of turn, by split, and how many turns ahead
it may begin."""

_One: TypeAlias = tuple[Pass, int, int]
"""A pass, its chunk and its micro-batch."""
_Turn: TypeAlias = tuple[int, list[_One]]
"""The kind of a turn, and its passes."""

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
    """The turns whose results its passes take, first of the one pass, then of a pair's other."""
    crosses: tuple[Numbers, ...]
    """1 where such a result comes from another stage."""
    bounds: tuple[tuple[int, int], ...]
    """Of every level, its first turn and one past its last."""
    last: Numbers
    """The turn with the last backward of every chunk."""
    offloaded: Numbers
    """Of every chunk, how many micro-batches' activations go to the host, where any do."""

    def ends(self, durations: Numbers, message: int, lanes: Sequence[Lane] = ()) -> Numbers:
        """When every turn ends (ns): [turns, splits]; durations by kind and split. A turn waits for
        its stage's `lanes`, which work ahead of its kernels."""
        begun = np.zeros((len(self.kind), durations.shape[1]), np.int64)
        done, worked = begun.copy(), [begun.copy() for _ in lanes]
        delays = [message * crosses[:, None] for crosses in self.crosses]
        for first, end in self.bounds:
            before, kind = self.before[first:end], self.kind[first:end]
            start = done[before]
            for source, delay in zip(self.sources, delays, strict=True):
                arrives = done[source[first:end]]
                arrives += delay[first:end]
                np.maximum(start, arrives, out=start)
            begun[first:end] = start
            start += durations[kind]
            for (times, ahead), lane in zip(lanes, worked, strict=True):
                since = before if ahead == 1 else self.before[before]
                took = np.maximum(lane[before], begun[since])
                took += times[kind]
                lane[first:end] = took
                np.maximum(start, took, out=start)
            done[first:end] = start
        return done

    def path(self, ends: Numbers, last: int, message: int) -> Numbers:
        """How often each kind of turn is on the longest path to a turn, of one split."""
        counts = np.zeros(len(self.kinds), np.int64)
        done: list[int] = ends.tolist()
        kinds: list[int] = self.kind.tolist()
        waits: list[tuple[list[int], list[int]]] = [(self.before.tolist(), [0] * len(kinds))]
        for source, crosses in zip(self.sources, self.crosses, strict=True):
            waits.append((source.tolist(), crosses.tolist()))
        at = last
        while at != BEGINNING:
            counts[kinds[at]] += 1
            arrivals = [(done[own[at]] + message * crosses[at], own[at]) for own, crosses in waits]
            at = max(arrivals)[1]
        return counts


@remembered(_KEPT)
def turn_levels(
    schedule: Schedule, stages: int, chunks_per_stage: int, microbatches: int
) -> TurnLevels:
    """The levels of a step of so many micro-batches."""
    chunk_map = schedule.chunk_map(stages, chunks_per_stage)
    return _Walk(
        chunk_map, columns_of(schedule, stages, chunks_per_stage, microbatches), microbatches
    ).levels()


class _Walk:
    """Goes through all stages side by side."""

    def __init__(self, chunk_map: ChunkMap, orders: tuple[Columns, ...], microbatches: int) -> None:
        self.chunk_map, self.microbatches = chunk_map, microbatches
        self.kinds: dict[Passes, int] = {}
        self.turns = [self._turns(order) for order in orders]
        self.found: list[tuple[int, int, int, int, int, int, int]] = []
        """Level, kind, turn before, two sources, and whether each crosses."""
        chunks = len(chunk_map.stage_of)
        self.done = {"F": [-1] * chunks * microbatches, "B": [-1] * chunks * microbatches}
        self.last = [BEGINNING] * chunks
        self.away = np.zeros(chunks, np.int64)
        for order in orders:
            for row, count in enumerate(np.bincount(order.trips.row, minlength=0).tolist()):
                self.away[order.rows[row][1]] += count

    def _turns(self, order: Columns) -> list[_Turn]:
        """The turns of a stage."""
        turns: list[_Turn] = []
        passes: list[_One] = []
        rows: list[int] = order.row.tolist()
        microbatches: list[int] = order.microbatch.tolist()
        paired: list[bool] = order.paired.tolist()
        for at in range(len(order)):
            kind, chunk = order.rows[rows[at]]
            passes.append((kind, chunk, microbatches[at]))
            if not paired[at]:
                named: Passes = tuple((one[0], one[1]) for one in passes)
                turns.append((self.kinds.setdefault(named, len(self.kinds)), passes))
                passes = []
        return turns

    def _source(self, one: _One) -> tuple[int, int] | None:
        """The turn whose result a pass takes and whether it crosses stages; None: not yet there."""
        kind, chunk, microbatch = one
        if kind == "W":
            return BEGINNING, 0
        chunks = self.chunk_map
        side = chunks.before if kind == "F" else chunks.after
        source = side[chunk]
        if source is None:
            if kind == "F":
                return BEGINNING, 0
            turn, crosses = self.done["F"][chunk * self.microbatches + microbatch], 0
        else:
            place = source * self.microbatches + microbatch
            turn = self.done["F" if kind == "F" else "B"][place]
            crosses = int(chunks.stage_of[source] != chunks.stage_of[chunk])
        return None if turn < 0 else (turn, crosses)

    def levels(self) -> TurnLevels:
        """All turns, sorted by level."""
        at, tails = [0] * len(self.turns), [BEGINNING] * len(self.turns)
        level = [0]
        moved = True
        while moved:
            moved = False
            for stage, turns in enumerate(self.turns):
                while at[stage] < len(turns) and self._take(stage, turns[at[stage]], tails, level):
                    at[stage] += 1
                    moved = True
        return self._sorted(level)

    def _take(
        self,
        stage: int,
        turn: _Turn,
        tails: list[int],
        level: list[int],
    ) -> bool:
        kind, passes = turn
        sources = [self._source(one) for one in passes]
        if None in sources:
            return False
        known = [one for one in sources if one is not None]
        first, second = known[0], known[1] if len(known) > 1 else (BEGINNING, 0)
        number, before = len(level), tails[stage]
        level.append(1 + max(level[before], level[first[0]], level[second[0]]))
        self.found.append((level[-1], kind, before, first[0], second[0], first[1], second[1]))
        tails[stage] = number
        for name, chunk, microbatch in passes:
            if name != "W":
                way = "F" if name == "F" else "B"
                self.done[way][chunk * self.microbatches + microbatch] = number
            if name in "BW":
                self.last[chunk] = number
        return True

    def _sorted(self, level: list[int]) -> TurnLevels:
        table = np.array(self.found, np.int64).reshape(-1, 7)
        order = np.argsort(table[:, 0], kind="stable")
        place = np.zeros(len(level), np.int64)
        place[1 + order] = np.arange(1, len(level))
        table = np.concatenate((np.zeros((1, 7), np.int64), table[order]))
        starts = [1, *(1 + np.flatnonzero(np.diff(table[1:, 0])) + 1).tolist(), len(table)]
        pairs = any(len(passes) > 1 for passes in self.kinds)
        both = (3, 4) if pairs else (3,)
        return TurnLevels(
            chunk_map=self.chunk_map,
            kinds=tuple(self.kinds),
            kind=table[:, 1].copy(),
            before=place[table[:, 2]],
            sources=tuple(place[table[:, column]] for column in both),
            crosses=tuple(table[:, column + 2].copy() for column in both),
            bounds=tuple(pairwise(starts)),
            last=place[np.array(self.last)],
            offloaded=self.away * self.chunk_map.copies,
        )
