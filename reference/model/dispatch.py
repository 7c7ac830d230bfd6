"""Rows of tokens to their experts and back, as gathers both ways: forward and backward are
permutations and sums over a token's own copies, so that the result is the same every time (a
scatter with atomic additions would not be).

Shapes: N tokens, K experts per token, E experts, R = N K rows in order of expert, D hidden.

Rows of tokens to experts on other ranks and back: the all-to-alls of expert parallelism.

Each rank of an expert group brings its own tokens and holds E / ranks of the experts. Copies go out
in order of expert, so that those for one rank are neighbours; there they are sorted by expert, over
all senders, and what comes out goes back the same way. Backward is the same, the other way round.
A routing weight travels with its row, as further numbers of it, since it multiplies inside the
experts; its gradient comes back with the row's.

Shapes: N tokens, K experts per token, E experts of the layer, L of them here, G ranks, R = N K rows
sent, S rows received, D hidden, W = D and the weight's place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional


class Order(NamedTuple):
    """Where the copies of tokens go."""

    copies_R: Tensor
    """The copy, n K + k, that is each row."""
    rows_R: Tensor
    """The row of each copy: the inverse."""
    ends_E: Tensor
    """int32: the row behind the last one of each expert."""
    load_E: Tensor
    """int64: rows of each expert."""


def order_of(chosen_NK: Tensor, experts: int) -> Order:
    """Copies sorted by expert, those of one expert by token."""
    flat_R = chosen_NK.flatten()
    copies_R = flat_R.argsort(stable=True)
    rows_R = torch.empty_like(copies_R)
    rows_R[copies_R] = torch.arange(copies_R.numel(), device=copies_R.device)
    # `bincount` would do, but for the meta device, and waits for a GPU.
    load_E = flat_R.new_zeros(experts).scatter_add_(0, flat_R, torch.ones_like(flat_R))
    return Order(copies_R, rows_R, load_E.cumsum(0).to(torch.int32), load_E)


def spread(x_ND: Tensor, order: Order, top_k: int) -> Tensor:
    """One row per copy of a token, in order of expert: [R, D]."""
    return _Spread.apply(x_ND, order.copies_R, order.rows_R, top_k)


def gather(y_RD: Tensor, order: Order, top_k: int) -> Tensor:
    """Each token's rows summed, in fp32 where they are narrower: [N, D]."""
    return _Gather.apply(y_RD, order.copies_R, order.rows_R, top_k)


def _sum_copies(y_RD: Tensor, rows_R: Tensor, top_k: int) -> Tensor:
    if y_RD.device.type == "cpu":  # one pass over the rows, where PyTorch's index is slow
        return functional.embedding_bag(rows_R.view(-1, top_k), y_RD, mode="sum")
    return y_RD[rows_R].unflatten(0, (-1, top_k)).sum(1)


