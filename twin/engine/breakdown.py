"""Where each role's time goes: every nanosecond of its compute stream gets one name.

Kernels are `compute` (or `optimizer`), and `contention` as far as they took longer than at full
speed, because communication held SMs beside them; those by which the fullest expert rank is later
than the mean one are `imbalance`, since that is what the others wait for. A gap before an operation
is walked back along what released it: time in which a transfer for this role was under way is
exposed communication of that kind; time that the host thread took to issue it is `host`; time
before that, in which another stage had not yet produced what this one waits for, is `bubble`. A
message is under way for the role that receives it; the time its sender then waits for an answer is
the sender's bubble."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from twin.engine.graph import NONE, Graph
from twin.engine.host import COLLECTED, ISSUE
from twin.engine.played import Played, Times
from twin.engine.program import (
    COMPUTE,
    CONTEXT,
    DATA,
    EXPERT,
    FROM_HOST,
    GATHER,
    HOST,
    IMBALANCE,
    SEND_BACKWARD,
    SEND_FORWARD,
    STREAMS,
    TENSOR,
    TO_HOST,
    Program,
)
from twin.engine.trace import CAUSES

EXPOSED: Final[dict[int, str]] = {
    TENSOR: "exposed_tensor",
    EXPERT: "exposed_expert",
    SEND_FORWARD: "exposed_pipeline",
    SEND_BACKWARD: "exposed_pipeline",
    DATA: "exposed_data",
    CONTEXT: "exposed_context",
    GATHER: "exposed_data",
    TO_HOST: "exposed_offload",
    FROM_HOST: "exposed_offload",
    HOST: "host",
}

BY_NAME: Final = {
    "optimizer": "optimizer",
    ISSUE: "host",
    COLLECTED: "host",
    IMBALANCE: "imbalance",
}
"""The cause of a compute step by its name; of others it is `compute`."""

Piece: TypeAlias = tuple[int, int, str]
"""Start, end (ns) and cause of a stretch of a role's compute stream."""

_CODE: Final = {cause: code for code, cause in enumerate(CAUSES)}
_BUBBLE: Final = _CODE["bubble"]
_EXPOSED: Final = np.array(
    [_CODE[EXPOSED[stream]] if stream in EXPOSED else _BUBBLE for stream in range(len(STREAMS))]
)
_SENDS: Final = (SEND_FORWARD, SEND_BACKWARD)
_CLOSING: Final = (DATA, TO_HOST, FROM_HOST, HOST)
"""Streams that a role may wait for after its last kernel."""


@dataclass(frozen=True, slots=True)
class Stretches:
    """Stretches of the compute streams of all roles: role, start, end (ns), index into `CAUSES`."""

    role: NDArray[np.int64]
    start: Times
    end: Times
    cause: NDArray[np.int64]

    @staticmethod
    def joined(parts: Iterable[tuple[NDArray[np.integer], ...]]) -> Stretches:
        """From parts of these four columns."""
        return Stretches(
            *(np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True))
        )

    def sums(self, start: Times, end: Times) -> list[dict[str, int]]:
        """Nanoseconds per cause between two times of each role."""
        role, began, ended, cause = self.role, self.start, self.end, self.cause
        within = (ended > start[role]) & (began < end[role])
        if not within.all():
            role, began, ended, cause = role[within], began[within], ended[within], cause[within]
        spent = np.minimum(ended, end[role]) - np.maximum(began, start[role])
        # Sums of whole numbers below 2^53 are exact.
        count = len(start) * len(CAUSES)
        total = np.bincount(role * len(CAUSES) + cause, spent, minlength=count).astype(np.int64)
        rows = total.reshape(-1, len(CAUSES)).tolist()
        return [dict(zip(CAUSES, row, strict=True)) for row in rows]


def sums(pieces: Sequence[Piece], start: int, end: int) -> dict[str, int]:
    """Nanoseconds per cause between two times, of one role."""
    rows = np.array([(0, *piece[:2], _CODE[piece[2]]) for piece in pieces], np.int64).reshape(-1, 4)
    (total,) = Stretches(*rows.T).sums(np.array([start]), np.array([end]))
    return total


def stretches(graph: Graph, played: Played, until: Times) -> Stretches:
    """The compute stream of each role from 0 to its `until`, without gaps."""
    kernels = np.nonzero(graph.stream == COMPUTE)[0]
    role, start, end = graph.role[kernels], played.start[kernels], played.end[kernels]
    full = np.minimum(end, start + graph.duration[kernels])
    by_name = np.array([_CODE[BY_NAME.get(name, "compute")] for name in graph.names])
    contention = np.full(len(kernels), _CODE["contention"])
    before = np.zeros_like(end)
    before[1:] = np.where(role[1:] == role[:-1], end[:-1], 0)
    waited = start > before
    gaps = role[waited], before[waited], start[waited], kernels[waited]
    last = np.zeros(len(until), np.int64)
    last[role] = end  # the last of each stays
    return Stretches.joined(
        [
            (role, start, full, by_name[graph.name[kernels]]),
            (role, full, end, contention),
            *_gaps(graph, played, *gaps),
            _tails(graph, played, last, until),
        ]
    )


