"""What a player makes of a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from twin.engine.graph import Graph

Progress = Callable[[float], None]
"""Called now and then with the share of operations that are done."""


ANNOUNCE: Final = 20_000
"""Operations between two calls of a progress callback."""

Times = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Played:
    """When each operation of a graph was ready, started and ended (ns), and which operation's end
    released it (-1: none)."""

    ready: Times
    start: Times
    end: Times
    released_by: Times
    events: int
    shared: bool
    """True when flows met on a link, or kernels and communication on SMs."""


class DeadlockError(RuntimeError):
    """Some operations can never start; a bug in a schedule, not in a scenario."""


def check_all_ended(graph: Graph, end: Times) -> None:
    """Raise `DeadlockError` where an operation has never ended."""
    stuck = np.nonzero(end < 0)[0]
    if len(stuck):
        op = int(stuck[0])
        where = f"chunk {graph.chunk[op]}, micro-batch {graph.microbatch[op]}"
        raise DeadlockError(f"{graph.names[graph.name[op]]} of {where} never starts")
