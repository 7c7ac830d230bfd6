"""Rows of tokens to experts on other ranks and back: the all-to-alls of expert parallelism.

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
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from reference.model.dispatch import Order


class Exchange(Protocol):
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
    exchange: Exchange
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


def route(order: Order, top_k: int, exchange: Exchange) -> Route:
    """Agree on who sends how much."""
    counts_GL, sent, received = exchange.counts(order.load_E, order.copies_R.numel())
    sorted_S = _by_expert(counts_GL, sum(received))
    arrived_S = torch.empty_like(sorted_S)
    arrived_S[sorted_S] = torch.arange(sorted_S.numel(), device=sorted_S.device)
    ends_L = counts_GL.sum(0).cumsum(0).to(torch.int32)
    return Route(order, top_k, exchange, sent, received, sorted_S, arrived_S, ends_L)


def dispatch(x_ND: Tensor, weights_NK: Tensor, way: Route) -> tuple[Tensor, Tensor]:
    """The rows for the experts here, in order of expert, [S, D], and their routing weights, [S]."""
    return _Dispatch.apply(x_ND, weights_NK, way)  # pyright: ignore[reportReturnType]


def combine(y_SD: Tensor, way: Route) -> Tensor:
    """Each token's rows back from all experts and summed: [N, D]."""
    return _Combine.apply(y_SD, way)


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
    out[:, :width] = rows[chosen]
    out[:, width:] = weights.contiguous().unsqueeze(1).view(rows.dtype)
    return out


def _weights_of(packed: Tensor, width: int, kind: torch.dtype) -> Tensor:
    return packed[:, width:].contiguous().view(kind).squeeze(1)


class _Dispatch(torch.autograd.Function):
    """Keeps orders of rows only."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, weights_NK: Tensor, way: Route) -> tuple[Tensor, Tensor]:
        ctx.way, ctx.kind = way, weights_NK.dtype
        order, width = way.order, x_ND.shape[1]
        packed_RW = _packed(x_ND, order.copies_R // way.top_k, weights_NK.flatten()[order.copies_R])
        came_SW = way.exchange.swap(packed_RW, way.sent, way.received, "dispatch")
        rows_SD = came_SW[:, :width][way.sorted_S]
        return rows_SD, _weights_of(came_SW, width, weights_NK.dtype)[way.sorted_S]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, drows_SD: Tensor, dweights_S: Tensor) -> tuple[Tensor, Tensor, None]:
        way: Route = ctx.way
        packed_SW = _packed(drows_SD, way.arrived_S, dweights_S[way.arrived_S])
        back_RW = way.exchange.swap(packed_SW, way.received, way.sent, "dispatch")
        width, order = drows_SD.shape[1], way.order
        dx_NKD = back_RW[:, :width][order.rows_R].unflatten(0, (-1, way.top_k))
        dweights_R = _weights_of(back_RW, width, ctx.kind)[order.rows_R]
        return dx_NKD.sum(1), dweights_R.view(-1, way.top_k), None


class _Combine(torch.autograd.Function):
    """Keeps orders of rows only."""

    @staticmethod
    def forward(ctx: Any, y_SD: Tensor, way: Route) -> Tensor:
        ctx.way = way
        back_RD = way.exchange.swap(y_SD[way.arrived_S], way.received, way.sent, "combine")
        return back_RD[way.order.rows_R].unflatten(0, (-1, way.top_k)).sum(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_ND: Tensor) -> tuple[Tensor, None]:
        way: Route = ctx.way
        rows_RD = grad_ND[way.order.copies_R // way.top_k]
        came_SD = way.exchange.swap(rows_RD, way.sent, way.received, "combine")
        return came_SD[way.sorted_S], None
