"""What events say of the turns of a played step, for the light model of its splits."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from twin.engine.blocks import Actions, Numbers
from twin.engine.graph import Graph
from twin.engine.played import Played
from twin.engine.program import COMPUTE, SEND_BACKWARD, SEND_FORWARD, Program
from twin.planning.columns import columns_of
from twin.planning.step_length import Observed
from twin.planning.turn_levels import Passes


def observed(program: Program, graph: Graph, played: Played) -> Observed:
    """Mean nanoseconds of every kind of turn, and of messages."""
    done = int(graph.microbatch.max()) + 1
    shape = program.stages, program.chunks_per_stage, done
    # A frozen section has a hash, which pyright does not see.
    orders = columns_of(program.schedule, *shape)  # pyright: ignore[reportArgumentType]
    times: defaultdict[Passes, list[float]] = defaultdict(list)
    for number, role in enumerate(program.roles):
        order, own, marks = orders[role.stage], graph.of_role(number), graph.marks[number]
        actions = Actions(order, done)
        kernels = own.start + np.flatnonzero(graph.stream[own] == COMPUTE)
        first = np.searchsorted(kernels, marks[actions.first])
        last = np.searchsorted(kernels, marks[actions.last + 1]) - 1
        taken = played.end[kernels[last]] - played.start[kernels[first]]
        lasted: list[int] = (taken - _stalls(actions, graph, played, kernels, first)).tolist()
        ends: list[list[int]] = order.row[np.stack([actions.first, actions.last])].T.tolist()
        for rows, taken in zip(ends, lasted, strict=True):
            times[tuple(order.rows[row] for row in dict.fromkeys(rows))].append(taken)
    means = {turn: sum(own) / len(own) for turn, own in times.items()}
    return Observed(means, _message(graph, played))


def _stalls(
    actions: Actions, graph: Graph, played: Played, kernels: Numbers, first: Numbers
) -> Numbers:
    """By turn, how long the first kernel of the forward of a pair waits for what is not there."""
    found = np.zeros(len(first), np.int64)
    size = int(graph.microbatch.max()) + 1
    key = graph.chunk[kernels].astype(np.int64) * size + graph.microbatch[kernels]
    turn = np.searchsorted(first, np.arange(len(kernels)), side="right") - 1
    forward = (key == actions.key[actions.first][turn]) & (actions.first < actions.last)[turn]
    pairs, place = np.unique(turn[forward], return_index=True)
    at = np.flatnonzero(forward)[place]
    behind = at > first[pairs]
    at, pairs = at[behind], pairs[behind]
    found[pairs] = played.start[kernels[at]] - played.end[kernels[at - 1]]
    return found


def _message(graph: Graph, played: Played) -> float:
    """Of a message, from when it is ready until it is there."""
    sent = np.isin(graph.stream, (SEND_FORWARD, SEND_BACKWARD))
    return float((played.end[sent] - played.ready[sent]).mean()) if sent.any() else 0.0
