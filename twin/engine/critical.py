"""The critical path of a played step: the chain of operations that made it as long as it is.

Walked back from the operation that ended last, each time to what released it. For a collective that
waited for its members it goes on with the member that came last. Any of these shorter, and the step
is shorter, unless another chain is as long; every operation off the path may wait a little.
"""

from __future__ import annotations

from collections.abc import Sequence

from twin.engine.events import Played
from twin.engine.graph import Graph


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
