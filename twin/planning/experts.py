"""What the routing of a run makes of its expert ranks: the load of the fullest, and over how many
ranks and nodes the experts of a token spread."""

from __future__ import annotations

from typing import Final

from twin.collectives.spread import Spread, by_chance, spread
from twin.network.placement import Placement
from twin.routing import load, rank_loads
from twin.scenario import Scenario

MERGING: Final = ("deepep", "hybridep")
"""Dispatchers that send one copy of a token per place."""


def exchanged_tokens(scenario: Scenario) -> float:
    """Tokens that all ranks of an expert group send in one exchange."""
    parallel = scenario.parallel
    own = parallel.micro_batch * scenario.train.sequence / parallel.context
    return parallel.expert * own / (parallel.tensor if parallel.sequence_parallel else 1)


def expert_load(scenario: Scenario) -> float:
    """Rows of the fullest expert rank over the mean, in one layer and micro-batch."""
    moe, ranks = scenario.model.moe, scenario.parallel.expert
    if moe is None or places(scenario) is not None:
        return 1.0
    limit = (moe.groups, moe.top_groups) if moe.groups and moe.top_groups else None
    tokens = exchanged_tokens(scenario)
    return load(scenario.train.routing, moe.experts, ranks, moe.top_k, tokens, limit)


def layer_loads(scenario: Scenario) -> tuple[float, ...]:
    """The same of each layer with experts, where the routing tells them apart."""
    moe, ranks = scenario.model.moe, scenario.parallel.expert
    if moe is None or ranks == 1 or places(scenario) is not None:
        return ()
    return scenario.train.routing.layer_loads(moe.experts, ranks, moe.top_k)


def kept_load(scenario: Scenario, layers: float) -> float:
    """Rows of the rank that keeps most over all its layers, over the mean."""
    moe, routing = scenario.model.moe, scenario.train.routing
    if moe is not None and layer_loads(scenario):
        return max(1.0, *rank_loads(routing, moe.experts, scenario.parallel.expert, moe.top_k))
    return routing.over_layers(expert_load(scenario), layers)


def places(scenario: Scenario) -> float | None:
    """Places of an expert over its mean rows, where tokens are dropped and padded to them."""
    if scenario.model.moe is None:
        return None
    usual = 1.0 if scenario.parallel.dispatcher == "einsum" else None
    return scenario.train.expert_capacity or usual


def expert_spread(scenario: Scenario, placement: Placement) -> Spread | None:
    """How a token's experts spread over ranks and nodes, where the dispatcher merges copies."""
    moe, routing = scenario.model.moe, scenario.train.routing
    if moe is None or scenario.parallel.dispatcher not in MERGING:
        return None
    even = routing.kind == "balanced" or routing.drawn
    shares = None if even else routing.shares(moe.experts)
    found = spread(moe.experts, moe.top_k, placement, moe.groups, moe.top_groups, shares)
    return by_chance(found, placement, exchanged_tokens(scenario)) if routing.drawn else found


def arriving(scenario: Scenario) -> float | None:
    """Rows that reach the fullest expert rank per token, where the dispatcher merges copies."""
    if scenario.parallel.expert == 1:
        return None
    # On how many ranks experts lie does not depend on the nodes that these are in.
    ranks = Placement(scenario.parallel.expert, scenario.parallel.expert)
    found = expert_spread(scenario, ranks)
    if found is None:
        return None
    return found.ranks * found.fullest_rank
