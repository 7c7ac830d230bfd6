"""Graphs of more than a step: several steps of a job one after the other, and jobs beside each
other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from twin.engine.graph import NONE, Bundles, Graph, Indices, Ragged, row_starts
from twin.engine.program import STREAMS, Program
from twin.engine.unevenness import numbered

Numbers = NDArray[np.int64]


def in_a_row(graph: Graph, program: Program, steps: int) -> Graph:
    """So many steps. Between two of them every role waits for all with whom it agrees on the
    gradient norm. That wait is an operation of its own, which takes no time and stands at the end:
    operation `i` of step `n` is number `n * len(graph) + i`."""
    fence = numbered(np.array([[role.groups.get("world", 0)] for role in program.roles]))
    after, waits = _edges(graph, fence, steps)
    fences = len(waits) - steps * len(graph)

    def repeated(values: NDArray[np.integer], at_fence: int, apart: int = 0) -> NDArray[np.integer]:
        shifts = np.repeat(np.arange(steps) * apart, len(values))
        every = _shifted(np.tile(values, steps), shifts)
        return np.append(every, np.full(fences, at_fence)).astype(values.dtype)

    members, rendezvous = graph.members, len(graph.members.first) - 1
    return replace(
        graph,
        role=repeated(graph.role, 0),
        stream=repeated(graph.stream, 0),
        name=repeated(graph.name, 0),
        chunk=repeated(graph.chunk, NONE),
        microbatch=repeated(graph.microbatch, NONE),
        duration=repeated(graph.duration, 0),
        sms=repeated(graph.sms, 0),
        sm_bound=np.append(np.tile(graph.sm_bound, steps), np.ones(fences)),
        bundle=repeated(graph.bundle, NONE),
        after=after,
        waits=waits,
        group=repeated(graph.group, NONE, rendezvous),
        members=Ragged(
            row_starts(np.tile(np.diff(members.first), steps)),
            (members.items + np.arange(steps, dtype=np.int32)[:, None] * len(graph)).ravel(),
        ),
        marks=[],
    )


def _edges(graph: Graph, fence: Numbers, steps: int) -> tuple[Ragged, Indices]:
    """Who waits for whom over all steps, and for how many; `fence`: of every role the number of its
    fence."""
    size, width, lengths = len(graph), int(fence.max()) + 1, np.diff(graph.after.first)
    lane = graph.role.astype(np.int64) * len(STREAMS) + graph.stream
    first, last = np.sort(np.unique(lane, return_index=True)[1]), np.flatnonzero(lengths == 0)
    own, between = np.arange(steps)[:, None] * size, np.arange(steps - 1)[:, None]
    fences = steps * size + between * width + fence[graph.role]
    inside = np.repeat(np.arange(size), lengths), graph.after.items.astype(np.int64)
    parts = (
        (inside[0] + own, inside[1] + own),
        (last + between * size, fences[:, last]),
        (fences[:, first], first + (between + 1) * size),
    )
    before, after = (
        np.concatenate([one.ravel() for one in side]) for side in zip(*parts, strict=True)
    )
    total = steps * size + (steps - 1) * width
    order = np.argsort(before, kind="stable")  # edges of one operation keep their order
    rows = row_starts(np.bincount(before, minlength=total))
    waits = np.bincount(after, minlength=total).astype(np.int32)
    return Ragged(rows, after[order].astype(np.int32)), waits


def _shifted(values: NDArray[np.integer], by: NDArray[np.integer] | int) -> NDArray[np.integer]:
    return np.where(values == NONE, NONE, values + by)


def beside(graphs: Sequence[Graph], programs: Sequence[Program]) -> Graph:
    """The graphs of jobs as one, job by job. Their paths are of the same links."""
    roles = row_starts([len(program.roles) for program in programs])
    ops = row_starts([len(graph) for graph in graphs])
    names = row_starts([len(graph.names) for graph in graphs])
    sent = row_starts([len(graph.bundles.flows) for graph in graphs])
    met = row_starts([len(graph.members.first) - 1 for graph in graphs])

    def all_of(name: str, starts: Numbers | None = None) -> Indices:
        columns = [getattr(graph, name) for graph in graphs]
        by = [0] * len(graphs) if starts is None else starts.tolist()
        return np.concatenate([_shifted(*one) for one in zip(columns, by, strict=False)]).astype(
            columns[0].dtype
        )

    return Graph(
        role=all_of("role", roles),
        stream=all_of("stream"),
        name=all_of("name", names),
        names=tuple(name for graph in graphs for name in graph.names),
        chunk=all_of("chunk"),
        microbatch=all_of("microbatch"),
        duration=np.concatenate([graph.duration for graph in graphs]),
        sms=all_of("sms"),
        sm_bound=np.concatenate([graph.sm_bound for graph in graphs]),
        bundle=all_of("bundle", sent),
        bundles=_bundles([graph.bundles for graph in graphs]),
        after=_rows([graph.after for graph in graphs], ops),
        waits=all_of("waits"),
        group=all_of("group", met),
        members=_rows([graph.members for graph in graphs], ops),
        marks=[],
    )


def _bundles(each: Sequence[Bundles]) -> Bundles:
    found = Bundles()
    for own in each:
        number = [found.paths.setdefault(path, len(found.paths)) for path in own.paths]
        found.flows += [tuple([(size, number[path]) for size, path in one]) for one in own.flows]
    return found


def _rows(each: Sequence[Ragged], ops: Numbers) -> Ragged:
    items = [one.items + start for one, start in zip(each, ops.tolist(), strict=False)]
    lengths = np.concatenate([np.diff(one.first) for one in each])
    return Ragged(row_starts(lengths), np.concatenate(items).astype(np.int32))
