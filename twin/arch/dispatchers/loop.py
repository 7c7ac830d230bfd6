"""Experts one after another, each of which picks its rows by index (Hugging Face's mixtures before
transformers 5, `models/mixtral/modeling_mixtral.py`: MixtralSparseMoeBlock).

All choices become a mask of 8-byte numbers (`one_hot`). Each expert looks for its rows in its part
(`torch.where`, for whose number of rows the host waits), picks them, and adds what it gives, times
the routing weights, to the sum of all (`index_add_`). Backward of each pick writes zeros for all
tokens, adds the expert's rows, and adds that to the gradient so far: 8 bytes for each number of all
tokens, per expert. So memory traffic grows with experts times tokens, whoever they choose.

With expert ranks rows travel as in `alltoall`; no release of that library does this.
"""

from __future__ import annotations

from typing import Final

from twin.arch.dispatchers.alltoall import returned, sent
from twin.arch.dispatchers.base import ADDED, Way, gathered, held, summed
from twin.arch.kernels import COUNT, ELEMENT, streaming
from twin.arch.ops import Item, Op, Shape, Work
from twin.spec.model import Moe

ZEROS: Final = ELEMENT
"""Bytes of a number of the zeros that a pick's gradient begins with."""
SUM: Final = 3 * ELEMENT
"""Bytes per number of adding one gradient to another."""
MASKED: Final = 4
"""Times that a number of the mask is moved: zeros, ones, counted, found."""
_PICK: Final = (4, 3)
"""Kernels of an expert forward (counts, scan, indices, rows) and backward (zeros, rows, sum)."""
_ADD: Final = (3, 4)
"""Forward the weights, their product, the sum; backward rows, both products, the weights."""


def dispatch(way: Way, moe: Moe, shape: Shape) -> tuple[Item, ...]:
    """Pick, expert by expert."""
    return (*sent(way, moe, shape, _picked(way, moe, shape)), *gathered(way, shape))


def combine(way: Way, moe: Moe, shape: Shape) -> tuple[Item, ...]:
    """Weigh and add, expert by expert."""
    own, experts = way.tokens * moe.top_k, held(moe, shape)
    # Rows times weights, then rows and the sum; backward rows, and both products.
    forward = Work(0.0, ELEMENT * (way.tokens + (3 + ADDED) * own), _ADD[0] * experts)
    gradients = Work(0.0, ELEMENT * (2 + 2 + 2) * own, _ADD[1] * experts)
    added = streaming(
        "combine_unpermute", forward, gradients, ELEMENT * own, ELEMENT * way.tokens, "gather"
    )
    return (*summed(way, shape), *returned(way, shape), added)


def _picked(way: Way, moe: Moe, shape: Shape) -> Op:
    own, experts = way.tokens * moe.top_k, held(moe, shape)
    mask = float(MASKED * COUNT * shape.local_tokens * moe.top_k * moe.experts)
    whole = experts * (ZEROS + SUM) * way.tokens
    forward = Work(0.0, mask + way.width * 2 * own, _PICK[0] * experts)
    gradients = Work(0.0, whole + ELEMENT * (1 + ADDED) * own, _PICK[1] * experts)
    return streaming("dispatch_permute", forward, gradients, 0.0, way.width * own, "gather")
