"""What dispatchers share: sizes on the way, and kernels that bring rows into order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twin.arch.kernels import ELEMENT, FP8, streaming
from twin.arch.ops import Exchange, Op, Shape, Streaming, Work
from twin.spec.model import Moe

ADDED: Final = 2
"""Times that a row is moved which is added to another with atomics: read and written."""


@dataclass(frozen=True, slots=True)
class Way:
    """Numbers (rows x hidden) that a rank has of its tokens, on their way to experts and back: the
    tokens; their copies, one per chosen expert; what arrives in the exchange; what experts read."""

    tokens: float
    rows: float
    """Copies, each as one."""
    copies: float
    arrived: float
    routed: float
    width: float
    """Bytes of a number where FP8 may travel: dispatched tokens, and the gradients that follow
    them."""

    @staticmethod
    def of(moe: Moe, hidden: int, shape: Shape) -> Way:
        """The sizes of one layer."""
        tokens = shape.local_tokens * hidden
        rows = shape.local_tokens * moe.top_k * load(shape)
        copies = rows * hidden
        arrived = copies if shape.arriving is None else tokens * shape.arriving
        return Way(
            tokens,
            rows,
            copies,
            arrived * shape.expert_tensor,
            copies * shape.expert_tensor,
            FP8 if shape.precision == "fp8" and not shape.per_tensor else ELEMENT,
        )


def load(shape: Shape) -> float:
    """Rows that the experts of the rank compute, over those that are sent to the mean rank."""
    return shape.expert_load if shape.capacity is None else shape.capacity


def held(moe: Moe, shape: Shape) -> int:
    """Experts of one rank."""
    return moe.experts // shape.expert


def sorted_after_exchange(moe: Moe, shape: Shape) -> bool:
    """Rows arrive by sender; a rank with several experts puts them in order of expert."""
    return shape.expert * shape.expert_tensor > 1 and shape.expert < moe.experts


def there(name: str, way: Way, before: float, after: float, kind: Streaming) -> Op:
    """A kernel that copies or reorders rows on their way to the experts: reads `before` numbers,
    writes `after`; backward sums or reorders their gradients the other way."""
    moved = before + after
    forward, gradients = Work(0.0, way.width * moved, 1), Work(0.0, ELEMENT * moved, 1)
    return streaming(name, forward, gradients, 0.0, way.width * after, kind)


def back(name: str, way: Way, before: float, after: float, kind: Streaming) -> Op:
    """The same on the way back: results in bf16, their gradients in what travels."""
    moved = before + after
    forward, gradients = Work(0.0, ELEMENT * moved, 1), Work(0.0, way.width * moved, 1)
    return streaming(name, forward, gradients, 0.0, ELEMENT * after, kind)


def selected(name: str, way: Way, kind: Streaming, tokens: float, rows: float) -> Op:
    """Rows picked by index, each read as often as it is chosen; backward zeros, to which the rows'
    gradients are added one by one (`index_select`, `index_add_`)."""
    forward = Work(0.0, way.width * 2 * rows, 1)
    gradients = Work(0.0, ELEMENT * (tokens + (1 + ADDED) * rows), 2)
    return streaming(name, forward, gradients, 0.0, way.width * rows, kind)


def scattered(name: str, way: Way, kind: Streaming, rows: float, tokens: float) -> Op:
    """Zeros, to which rows are added by index one by one; backward the gradients are picked
    (`scatter_add_`, `gather`)."""
    forward = Work(0.0, ELEMENT * (tokens + (1 + ADDED) * rows), 2)
    gradients = Work(0.0, way.width * 2 * rows, 1)
    return streaming(name, forward, gradients, 0.0, ELEMENT * tokens, kind)


def gathered(way: Way, shape: Shape) -> tuple[Exchange, ...]:
    """What arrives, over the ranks that share each expert."""
    if shape.expert_tensor == 1:
        return ()
    there, gradients = way.width * way.arrived, ELEMENT * way.arrived
    name, group = "dispatch_gather", "expert_tensor"
    return (Exchange(name, group, there, "all_gather", "reduce_scatter", backward_bytes=gradients),)


def summed(way: Way, shape: Shape) -> tuple[Exchange, ...]:
    """What comes out, summed over the ranks that share each expert."""
    if shape.expert_tensor == 1:
        return ()
    back, gradients = ELEMENT * way.arrived, way.width * way.arrived
    name, group = "combine_scatter", "expert_tensor"
    return (Exchange(name, group, back, "reduce_scatter", "all_gather", backward_bytes=gradients),)
