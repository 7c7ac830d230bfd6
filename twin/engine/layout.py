"""What the roles of each stage do, operation by operation, in the schedule's order: from blocks to
operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twin.engine.blocks import BUCKET, LANE, Numbers, Shared, StageBlocks
from twin.engine.graph import Indices, row_starts
from twin.engine.program import Program
from twin.engine.templates import Steps, Table
from twin.planning.columns import columns_of


@dataclass(frozen=True, slots=True)
class Stage:
    """The operations of a role of one stage, numbered from 0."""

    step: Indices
    """Its place in the table of steps."""
    chunk: Indices
    microbatch: Indices
    waits: Indices
    targets: NDArray[np.int64]
    """By operation, how many wait for it."""
    target: NDArray[np.int64]
    """Those that do, and the stage of each."""
    target_stage: NDArray[np.int64]
    marks: NDArray[np.int64]
    """The first operation of each action, in order, and one past the last."""
    sending: NDArray[np.int64]
    """The steps among them that send something through their role's ports."""
    grouped: dict[str, NDArray[np.int64]]
    """By group, those that start together with its other members'."""
    messages: dict[int, NDArray[np.int64]]
    """By the stage they go to."""
    copies: dict[tuple[int, int], NDArray[np.int64]]
    """By stream and chunk."""

    @property
    def size(self) -> int:
        """Operations."""
        return len(self.step)


@dataclass(frozen=True, slots=True)
class Layout:
    """All stages, and the table of their steps."""

    table: Table
    stages: list[Stage]


def laid_out(program: Program, microbatches: int) -> Layout:
    """A step of so many micro-batches."""
    made = Shared(program, microbatches)
    shape = program.stages, program.chunks_per_stage, microbatches
    # A frozen section has a hash, which pyright does not see.
    orders = columns_of(program.schedule, *shape)  # pyright: ignore[reportArgumentType]
    stages = [StageBlocks(made, stage, order) for stage, order in enumerate(orders)]
    for stage in stages:
        stage.run()
    return Layout(made.table, _finished(made, stages))


def _finished(shared: Shared, roles: Sequence[StageBlocks]) -> list[Stage]:
    edges = [[(*role.waits(), stage)] for stage, role in enumerate(roles)]
    for stage, role in enumerate(roles):
        result, op = role.needs
        source, end = shared.arrivals[:, result]
        others: list[int] = np.flatnonzero(np.bincount(source)).tolist()
        for other in others:
            own = source == other
            edges[other].append((end[own], op[own], stage))
    kinds = row_starts([len(row) for row in shared.kinds])
    bits = np.array([bit for row in shared.kinds for bit in row] or [0], np.int64)
    return [
        _stage(shared.table, role, edges[stage], (kinds, bits)) for stage, role in enumerate(roles)
    ]


def _stage(
    table: Table,
    role: StageBlocks,
    edges: Sequence[tuple[Numbers, Numbers, int]],
    kinds: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> Stage:
    steps, blocks = table.steps, role.blocks
    sizes = np.diff(role.base)
    begins = table.first[blocks[:, 0]] - role.base[:-1]
    step = (np.repeat(begins, sizes) + np.arange(role.size)).astype(np.int32)
    chunk, microbatch = (np.repeat(blocks[:, of].astype(np.int32), sizes) for of in (2, 3))
    _mark(role, kinds, chunk, microbatch)
    targets, target, target_stage, waits = _targets(steps, step, edges)
    waits += np.bincount(role.needs[1], minlength=role.size)
    return Stage(
        step=step,
        chunk=chunk,
        microbatch=microbatch,
        waits=waits.astype(np.int32),
        targets=targets,
        target=target,
        target_stage=target_stage,
        marks=role.marks,
        sending=_sending(steps, step),
        grouped={
            name: np.nonzero(steps.group[step] == code)[0] for code, name in enumerate(steps.groups)
        },
        messages=role.messages(),
        copies=role.copies(),
    )


def _mark(
    role: StageBlocks,
    kinds: tuple[NDArray[np.int64], NDArray[np.int64]],
    chunk: Indices,
    microbatch: Indices,
) -> None:
    """Write down which operations are of the second pass of a pair, and which of no micro-batch."""
    marked = np.flatnonzero(role.blocks[:, 1])
    sizes = np.diff(role.base)[marked]
    block = np.repeat(marked, sizes)
    place = np.arange(len(block)) - np.repeat(row_starts(sizes)[:-1], sizes)
    op = role.base[block] + place
    bits = kinds[1][kinds[0][role.blocks[block, 1]] + place]
    second = bits & LANE > 0
    for column, of in ((chunk, 4), (microbatch, 5)):
        column[op[second]] = role.blocks[block[second], of]
    microbatch[op[bits & BUCKET > 0]] = -1


def _sending(steps: Steps, step: Indices) -> Numbers:
    """The steps of a stage that send something."""
    present = np.zeros(len(steps.stream), bool)
    present[step] = True
    sends = np.fromiter(steps.traffic, np.int64)
    return sends[present[sends]]


def _targets(
    steps: Steps, step: Indices, edges: Sequence[tuple[Numbers, Numbers, int]]
) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """By operation how many wait for it, who, of which stage, and for how many it waits. Those of
    its template come first, then those of its own stage, whose edges are the first."""
    size = len(step)
    before, item, rank = steps.after.spread(step)
    local = before + steps.after.items[item]
    leaving, arriving = (np.concatenate([one[column] for one in edges]) for column in range(2))
    goes_to = np.repeat([stage for *_, stage in edges], [len(one[0]) for one in edges])
    order = np.argsort(leaving, kind="stable")
    inside, outside = np.diff(steps.after.first)[step], np.bincount(leaving, minlength=size)
    source = leaving[order]
    first = row_starts(inside + outside)
    target, target_stage = np.empty(first[-1], np.int64), np.full(first[-1], edges[0][2])
    target[first[before] + rank] = local
    places = first[source] + inside[source] + np.arange(len(order)) - row_starts(outside)[source]
    target[places], target_stage[places] = arriving[order], goes_to[order]
    waits = np.bincount(local, minlength=size) + np.bincount(edges[0][1], minlength=size)
    return inside + outside, target, target_stage, waits
