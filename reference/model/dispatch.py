"""Rows of tokens to their experts and back, as gathers both ways: forward and backward are
permutations and sums over a token's own copies, so that the result is the same every time (a
scatter with atomic additions would not be).

Shapes: N tokens, K experts per token, E experts, R = N K rows in order of expert, D hidden.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable


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
    return y_RD[rows_R].unflatten(0, (-1, top_k)).sum(1)


class _Spread(torch.autograd.Function):
    """Keeps the order of rows; its gradient sums the copies of each token."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, x_ND: Tensor, copies_R: Tensor, rows_R: Tensor, top_k: int
    ) -> Tensor:
        ctx.save_for_backward(rows_R)
        ctx.top_k = top_k  # pyright: ignore[reportAttributeAccessIssue]
        return x_ND[copies_R // top_k]

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
        return grad_ND[copies_R // top_k], None, None, None
