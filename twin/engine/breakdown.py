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

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import islice
from operator import itemgetter
from typing import Final

from twin.engine.events import Played
from twin.engine.graph import Graph
from twin.engine.host import COLLECTED, ISSUE
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
    TENSOR,
    TO_HOST,
    Program,
)
from twin.engine.trace import CAUSES


def critical_path(graph: Graph, played: Played, begins: Sequence[int]) -> list[int]:
    """Operations in the order of time; those that take no time included. `begins` says when the
    step of each role does: what is before that of the role that takes longest, is the last step's.
    """
    path: list[int] = []
    lengths = [end - begins[role] for role, end in zip(graph.role, played.end, strict=True)]
    op = max(range(len(lengths)), key=lengths.__getitem__, default=-1)
    begin = begins[graph.role[op]] if lengths else 0
    while op >= 0 and played.start[op] >= begin:
        path.append(op)
        op = played.released_by[_last_to_come(graph, played, op)]
    return path[::-1]


def _last_to_come(graph: Graph, played: Played, op: int) -> int:
    """The operation itself, or the member of its collective for which it waited."""
    if played.start[op] == played.ready[op]:
        return op
    members = graph.rendezvous.get(op, [op])
    return max(members, key=played.ready.__getitem__)


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

Piece = tuple[int, int, str]
"""Start, end (ns) and category of a stretch of a role's compute stream."""


def pieces(graph: Graph, played: Played, role: int, until: int) -> list[Piece]:
    """The stretches of a role's compute stream from 0 to `until`, in order, without gaps."""
    result: list[Piece] = []
    now = since = 0
    kernels = "compute"
    operations = role_operations(graph, role)
    stream, name, start, end = graph.stream, graph.name, played.start, played.end
    for op in operations:
        if stream[op] != COMPUTE:
            continue
        kind = BY_NAME.get(name[op], "compute")
        if start[op] > now or kind != kernels:
            if now > since:
                result.append((since, now, kernels))
            if start[op] > now:
                result += _gap(graph, played, op, now, start[op])
            since, kernels = start[op], kind
        now = end[op]
        full = start[op] + graph.duration[op]
        if now > full:
            if full > since:
                result.append((since, full, kernels))
            result.append((full, now, "contention"))
            since = now
    if now > since:
        result.append((since, now, kernels))
    if until > now:
        streams = (DATA, TO_HOST, FROM_HOST, HOST)
        late = [op for op in operations if end[op] > now and stream[op] in streams]
        result += _tail(graph, played, late, (now, until))
    return result


def sums(stretches: list[Piece], start: int, end: int) -> dict[str, int]:
    """Nanoseconds per category between two times."""
    total: dict[str, int] = dict.fromkeys(CAUSES, 0)
    begin = max(0, bisect_right(stretches, start, key=itemgetter(0)) - 1)
    for first, last, category in islice(stretches, begin, None):
        if first >= end:
            break
        if last > start:
            total[category] += min(last, end) - max(first, start)
    return total


def steady_span(graph: Graph, played: Played, role: int) -> tuple[int, int]:
    """When a role's first backward starts and its last forward ends; both at the end where forwards
    are over before the first backward."""
    first, last = None, 0
    start, end, name = played.start, played.end, graph.name
    for op in role_operations(graph, role):
        if graph.microbatch[op] < 0 or graph.stream[op] != COMPUTE:
            continue
        if name[op] == "forward":
            last = end[op]
        elif first is None and name[op] != "empty":
            first = start[op]
    first = max(end) if first is None else first
    return first, max(first, last)


def beginnings(graph: Graph, played: Played, program: Program) -> list[int]:
    """When the step of each role begins: together, or where the schedule is staggered as its first
    message arrives, less what opens the step beside that."""
    if not program.schedule.staggered:
        return [0] * len(program.roles)
    found: list[int] = []
    for role, positions in enumerate(graph.positions):
        opening = range(role_operations(graph, role).start, positions[0])
        opened = max((played.end[op] for op in opening), default=0)
        found.append(max(0, played.start[positions[0]] - opened))
    return found


def role_operations(graph: Graph, role: int) -> range:
    """A role's operations lie together in the graph."""
    return range(bisect_left(graph.role, role), bisect_right(graph.role, role))


def _gap(graph: Graph, played: Played, op: int, start: int, end: int) -> list[Piece]:
    """Name the time between two kernels, latest first, by walking back from what released the
    second."""
    found: list[Piece] = []
    role = graph.role[op]
    cause, until = played.released_by[op], end
    while until > start:
        if cause < 0 or graph.stream[cause] == COMPUTE:
            found.append((start, until, "bubble"))
            break
        sent = graph.stream[cause] in (SEND_FORWARD, SEND_BACKWARD)
        begin = max(start, played.ready[cause] if sent else played.start[cause])
        if until > begin:
            found.append((begin, until, EXPOSED[graph.stream[cause]]))
        if begin > start and not sent and begin > played.ready[cause]:
            waited = max(start, played.ready[cause])
            found.append((waited, begin, "bubble"))
            begin = waited
        until = begin
        if graph.role[cause] != role:
            if until > start:
                found.append((start, until, "bubble"))
            break
        cause = played.released_by[cause]
    return found[::-1]


def _tail(graph: Graph, played: Played, late: list[int], span: tuple[int, int]) -> list[Piece]:
    """Name the time after a role's last kernel: its own transfers, and else waiting for the
    others."""
    found: list[Piece] = []
    now, until = span
    for op in sorted(late, key=lambda op: played.start[op]):
        begin = max(now, played.start[op])
        if played.end[op] <= begin:
            continue
        if begin > now:
            found.append((now, begin, "bubble"))
        found.append((begin, played.end[op], EXPOSED[graph.stream[op]]))
        now = played.end[op]
    if until > now:
        found.append((now, until, "bubble"))
    return found