class _Spread(torch.autograd.Function):
    """Keeps the order of rows; its gradient sums the copies of each token."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, x_ND: Tensor, copies_R: Tensor, rows_R: Tensor, top_k: int
    ) -> Tensor:
        ctx.save_for_backward(rows_R)
        ctx.top_k = top_k  # pyright: ignore[reportAttributeAccessIssue]
        return x_ND.index_select(0, copies_R // top_k)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad_RD: Tensor) -> tuple[Tensor, None, None, None]:
        (rows_R,) = ctx.saved_tensors  # pyright: ignore[reportAttributeAccessIssue]
        top_k: int = ctx.top_k  # pyright: ignore[reportAttributeAccessIssue]
        return _sum_copies(grad_RD, rows_R, top_k), None, None, None


class _Gather(torch.autograd.Function):
    """Keeps the order of copies; its gradient gives every copy that of its token."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, y_RD: Tensor, copies_R: Tensor, rows_R: Tensor, top_k: int
    ) -> Tensor:
        ctx.save_for_backward(copies_R)
        ctx.top_k = top_k  # pyright: ignore[reportAttributeAccessIssue]
        return _sum_copies(y_RD, rows_R, top_k)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad_ND: Tensor) -> tuple[Tensor, None, None, None]:
        (copies_R,) = ctx.saved_tensors  # pyright: ignore[reportAttributeAccessIssue]
        top_k: int = ctx.top_k  # pyright: ignore[reportAttributeAccessIssue]
        return grad_ND.index_select(0, copies_R // top_k), None, None, None


class RowExchange(Protocol):
    """The ranks of an expert group."""

    size: int

    def counts(self, load_E: Tensor, rows: int) -> tuple[Tensor, list[int], list[int]]:
        """What every rank sends to the experts here, [G, L], and the rows that this rank sends to
        each rank, and receives from it; `load_E` are the rows that it sends to each expert."""
        ...

    def swap(self, rows: Tensor, sent: Sequence[int], received: Sequence[int], name: str) -> Tensor:
        """Send rows to every rank, in order, and get those for this one."""
        ...


@dataclass(frozen=True, slots=True)
class Route:
    """How the rows of one layer travel."""

    order: Order
    top_k: int
    exchange: RowExchange
    sent: list[int]
    """Rows to each rank."""
    received: list[int]
    """Rows from each rank."""
    sorted_S: Tensor
    """The received row that is each row in order of expert."""
    arrived_S: Tensor
    """The inverse."""
    ends_L: Tensor
    """int32: the row behind the last one of each expert here."""


def route(order: Order, top_k: int, exchange: RowExchange) -> Route:
    """Agree on who sends how much."""
    counts_GL, sent, received = exchange.counts(order.load_E, order.copies_R.numel())
    sorted_S = _by_expert(counts_GL, sum(received))
    arrived_S = torch.empty_like(sorted_S)
    arrived_S[sorted_S] = torch.arange(sorted_S.numel(), device=sorted_S.device)
    ends_L = counts_GL.sum(0).cumsum(0).to(torch.int32)
    return Route(order, top_k, exchange, sent, received, sorted_S, arrived_S, ends_L)


def dispatch(x_ND: Tensor, weights_NK: Tensor, way: Route) -> tuple[Tensor, Tensor]:
    """The rows for the experts here, in order of expert, [S, D], and their routing weights, [S]."""
    packed_RW = _Pack.apply(x_ND, weights_NK, way)
    came_SW = _Swap.apply(packed_RW, way, "dispatch", False)
    del packed_RW
    return _Unpack.apply(came_SW, way, weights_NK.dtype)  # pyright: ignore[reportReturnType]


def combine(y_SD: Tensor, way: Route) -> Tensor:
    """Each token's rows back from all experts and summed: [N, D]."""
    rows_SD = _Permute.apply(y_SD, way)
    # All rows of a rank are its largest tensor: no two more of them than a step needs.
    del y_SD
    back_RD = _Swap.apply(rows_SD, way, "combine", True)
    del rows_SD
    return gather(back_RD, way.order, way.top_k)  # pyright: ignore[reportArgumentType]


def _by_expert(counts_GL: Tensor, rows: int) -> Tensor:
    """Received rows lie by sender and then by expert; where they lie by expert and then sender."""
    ranks, experts = counts_GL.shape
    expert_GL = torch.arange(experts, device=counts_GL.device).expand(ranks, -1)
    owner_S = expert_GL.flatten().repeat_interleave(counts_GL.flatten(), output_size=rows)
    return owner_S.argsort(stable=True)


def _places(kind: torch.dtype) -> int:
    """Numbers of a row that a weight takes: its 4 bytes, or 8 in float64."""
    return 1 if kind == torch.float64 else 32 // torch.finfo(kind).bits


def _packed(rows: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
    """`rows[chosen]` with the weights behind."""
    width = rows.shape[1]
    out = rows.new_empty(len(chosen), width + _places(rows.dtype))
    torch.index_select(rows, 0, chosen, out=out[:, :width])
    out[:, width:] = weights.contiguous().unsqueeze(1).view(rows.dtype)
    return out


def _weights_of(packed: Tensor, width: int, kind: torch.dtype) -> Tensor:
    return packed[:, width:].contiguous().view(kind).squeeze(1)


# Each step is a node of its own, so that what it was given is gone when the next one runs, forward
# and backward. Gradients between the first three are packed as the rows are; nobody may add them.


class _Pack(torch.autograd.Function):
    """A row per copy in order of expert, its weight behind it: [R, W]."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, weights_NK: Tensor, way: Route) -> Tensor:
        ctx.way, ctx.kind, ctx.width = way, weights_NK.dtype, x_ND.shape[1]
        copies_R = way.order.copies_R
        return _packed(x_ND, copies_R // way.top_k, weights_NK.flatten()[copies_R])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, back_RW: Tensor) -> tuple[Tensor, Tensor, None]:
        way: Route = ctx.way
        rows_R = way.order.rows_R
        dx_ND = _sum_copies(back_RW[:, : ctx.width], rows_R, way.top_k)
        dweights_R = _weights_of(back_RW, ctx.width, ctx.kind)[rows_R]
        return dx_ND, dweights_R.view(-1, way.top_k), None


class _Swap(torch.autograd.Function):
    """Rows to the ranks of their experts, or home; their gradients the other way."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, way: Route, name: str, home: bool) -> Tensor:
        ctx.way, ctx.what, ctx.home = way, name, home
        return _swapped(rows, way, name, home=home)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return _swapped(grad, ctx.way, ctx.what, home=not ctx.home), None, None, None


def _swapped(rows: Tensor, way: Route, name: str, *, home: bool) -> Tensor:
    sent, received = (way.received, way.sent) if home else (way.sent, way.received)
    return way.exchange.swap(rows, sent, received, name)


class _Unpack(torch.autograd.Function):
    """Rows and weights that have come, in order of expert."""

    @staticmethod
    def forward(ctx: Any, came_SW: Tensor, way: Route, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        ctx.way = way
        width = came_SW.shape[1] - _places(came_SW.dtype)
        weights_S = _weights_of(came_SW, width, kind)[way.sorted_S]
        return came_SW[:, :width].index_select(0, way.sorted_S), weights_S

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, drows_SD: Tensor, dweights_S: Tensor) -> tuple[Tensor, None, None]:
        arrived_S = ctx.way.arrived_S
        return _packed(drows_SD, arrived_S, dweights_S[arrived_S]), None, None


class _Permute(torch.autograd.Function):
    """Rows in order of expert to the order in which they came."""

    @staticmethod
    def forward(ctx: Any, y_SD: Tensor, way: Route) -> Tensor:
        ctx.way = way
        return y_SD.index_select(0, way.arrived_S)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_SD: Tensor) -> tuple[Tensor, None]:
        return grad_SD.index_select(0, ctx.way.sorted_S), None
