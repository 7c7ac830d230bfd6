"""What every routing answers: how many of the chosen copies go to each expert, and to each rank."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from twin.spec.base import Spec


class Routing(Spec):
    """How tokens spread over experts."""

    # Each member narrows it to its one literal; see `twin.optimizers.base.Optimizer`.
    kind: Any

    @abstractmethod
    def shares(self, experts: int) -> tuple[float, ...]:
        """Of all copies of tokens the part that goes to each expert, by its number; they add up
        to 1."""


def rank_loads(routing: Routing, experts: int, ranks: int) -> tuple[float, ...]:
    """Rows that each rank's experts get, over the mean of ranks; they add up to `ranks`, which
    divides `experts`."""
    return in_blocks(routing.shares(experts), ranks)


def load(routing: Routing, experts: int, ranks: int) -> float:
    """Rows of the fullest rank over the mean of ranks; at least 1, and 1 if all are alike."""
    if ranks == 1 or routing.kind == "balanced":
        return 1.0
    return max(1.0, *rank_loads(routing, experts, ranks))


def in_blocks(shares: Sequence[float], ranks: int) -> tuple[float, ...]:
    """Loads of ranks that hold neighbouring experts each, as many on every rank."""
    own = len(shares) // ranks
    return tuple(ranks * sum(shares[rank * own : (rank + 1) * own]) for rank in range(ranks))
