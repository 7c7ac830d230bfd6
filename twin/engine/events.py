"""A graph played event by event, in integer nanoseconds.

Two players do the same to the nanosecond: `twin.engine.player`, which says how, and the same as
machine code (`twin.compiled.player`), wherever it is at hand.
"""

from __future__ import annotations

from twin.compiled import machine
from twin.engine.graph import Graph
from twin.engine.played import Played, Progress
from twin.engine.program import Program


def play(graph: Graph, program: Program, progress: Progress | None = None) -> Played:
    """Play every operation of the graph. Raises `DeadlockError` when some never start."""
    code = machine.code()
    if code is None:
        from twin.engine.player import play as play_in_python  # noqa: PLC0415

        return play_in_python(graph, program, progress)
    from twin.engine.machine_player import play as play_compiled  # noqa: PLC0415

    return play_compiled(code, graph, program, progress)
