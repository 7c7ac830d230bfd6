"""A copy of a token per chosen expert, straight to its rank (DeepSeek-V3, arXiv:2412.19437, section
2.1.2; Megatron-LM's `alltoall`).

Ranks first tell each other how many rows will come for each expert, 8 bytes a number, and the host
waits for it, since it has to size what it receives into; with `Shape.capacity` rows are dropped and
padded to as many for each, and nobody asks (`moe_pad_expert_input_to_capacity`). Routing weights
travel with their rows, 4 bytes each, or with `Shape.weights_apart` in an all-to-all of their own
(`token_dispatch`).

`Shape.permute` is how rows come into order of experts on the sender. Fused, a kernel reads each
token once and writes its copies, and back reads copies and writes their sum (Transformer Engine,
`moe_permute`). Unfused, copies are picked by index and added to zeros (Megatron-LM, `moe_utils`:
`index_select`, `scatter_add_`): 2 to 3 times the bytes where sums are made.
"""

from __future__ import annotations

from twin.arch.dispatchers.base import (
    Way,
    back,
    gathered,
    scattered,
    selected,
    sorted_after_exchange,
    summed,
    there,
)
from twin.arch.kernels import COUNT, ELEMENT, SINGLE
from twin.arch.ops import Exchange, Item, Op, Shape, Streaming
from twin.spec.model import Moe


def dispatch(way: Way, moe: Moe, shape: Shape) -> tuple[Item, ...]:
    """Permute, counts, exchange, sort."""
    steps: list[Item] = [*sent(way, moe, shape, permuted(way, moe, shape))]
    steps += gathered(way, shape)
    if sorted_after_exchange(moe, shape):
        steps.append(there("dispatch_sort", way, way.routed, way.routed, _order(shape)))
    return tuple(steps)


def combine(way: Way, moe: Moe, shape: Shape) -> tuple[Item, ...]:
    """Sort, exchange, sum."""
    steps: list[Item] = []
    if sorted_after_exchange(moe, shape):
        steps.append(back("combine_sort", way, way.routed, way.routed, _order(shape)))
    own = way.tokens * moe.top_k * (shape.capacity or 1.0)
    last = (
        back("combine_unpermute", way, own, way.tokens, shape.ordering)
        if shape.permute == "fused"
        else scattered("combine_unpermute", way, "gather", own, way.tokens)
    )
    return (*steps, *summed(way, shape), *returned(way, shape), last)


def _order(shape: Shape) -> Streaming:
    """Of rows by expert: chunks of one size are one tensor, turned (`drop_and_pad`)."""
    return "bandwidth" if shape.capacity else "gather"


def permuted(way: Way, moe: Moe, shape: Shape) -> Op:
    """Tokens in order of experts."""
    own = way.tokens * moe.top_k * (shape.capacity or 1.0)
    if shape.permute == "fused":
        return there("dispatch_permute", way, way.tokens, own, shape.ordering)
    return selected("dispatch_permute", way, "gather", way.tokens, own)


def sent(way: Way, moe: Moe, shape: Shape, permute: Op) -> tuple[Item, ...]:
    """The kernel that orders rows, and their exchange."""
    if shape.expert == 1:
        return (permute,)
    both, weights = "all_to_all", SINGLE * way.rows
    beside = 0.0 if shape.weights_apart else weights
    there, gradients = (width * way.copies + beside for width in (way.width, ELEMENT))
    asked = float(COUNT * moe.experts)
    counts = Exchange("expert_counts", "expert", asked, both, None, asks=True)
    steps: list[Item] = [] if shape.capacity else [counts]
    steps += [permute, Exchange("dispatch", "expert", there, both, both, 0.0, gradients)]
    if shape.weights_apart and weights:
        steps.append(Exchange("dispatch_weights", "expert", weights, both, both))
    return tuple(steps)


def returned(way: Way, shape: Shape) -> tuple[Item, ...]:
    """The exchange of results."""
    if shape.expert == 1:
        return ()
    wide, gradients, both = ELEMENT * way.copies, way.width * way.copies, "all_to_all"
    return (Exchange("combine", "expert", wide, both, both, 0.0, gradients),)