def _gaps(
    graph: Graph, played: Played, role: NDArray[np.int32], start: Times, end: Times, op: Times
) -> list[tuple[NDArray[np.integer], ...]]:
    """Name the times between two kernels, latest first, by walking back from what released the
    second: all of them at once, one cause further back each round."""
    found: list[tuple[NDArray[np.integer], ...]] = []

    def add(these: NDArray[np.bool_], begin: Times, until: Times, cause: NDArray[np.int64]) -> None:
        found.append((role[these], begin[these], until[these], cause[these]))

    until, cause = end, played.released_by[op]
    while len(cause):
        stream, bubble = graph.stream[cause], np.full(len(cause), _BUBBLE)
        ready = played.ready[cause]
        ours = (cause == NONE) | (stream == COMPUTE)
        sent = np.isin(stream, _SENDS)
        begin = np.maximum(start, np.where(sent, ready, played.start[cause]))
        begin[ours] = until[ours]
        add(until > begin, begin, until, _EXPOSED[stream])
        waits = ~ours & ~sent & (begin > np.maximum(start, ready))
        since = np.where(waits, np.maximum(start, ready), begin)
        add(waits, since, begin, bubble)
        ends = ours | (graph.role[cause] != role)
        add(ends & (since > start), start, since, bubble)
        on = ~ends & (since > start)
        role, start, until, cause = role[on], start[on], since[on], played.released_by[cause[on]]
    return found


def _tails(
    graph: Graph, played: Played, last: Times, until: Times
) -> tuple[NDArray[np.integer], ...]:
    """Name the time after each role's last kernel: its own transfers, and else waiting for the
    others."""
    late = np.nonzero(np.isin(graph.stream, _CLOSING) & (played.end > last[graph.role]))[0]
    late = late[np.lexsort((played.start[late], graph.role[late]))]
    now, ends, found = last.tolist(), until.tolist(), list[tuple[int, int, int, int]]()
    columns = graph.role[late], played.start[late], played.end[late], _EXPOSED[graph.stream[late]]
    for role, start, end, cause in zip(*(column.tolist() for column in columns), strict=True):
        begin = max(now[role], start)
        if end > begin and now[role] < ends[role]:
            found += [(role, now[role], begin, _BUBBLE), (role, begin, end, cause)]
            now[role] = end
    found += [(role, since, ends[role], _BUBBLE) for role, since in enumerate(now)]
    return tuple(np.array(found, np.int64).reshape(-1, 4).T)


def critical_path(graph: Graph, played: Played, begins: Times) -> list[int]:
    """Operations in the order of time; those that take no time included. `begins` says when the
    step of each role does: what is before that of the role that takes longest, is the last step's.
    """
    path: list[int] = []
    if not len(graph):
        return path
    op = int(np.argmax(played.end - begins[graph.role]))
    begin = int(begins[graph.role[op]])
    # One number of an array takes numpy five times as long as a view of its memory.
    columns = played.start, played.ready, played.released_by, graph.group
    start, ready, released_by, group = (column.data for column in columns)
    while op >= 0 and start[op] >= begin:
        path.append(op)
        if start[op] > ready[op] and group[op] != NONE:
            # The member of its collective for which it waited.
            members = graph.members.row(group[op])
            op = members[int(np.argmax(played.ready[members]))]
        op = released_by[op]
    return path[::-1]


def steady_spans(graph: Graph, played: Played) -> tuple[Times, Times]:
    """When the first backward of each role starts and its last forward ends; both at the end where
    forwards are over before the first backward."""
    roles = len(graph.marks)
    passes = (graph.stream == COMPUTE) & (graph.microbatch >= 0)
    forward = graph.named("forward")
    first, last = np.full(roles, played.end.max(initial=0)), np.zeros(roles, np.int64)
    backwards = np.nonzero(passes & ~forward & ~graph.named("empty"))[0][::-1]
    first[graph.role[backwards]] = played.start[backwards]  # the first of each stays
    forwards = np.nonzero(passes & forward)[0]
    last[graph.role[forwards]] = played.end[forwards]
    return first, np.maximum(first, last)


def beginnings(graph: Graph, played: Played, program: Program) -> Times:
    """When the step of each role begins: together, or where the schedule is staggered as its first
    message arrives, less what opens the step beside that."""
    found = np.zeros(len(program.roles), np.int64)
    if program.schedule.staggered:
        for role, marks in enumerate(graph.marks):
            opening = played.end[graph.of_role(role).start : marks[0]]
            found[role] = max(0, played.start[marks[0]] - opening.max(initial=0))
    return found
