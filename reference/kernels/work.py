"""How much kernels would compute that only make shapes: on the meta device they say so here, to
whoever counts (`reference.shapes`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_counters: list[Callable[[float], None]] = []


@contextmanager
def counted(counter: Callable[[float], None]) -> Iterator[None]:
    """Within, the counter is called with the FLOP of each such kernel."""
    _counters.append(counter)
    try:
        yield
    finally:
        _counters.remove(counter)


def computes(flop: float) -> None:
    """A kernel would compute this much, a multiply-add being two."""
    for counter in _counters:
        counter(flop)
