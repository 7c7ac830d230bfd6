"""A plain all-to-all whose rows are put in order by indexing, and padded (torchtitan,
`models/moe.py` and `distributed/expert_parallel.py`; prime-rl takes the same).

Choices are counted and sorted (`histc`, `argsort`), copies are picked by index. After the exchange
rows are copied behind a row of zeros (`vstack`), and picked by index once more, so that each
expert's number of them is a multiple of 8 (16 in FP8), which `torch._grouped_mm` wants; results are
put back by index, sent, and added to zeros. Backward of each pick adds to zeros. Without expert
ranks rows are padded all the same (`indices_padding_wrapper`).

Padding computes on half a multiple more per expert; that is left out, as it is less than a tile.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from twin.arch.dispatchers.alltoall import returned, sent
from twin.arch.dispatchers.base import ADDED, Way, gathered, scattered, selected, summed
from twin.arch.kernels import ELEMENT, streaming
from twin.arch.ops import Item, Op, Shape, Work
from twin.spec.model import Moe

_SORT: Final = 8
"""Kernels that count and sort choices, and pick their weights: histc, a radix sort of four passes,
a division, two picks."""
_FILL: Final = 3
"""Kernels that make the padded indices: sums, and the kernel that fills them."""


def dispatch(way: Way, moe: Moe, shape: Shape) -> tuple[Item, ...]:
    """Sort, pick, exchange, pad."""
    own = way.tokens * moe.top_k
    picked = _more(selected("dispatch_permute", way, "gather", way.tokens, own), _SORT)
    return (*sent(way, moe, shape, picked), *gathered(way, shape), _padded(way))


def combine(way: Way, moe: Moe, shape: Shape) -> tuple[Item, ...]:
    """Unpad, exchange, add."""
    moved = Work(0.0, ELEMENT * 2 * way.routed, 1)
    unpad = streaming("combine_sort", moved, moved, 0.0, ELEMENT * way.routed, "gather")
    added = scattered("combine_unpermute", way, "gather", way.tokens * moe.top_k, way.tokens)
    return (unpad, *summed(way, shape), *returned(way, shape), added)


def _padded(way: Way) -> Op:
    rows = way.routed
    forward = Work(0.0, way.width * 4 * rows, 2 + _FILL)
    backward = Work(0.0, ELEMENT * (2 + ADDED) * rows, 2)
    return streaming("dispatch_sort", forward, backward, 0.0, way.width * rows, "gather")


def _more(op: Op, kernels: int) -> Op:
    """The op with so many small kernels before it."""
    work = replace(op.forward, kernels=op.forward.kernels + kernels)
    return replace(op, forward=work)
