"""Places of fixed number per expert, filled by a product with a one-hot mask (GShard,
arXiv:2006.16668, algorithm 2; DeepSpeed, `moe/sharded_moe.py`, `MOELayer` without Tutel).

Each expert has `Shape.capacity` x tokens x top-k / experts places on a rank; tokens beyond them are
dropped, empty ones are zeros, so that every rank sends, and computes on, all places. Nothing is
counted and the host waits for nothing.

The mask has a number for each token and place, tokens x tokens x top-k x capacity: it is made in
fp32 for each choice, added up, turned to booleans and to bf16. Both products multiply it by all
tokens, 2 x tokens x places x hidden FLOP, which grows with the square of tokens: beyond a few
thousand it is most of a layer. Backward of the combine needs two products, for the rows and for the
mask's routing weights.
"""

from __future__ import annotations

from dataclasses import replace

from twin.arch.dispatchers.alltoall import returned
from twin.arch.dispatchers.base import Way, gathered, summed
from twin.arch.kernels import ELEMENT, SINGLE, Matmul, streaming
from twin.arch.ops import Exchange, Item, Op, Shape, Work
from twin.spec.model import Moe

BOOLEAN = 1


def dispatch(way: Way, moe: Moe, shape: Shape) -> tuple[Item, ...]:
    """Mask, product, exchange."""
    tokens, places = shape.local_tokens, round(way.rows)
    hidden = round(way.tokens / tokens)
    found: list[Item] = [_mask(tokens * places, moe.top_k)]
    found.append(_product("dispatch_permute", Matmul(places, tokens, hidden)))
    if shape.expert > 1:
        both, size = "all_to_all", ELEMENT * way.copies
        found.append(Exchange("dispatch", "expert", way.width * way.copies, both, both, 0.0, size))
    return (*found, *gathered(way, shape))


def combine(way: Way, moe: Moe, shape: Shape) -> tuple[Item, ...]:
    """Exchange, product with the weighed mask."""
    del moe
    tokens, places = shape.local_tokens, round(way.rows)
    hidden = round(way.tokens / tokens)
    own = _product("combine_unpermute", Matmul(tokens, places, hidden))
    kept = replace(own, saved=float(ELEMENT * places * hidden))
    weights = Matmul(tokens, hidden, places).forward()
    scores = Op("combine_scores", "gemm", Work(), weights)
    return (*summed(way, shape), *returned(way, shape), kept, scores)


def _product(name: str, matmul: Matmul) -> Op:
    """Of the mask and rows; backward the mask turned and the rows' gradients, as much work."""
    out = float(ELEMENT * matmul.rows * matmul.outputs)
    turned = Matmul(matmul.inputs, matmul.rows, matmul.outputs)
    return Op(name, "gemm", matmul.forward(), turned.forward(), output=out)


def _mask(values: int, top_k: int) -> Op:
    """Of each choice a mask in fp32, written and read; their sum; booleans and two copies in bf16,
    which are kept. Backward the copy's gradient in bf16 becomes fp32, and each choice reads it."""
    made = SINGLE * (2 * top_k + 2) + BOOLEAN * 2 + ELEMENT * 2
    gradients = ELEMENT + SINGLE * (1 + top_k)
    forward = Work(0.0, float(made * values), 2 * top_k + 4)
    backward = Work(0.0, float(gradients * values), 2 + 2 * top_k)
    kept = float(2 * ELEMENT * values)
    return streaming("dispatch_mask", forward, backward, kept, float(SINGLE * values), "routing")
