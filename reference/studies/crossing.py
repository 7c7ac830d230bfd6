"""Where a loss curve reaches a level."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import exp, log

Point = tuple[float, float]
"""(tokens or FLOP, loss)."""


def reached(curve: Sequence[Point], level: float) -> float | None:
    """The first place at which the loss is at most `level`, between two points along the straight
    line over the logarithm of the place, since losses fall about evenly with it; None where the
    curve stays above. A curve that begins at or below the level gives its first place, an upper
    bound.

    >>> reached([(100, 3.0), (400, 2.0)], 2.5)
    200.0
    """
    if curve and curve[0][1] <= level:
        return float(curve[0][0])
    for (start, above), (end, below) in pairwise(curve):
        if below <= level:
            part = (above - level) / (above - below)
            return round(exp(log(start) + part * (log(end) - log(start))), 6)
    return None
