"""The bubble of a schedule in a bound of its step, whatever layers its chunks hold.

A step lasts at least as long as any path through its passes. Take a stage, a chunk c and a chunk d
on it. The first forward of c waits for those of all chunks before c. Then the stage runs its passes
in order, up to the last backward of d. That goes back through d and all chunks before it. So long a
path takes, with chunks x of layers:

    sum of forwards before c + passes of the stage in between + sum of backwards from d on

A mean of paths bounds the step, too, and is a sum over parts of the model: what a layer adds to it
depends on its part alone. So each layer adds what it adds where that is least. Any weights of paths
give a bound; those that give most for a usual layer solve a small linear program. With chunks
of equal length the bubble of a looped schedule is (p - 1) / (v m) of its work (Narayanan et al.
2021, section 2.2.2). Where chunks may be as uneven as one likes, early ones longer, a quarter to a
half of it is left, and of backwards only what somebody waits for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from twin.arch.ops import BLOCKS
from twin.arch.remembered import remembered
from twin.explore.search.least_times import BEHIND, LayerTimes
from twin.planning.columns import Columns, columns_of
from twin.planning.walk import enough_microbatches
from twin.schedules.base import ChunkMap, Pass, Schedule

Numbers: TypeAlias = NDArray[np.float64]

PASSES: Final[tuple[Pass, ...]] = ("F", "B", "I", "W")
ROUNDS: Final = 12
"""OURS: of affine scaling; of 14 layouts each was within 0.01 % of the best by then. After 24
rounding takes over."""
USUAL: Final = {
    False: (
        (3.0, (1.0, 1.0, 0.0, -1.0, -2.0, -1.0, -1.0)),
        (2.5, (1.0, 1.1, 0.0, -1.0, -1.5, -1.1, -0.4)),
    ),
    True: (
        (2.08, (1.0, 1.15, -0.08, -0.7, -1.38, -0.84, -0.54)),
        (1.72, (1.0, 1.13, -0.06, -0.57, -1.1, -0.7, -0.4)),
    ),
}
"""OURS: times of layers over those of their forwards: of a micro-batch, and of what is counted on
paths. Without pairs, of a dense layer and of Kimi K2's over 32 expert ranks; with pairs, of its
over 16 and over 32. Paths are weighted for each of these; the bounds hold for any layer."""
MOST_CHUNKS: Final = 64
"""OURS: chunks of a pipeline whose order is looked at: that of 120 takes 0.1 s to write down."""
TINY: Final = 1e-12
"""Keeps a square of numbers from being singular."""
STRIDE: Final = 0.9
"""OURS: part of the way to the border in a round."""


OWN: Final = 2
"""Of what is counted on paths, by part of the model: forwards ahead of the first one of a stage;
backwards from the last one on; whether the part is on the stage, so that all its micro-batches are
on the path; but for so many of each of `PASSES`."""


@dataclass(frozen=True, slots=True)
class OnPaths:
    """What layers add to a path, by kind of layer."""

    counts: Numbers
    columns: tuple[int | None, ...]
    """The part that has it: of transformer layers any."""
    times: Numbers
    """Nanoseconds of each thing that is counted, but for the micro-batches of a stage."""
    whole: Numbers
    """Those of one."""

    def adds(self, counted: Numbers, runs: int) -> Numbers:
        """Nanoseconds that one layer adds, by mean path, kind and part."""
        times = self.times.copy()
        times[:, OWN] += runs * self.whole
        return times @ counted


def on_paths(model: Sequence[LayerTimes], kinds: Sequence[Pass], *, pairs: bool) -> OnPaths:
    """What a model adds to paths of a schedule that has these backward passes."""
    rows: list[list[float]] = []
    for layer in model:
        passes = [layer.passes[kind].alone for kind in PASSES]
        ways, edge = [passes[0], passes[2]], 0.0
        passes[-1] = layer.passes["W"].kernels
        if pairs:
            # Exchanges cost passes what they take from kernels, and may reach over the ends.
            price = max(layer.price.values(), default=0.0)
            held = [price * layer.passes[kind].held for kind in PASSES]
            edge = -2 * max(held)
            passes = [layer.passes[kind].kernels + held[at] for at, kind in enumerate(PASSES)]
        rows.append([*ways, edge, *(-one for one in passes)])
    whole = [layer.turns(kinds, "kernels" if pairs else "no")[0] for layer in model]
    of = [layer.layer.kind for layer in model]
    columns = [None if kind in BLOCKS else -1 if kind in BEHIND else 0 for kind in of]
    counts = np.array([float(layer.count) for layer in model])
    return OnPaths(counts, tuple(columns), np.array(rows), np.array(whole))


@dataclass(frozen=True, slots=True)
class Bubble:
    """Mean paths of a schedule, for steps of so many micro-batches per chunk."""

    counted: Numbers
    runs: int

    def nanoseconds(self, model: OnPaths) -> float:
        """The least step of a model."""
        adds = model.adds(self.counted, self.runs)
        least = adds.min(-1)
        for row, column in enumerate(model.columns):
            if column is not None:
                least[:, row] = adds[:, row, column]
        return float((least @ model.counts).max())


def bubble(schedule: Schedule, shape: tuple[int, int], microbatches: int) -> Bubble:
    """The paths of a schedule over a `shape`, stages and chunks on each."""
    return _bubble(schedule, shape, microbatches)  # pyright: ignore[reportArgumentType]


@remembered(4096)
def _bubble(schedule: Schedule, shape: tuple[int, int], microbatches: int) -> Bubble:
    walked = enough_microbatches(schedule, *shape, microbatches)
    counted, copies = _counted(schedule, shape, walked)
    runs, means = microbatches // copies, list[Numbers]()
    for whole, times in USUAL[schedule.pairs]:
        adds = np.tensordot(np.array(times), counted, 1) + runs * whole * counted[OWN]
        means.append(np.tensordot(counted, best_mean(adds), (1, 0)))
    return Bubble(np.stack(means), runs)


@remembered(64)
def _counted(schedule: Schedule, shape: tuple[int, int], microbatches: int) -> tuple[Numbers, int]:
    """What is counted on all paths, by path and part; and the copies of every part."""
    chunk_map = schedule.chunk_map(*shape)
    orders = columns_of(schedule, *shape, microbatches)  # pyright: ignore[reportArgumentType]
    every = [one for stage, order in enumerate(orders) for one in _paths(order, chunk_map, stage)]
    return np.moveaxis(np.stack(every), 1, 0), chunk_map.copies


def best_mean(adds: Numbers) -> Numbers:
    """Weights of rows whose mean has about the largest least column: min sum x with x A >= 1, by
    affine scaling (Dikin 1967)."""
    paths, parts = adds.shape
    found = np.full(paths, 2.0) / adds.sum(0).min()
    every: Numbers = np.concatenate((found, found @ adds - 1))
    both = np.concatenate((adds.T, -np.eye(parts)), axis=1)
    costs = np.concatenate((np.full(paths, adds.max()), np.zeros(parts)))
    for _ in range(ROUNDS):
        scaled = both * every**2
        square = scaled @ both.T
        square[np.diag_indices(parts)] *= 1 + TINY
        moves = every * (costs - np.linalg.solve(square, scaled @ costs) @ both)
        if moves.max() <= 0:
            break
        every *= 1 - STRIDE * moves / moves.max()
    weights = every[:paths] / every[:paths].sum()
    return weights.astype(np.float64)


def _paths(order: Columns, chunk_map: ChunkMap, stage: int) -> Iterator[Numbers]:
    """What is counted on each path that stays on a stage."""
    chunks = [chunk for chunk, on in enumerate(chunk_map.stage_of) if on == stage]
    parts = chunk_map.parts
    own = np.bincount([chunk_map.part_of[chunk] for chunk in chunks], minlength=parts)
    nothing = np.zeros(parts), np.zeros((len(PASSES), parts))
    fronts = [_front(order, chunk_map, one) for one in chunks]
    backs = [nothing, *(_back(order, chunk_map, one) for one in chunks)]
    for (ahead, before), (behind, after) in product(fronts, backs):
        yield np.concatenate((np.array([ahead, behind, own], np.float64), before + after))


def _front(order: Columns, chunk_map: ChunkMap, chunk: int) -> tuple[Numbers, Numbers]:
    """What is ahead of a chunk's first forward, and what its stage has done before."""
    first = int(np.flatnonzero(order.row == order.rows.index(("F", chunk)))[0])
    # The other pass of a pair may have begun before.
    skipped = np.append(order.row[:first], order.row[first + 1 : first + 1 + order.paired[first]])
    return _visits(chunk, chunk_map), _counts(order, chunk_map, skipped)


