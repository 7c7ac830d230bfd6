"""What every routing answers: how many of the chosen copies go to each expert, and to each rank."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from twin.routing.chance import copies, fullest
from twin.spec.base import Spec

Weight = Annotated[float, Field(gt=0, le=1e18)]
"""Tokens, or any other measure in proportion to them."""


class Routing(Spec):
    """How tokens spread over experts."""

    # Each member narrows it to its one literal; see `twin.optimizers.base.Optimizer`.
    kind: Any
    drawn: ClassVar[bool] = False
    """Whether chance moves tokens between experts from layer to layer (`twin.routing.chance`)."""

    @abstractmethod
    def shares(self, experts: int) -> tuple[float, ...]:
        """Of all copies of tokens the part that goes to each expert, by its number; they add up
        to 1."""

    def over_layers(self, load: float, layers: float) -> float:  # noqa: ARG002 (members may use it)
        """Load of the fullest rank over all its `layers` with experts, from that in one layer. The
        same, as long as nothing says that ranks are full in different layers."""
        return load

    def loads_in(
        self,
        layer: int,  # noqa: ARG002 (members may use it)
        experts: int,
        ranks: int,
        top_k: int,
    ) -> tuple[float, ...]:
        """Rows of each rank in the n-th layer with experts, over the mean of ranks."""
        return rank_loads(self, experts, ranks, top_k)

    def layer_loads(
        self,
        experts: int,  # noqa: ARG002 (members may use them)
        ranks: int,  # noqa: ARG002
        top_k: int,  # noqa: ARG002
    ) -> tuple[float, ...]:
        """Load of the fullest rank in each layer with experts; empty: it is the same in all."""
        return ()


def rank_loads(routing: Routing, experts: int, ranks: int, top_k: int = 1) -> tuple[float, ...]:
    """Rows that each rank's experts get, over the mean of ranks; they add up to `ranks`, which
    divides `experts`. A token chooses `top_k` experts."""
    return rank_shares(routing.shares(experts), ranks, top_k)


def rank_shares(shares: Sequence[float], ranks: int, top_k: int) -> tuple[float, ...]:
    """The same of experts that have these shares of all copies."""
    return in_blocks(taken(shares, top_k), ranks)


def load(
    routing: Routing,
    experts: int,
    ranks: int,
    top_k: int = 1,
    tokens: float = 0.0,
    limit: tuple[int, int] | None = None,
) -> float:
    """Rows of the fullest rank over the mean of ranks, mean over layers; at least 1, and 1 if all
    are alike. `tokens`
    are those that all ranks send in one exchange, which chance needs to know; `limit` as in
    `twin.routing.chance.copies`."""
    if ranks == 1 or routing.kind == "balanced":
        return 1.0
    if routing.drawn:
        return fullest(ranks, tokens, top_k / ranks, copies(experts, top_k, ranks, limit))
    layers = routing.layer_loads(experts, ranks, top_k)
    if layers:
        return sum(layers) / len(layers)
    return max(1.0, *rank_loads(routing, experts, ranks, top_k))


def taken(shares: Sequence[float], top_k: int) -> tuple[float, ...]:
    """What experts get of shares that some cannot take: a token chooses an expert once, so that
    nobody gets more than 1 of `top_k` copies. The rest goes to the others, as they are popular."""
    most, full = 1 / top_k, 0
    order = sorted(range(len(shares)), key=shares.__getitem__, reverse=True)
    left = sum(shares)
    while full < len(order) and shares[order[full]] * (1 - full * most) > most * left:
        left -= shares[order[full]]
        full += 1
    if not full:
        return tuple(shares)
    scale = max(0.0, 1 - full * most) / left if full < len(order) else 0.0
    found = [share * scale for share in shares]
    for expert in order[:full]:
        found[expert] = most
    return tuple(found)


def in_blocks(shares: Sequence[float], ranks: int) -> tuple[float, ...]:
    """Loads of ranks that hold neighbouring experts each, as many on every rank."""
    own = len(shares) // ranks
    return tuple(ranks * sum(shares[rank * own : (rank + 1) * own]) for rank in range(ranks))
