"""A token is sent once to each rank that holds any of its experts, straight from the hidden state
(DeepEP, `csrc/kernels`; HybridEP, whose own kernels order rows, `Shape.ordering`). The receiving
rank copies rows out to its experts, and sums up what they give before it sends that back. Exchanges
say what a plain all-to-all would carry: which copies share a way is for collectives to say
(`twin.collectives.spread`, also of `Shape.arriving`). Routing weights travel free.
"""

from __future__ import annotations

from twin.arch.dispatchers.alltoall import returned
from twin.arch.dispatchers.base import Way, back, gathered, summed, there
from twin.arch.kernels import ELEMENT
from twin.arch.ops import Exchange, Item, Shape
from twin.spec.model import Moe


def dispatch(way: Way, moe: Moe, shape: Shape) -> tuple[Item, ...]:
    """Exchange, then copies in order of experts."""
    del moe
    both, gradients = "all_to_all", ELEMENT * way.copies
    sent = Exchange("dispatch", "expert", way.width * way.copies, both, both, 0.0, gradients)
    permute = there("dispatch_permute", way, way.arrived, way.routed, shape.ordering)
    return (sent, *gathered(way, shape), permute)


def combine(way: Way, moe: Moe, shape: Shape) -> tuple[Item, ...]:
    """Sums per arrived token, then the exchange."""
    del moe
    unpermute = back("combine_unpermute", way, way.routed, way.arrived, shape.ordering)
    return (unpermute, *summed(way, shape), *returned(way, shape))
