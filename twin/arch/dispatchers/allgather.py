"""Every rank gets all tokens of its expert group, and picks those of its own experts (Megatron-LM,
`MoEAllGatherTokenDispatcher`, its default until 2025).

Forward it gathers routing weights for all experts (4 bytes each), hidden states, and the map of
choices (a byte each); then the host waits for the numbers of rows (`tokens_per_expert.cpu()`).
Results are added to zeros of the size of all tokens, which are reduce-scattered. So what a rank
receives grows with ranks where an all-to-all's does not: as much as that of top-k copies where the
group has top-k ranks. The fullest rank computes more, and receives no more.

The gathered tokens are free again once rows are picked.
"""

from __future__ import annotations

from twin.arch.dispatchers.base import Way, back, gathered, scattered, selected, summed, there
from twin.arch.kernels import ELEMENT, SINGLE
from twin.arch.ops import Exchange, Item, Op, Shape
from twin.spec.model import Moe


def dispatch(way: Way, moe: Moe, shape: Shape) -> tuple[Item, ...]:
    """Gathers, counts, rows of own experts."""
    return (*_gathers(way, moe, shape), *gathered(_all(way, shape), shape), _picked(way, shape))


def combine(way: Way, moe: Moe, shape: Shape) -> tuple[Item, ...]:
    """Rows of all tokens, then their sum over ranks."""
    del moe
    whole = _all(way, shape)
    put: Op = (
        back("combine_unpermute", way, way.routed, whole.arrived, shape.ordering)
        if shape.permute == "fused"
        else scattered("combine_unpermute", way, "gather", way.routed, whole.arrived)
    )
    return (put, *summed(whole, shape), *_sums(way, shape))


def _picked(way: Way, shape: Shape) -> Op:
    whole = _all(way, shape).arrived
    if shape.permute == "fused":
        return there("dispatch_permute", way, way.routed, way.routed, shape.ordering)
    return selected("dispatch_permute", way, "gather", whole, way.routed)


def _all(way: Way, shape: Shape) -> Way:
    """The way of the tokens of all ranks."""
    tokens = way.tokens * shape.expert
    return Way(tokens, way.rows, way.copies, tokens * shape.expert_tensor, way.routed, way.width)


def _gathers(way: Way, moe: Moe, shape: Shape) -> tuple[Item, ...]:
    if shape.expert == 1:
        return ()
    gather, sums, whole = "all_gather", "reduce_scatter", way.tokens * shape.expert
    choices = float(shape.local_tokens * moe.experts * shape.expert)
    return (
        Exchange("dispatch_weights", "expert", SINGLE * choices, gather, sums),
        Exchange("dispatch", "expert", way.width * whole, gather, sums, 0.0, ELEMENT * whole),
        Exchange("expert_counts", "expert", choices, gather, None, asks=True),
    )


def _sums(way: Way, shape: Shape) -> tuple[Item, ...]:
    if shape.expert == 1:
        return ()
    whole = way.tokens * shape.expert
    sums, gather = "reduce_scatter", "all_gather"
    return (Exchange("combine", "expert", ELEMENT * whole, sums, gather, 0.0, way.width * whole),)
