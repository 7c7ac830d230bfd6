"""Which points nobody would refuse: none other is as good in both respects and better in one."""

from __future__ import annotations

from collections.abc import Mapping


def frontier(figures: Mapping[int, tuple[float, float]]) -> tuple[int, ...]:
    """The keys of the points on the Pareto frontier, in their order, by two figures of which less
    is better; equal points are on it together.

    >>> frontier({0: (1.0, 9.0), 1: (2.0, 9.0), 2: (5.0, 4.0)})
    (0, 2)
    """
    kept: list[int] = []
    least = last = (float("inf"), float("inf"))
    for key in sorted(figures, key=lambda one: figures[one]):
        pair = figures[key]
        if pair[1] < least[1] or pair == last:
            kept.append(key)
            least = last = pair
    return tuple(sorted(kept))
