"""Ordered actions as columns of numbers, so that a walk over them is a few sums; and the columns of
every stage of the last schedules asked for, since layouts of a search share them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from twin.arch.remembered import remembered
from twin.schedules.base import Action, Pass, Schedule

Numbers: TypeAlias = NDArray[np.int64]
Row: TypeAlias = tuple[Pass, int]
"""A pass of a chunk."""

_KEPT: Final = 64
"""Orders whose columns are kept. One of 16 stages with 4 chunks each is 0.3 MB; the longest that a
plan may have, of 2,048 micro-batches that never repeat, 4 MB for such a pipeline."""


@dataclass(frozen=True)
class Trips:
    """The ways of activations to host memory and back, a number per trip: the row of the forward
    that keeps them (`Columns.rows`), the place of that forward, and the places that
    `twin.planning.offload.Trip` names."""

    row: NDArray[np.int16]
    forward: Numbers
    out: Numbers
    gone: Numbers
    back: Numbers


@dataclass(frozen=True)
class Columns:
    """A stage's ordered actions: of each its row in `rows`, its micro-batch, and whether it is
    paired."""

    rows: tuple[Row, ...]
    """Passes of chunks, in the order in which they first occur."""
    row: NDArray[np.int16]
    microbatch: NDArray[np.int32]
    paired: NDArray[np.bool_]

    def __len__(self) -> int:
        """How many actions there are."""
        return len(self.row)

    def action(self, at: int) -> Action:
        """The action at a place."""
        kind, chunk = self.rows[int(self.row[at])]
        return Action(kind, chunk, int(self.microbatch[at]), bool(self.paired[at]))

    def past(self, at: int) -> dict[Pass, int]:
        """How many actions of each kind are before a place."""
        counts: dict[Pass, int] = {"F": 0, "B": 0, "I": 0, "W": 0}
        by_row = np.bincount(self.row[:at], minlength=len(self.rows)).tolist()
        for (kind, _), count in zip(self.rows, by_row, strict=True):
            counts[kind] += count
        return counts

    @cached_property
    def pairs(self) -> Numbers:
        """Places of paired actions that have one behind them."""
        return np.flatnonzero(self.paired[:-1])

    @cached_property
    def forwards_for_all(self) -> int:
        """The place up to which every chunk has forwards to come. So far a step of more
        micro-batches begins with the same actions, whatever the schedule."""
        forwards = [row for row, (kind, _) in enumerate(self.rows) if kind == "F"]
        return min((int(np.flatnonzero(self.row == row)[-1]) for row in forwards), default=0)

    @cached_property
    def trips(self) -> Trips:
        """What `twin.planning.offload` says of these actions."""
        forwards, backwards = self._places("F"), self._places("B", "I")
        key = self._chunks[self.row] * (int(self.microbatch.max(initial=0)) + 1) + self.microbatch
        # The backward before that of each chunk and micro-batch, where there is one.
        ahead = np.full(int(key.max(initial=0)) + 1, -1)
        ahead[key[backwards[1:]]] = backwards[:-1]
        start, out = forwards[:-1], forwards[1:]
        back = ahead[key[start]]
        # A forward waits for the copy before last; behind the last but one nothing waits.
        gone = np.minimum(np.append(forwards[2:], len(self)), back)[: len(back)]
        # A backward paired with that forward begins when it does.
        away = back > out + self.paired[out]
        return Trips(self.row[start][away], start[away], out[away], gone[away], back[away])

    @property
    def _chunks(self) -> Numbers:
        return np.array([chunk for _, chunk in self.rows], np.int64)

    def _places(self, *kinds: Pass) -> Numbers:
        chosen = np.array([kind in kinds for kind, _ in self.rows], bool)
        return np.flatnonzero(chosen[self.row])


def columns(actions: Sequence[Action]) -> Columns:
    """The columns of a stage's ordered actions."""
    rows: dict[Row, int] = {}
    row = [rows.setdefault((one.kind, one.chunk), len(rows)) for one in actions]
    return Columns(
        tuple(rows),
        np.array(row, np.int16),
        np.array([one.microbatch for one in actions], np.int32),
        np.array([one.paired for one in actions], bool),
    )


@remembered(_KEPT)
def columns_of(
    schedule: Schedule, stages: int, chunks_per_stage: int, microbatches: int
) -> tuple[Columns, ...]:
    """The columns of every stage of a step."""
    orders = schedule.order(stages, chunks_per_stage, microbatches)
    return tuple(columns(actions) for actions in orders)


@remembered(64 * _KEPT)
def alike(
    schedule: Schedule, shape: tuple[int, int], stage: int, microbatches: tuple[int, int]
) -> int:
    """With how many equal actions a stage begins steps of these two lengths, a shape being stages
    and chunks on each."""
    short, long = microbatches
    longer = columns(schedule.stage_order(stage, *shape, long))
    return _alike(columns_of(schedule, *shape, short)[stage], longer)


def _alike(one: Columns, other: Columns) -> int:
    # Rows are numbered as they occur, so equal beginnings have equal numbers.
    size = min(len(one), len(other))
    rows = min(len(one.rows), len(other.rows))
    same = one.row[:size] == other.row[:size]
    same &= one.microbatch[:size] == other.microbatch[:size]
    same &= one.paired[:size] == other.paired[:size]
    if one.rows[:rows] != other.rows[:rows]:
        first = next(at for at in range(rows) if one.rows[at] != other.rows[at])
        same &= one.row[:size] < first
    return size if same.all() else int(np.argmin(same))
