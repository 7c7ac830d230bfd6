"""Popularity by Zipf's law: the i-th most popular expert gets a part in proportion to 1 / i^s."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Annotated, Final, Literal

from pydantic import Field, Strict

from twin.routing.base import Routing, in_blocks

DRAWS: Final = 64
"""Random placements over which loads are averaged; their mean is within 1 % (s up to 1)."""
MOST_DRAWN: Final = 1_000_000
"""Experts placed in all draws together, for models with very many."""


class Zipf(Routing):
    """Popularity falls with rank by a power law; experts lie on ranks in random order.

    An expert's number is settled before training and says nothing of its popularity, so which
    experts share a rank is chance. The loads are the mean over random placements of the fullest
    rank's, of the second fullest's, and so on: no seed's luck. With Kimi K2's 384 experts on 16
    ranks and s = 0.2 the fullest rank gets 1.10 times the mean; were experts numbered by popularity
    it would get 1.70 times, and placed with care (replicas, pairs of strong and weak) about 1.00.
    """

    kind: Literal["zipf"] = Field(description="routing")
    s: Annotated[float, Strict(), Field(ge=0, le=4)] = Field(
        description="exponent: the i-th most popular expert gets 1 / i^s; 0 is balanced"
    )

    def shares(self, experts: int) -> tuple[float, ...]:
        """Most popular first."""
        weights = [(place + 1) ** -self.s for place in range(experts)]
        total = sum(weights)
        return tuple(weight / total for weight in weights)

    def rank_loads(self, experts: int, ranks: int) -> tuple[float, ...]:
        """Fullest first."""
        return (1.0,) * ranks if self.s == 0 else _mean_loads(self.shares(experts), ranks)


@cache
def _mean_loads(shares: tuple[float, ...], ranks: int) -> tuple[float, ...]:
    placed, chance = list(shares), Random(0)
    draws = max(1, min(DRAWS, MOST_DRAWN // len(shares)))
    total = [0.0] * ranks
    for _ in range(draws):
        chance.shuffle(placed)
        for place, one in enumerate(sorted(in_blocks(placed, ranks), reverse=True)):
            total[place] += one
    return tuple(one / draws for one in total)