def _back(order: Columns, chunk_map: ChunkMap, chunk: int) -> tuple[Numbers, Numbers]:
    """What is behind a chunk's last backward, and what its stage does from there on."""
    rows = [at for at, row in enumerate(order.rows) if row in (("B", chunk), ("I", chunk))]
    last = int(np.flatnonzero(np.isin(order.row, rows))[-1])
    last -= bool(last and order.paired[last - 1])
    behind = _visits(chunk, chunk_map)
    behind[chunk_map.part_of[chunk]] += 1
    return behind, _counts(order, chunk_map, order.row[last:])


def _visits(chunk: int, chunk_map: ChunkMap) -> Numbers:
    """How often a micro-batch has been in each part before it comes to a chunk."""
    found, at = np.zeros(chunk_map.parts), chunk_map.before[chunk]
    while at is not None:
        found[chunk_map.part_of[at]] += 1
        at = chunk_map.before[at]
    return found


def _counts(order: Columns, chunk_map: ChunkMap, rows: NDArray[np.int16]) -> Numbers:
    """How many passes these are, by kind and part."""
    found = np.zeros((len(PASSES), chunk_map.parts))
    for row, count in enumerate(np.bincount(rows, minlength=len(order.rows)).tolist()):
        kind, chunk = order.rows[row]
        found[PASSES.index(kind), chunk_map.part_of[chunk]] += count
    return found
