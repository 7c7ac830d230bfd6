"""A product with one weight, whose gradient may wait (`reference.kernels.deferred_wgrad`).

Legend: X any leading dimensions, I inputs, O outputs.

The rows of a table, whose gradient is added row by row to what is summed already.

torch's own makes a gradient as large as the table for every micro-batch, and another in fp32 where
gradients are summed so: 7 GB for the 163,840 words of Kimi K2, of which 4,096 rows are not zero.

Legend: B batch, T tokens, W words, D hidden."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from reference.kernels.deferred_wgrad import current, weight_gradient
from reference.number_formats import fp32_by_onednn

WORTHWHILE: Final = 1 << 20
"""Multiply-adds of a product from which on oneDNN gains more than its call costs, 8 microseconds on
a Zen 5."""


def product(left_XI: Tensor, right_OI: Tensor) -> Tensor:
    """left right^T: [X, O], fp32 by the faster library of this CPU."""
    if by_onednn(left_XI, right_OI):
        return _by_onednn(left_XI, right_OI if _is_packed(right_OI) else right_OI.contiguous())
    return functional.linear(left_XI, right_OI)


def _by_onednn(left_XI: Tensor, right_OI: Tensor) -> Tensor:
    """A right side that is not packed would take 4,000 times as long: oneDNN has no kernel for it
    but its reference."""
    # Inductor's; nothing public reaches oneDNN in fp32.
    return torch.ops.mkldnn._linear_pointwise(left_XI, right_OI, None, "none", [], "")  # noqa: SLF001


def _is_packed(x: Tensor) -> bool:
    """Whether a matrix or its transpose has no gaps between its rows."""
    return x.is_contiguous() or x.mT.is_contiguous()


def by_onednn(left_XI: Tensor, right_OI: Tensor) -> bool:
    """Whether `product` calls oneDNN itself."""
    return (
        left_XI.dtype == torch.float32
        and left_XI.device.type == "cpu"
        and left_XI.numel() * right_OI.shape[0] >= WORTHWHILE
        and fp32_by_onednn()
    )


def product_of_columns(left_RI: Tensor, right_RO: Tensor) -> Tensor:
    """left^T right: [I, O]. oneDNN wants the narrower side first."""
    left_IR, right_OR = left_RI.T, right_RO.T
    if not by_onednn(left_IR, right_OR):
        return left_IR @ right_RO
    if left_IR.shape[0] <= right_OR.shape[0]:
        return product(left_IR, right_OR)
    return product(right_OR, left_IR).T.contiguous()


def linear(x_XI: Tensor, weight_OI: Tensor) -> Tensor:
    """x W^T: [X, O]. Saves x and the weight.

    The weight is a parameter, not something computed: its gradient is added to it by whoever put
    the pass off. Outside of such a pass, where torch's products are the fastest, it is torch's own.
    """
    if current() is None and not by_onednn(x_XI, weight_OI):
        return functional.linear(x_XI, weight_OI)
    return _Linear.apply(x_XI, weight_OI)  # pyright: ignore[reportReturnType]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_XI: Tensor, weight_OI: Tensor) -> Tensor:
        ctx.save_for_backward(x_XI, weight_OI)
        ctx.weight, ctx.deferred = weight_OI, current()
        return product(x_XI, weight_OI)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout_XO: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x_XI, weight_OI = ctx.saved_tensors
        dx_XI = product(dout_XO, weight_OI.T) if ctx.needs_input_grad[0] else None

        def make() -> Tensor:
            return product_of_columns(dout_XO.flatten(0, -2), x_XI.flatten(0, -2))

        dweight = (
            weight_gradient(ctx.deferred, ctx.weight, make) if ctx.needs_input_grad[1] else None
        )
        return dx_XI, dweight


def embedding(tokens_BT: Tensor, weight_WD: Tensor) -> Tensor:
    """The row of each token: [B, T, D]. Saves the tokens.

    Where the weight has a gradient, its backward adds to that by itself, in the gradient's type and
    the same order every time (under deterministic algorithms), and it may wait for its second half
    (`reference.kernels.deferred_wgrad`); else it gives a whole one.
    """
    return _Embedding.apply(tokens_BT, weight_WD)  # pyright: ignore[reportReturnType]


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens_BT: Tensor, weight_WD: Tensor) -> Tensor:
        ctx.save_for_backward(tokens_BT)
        ctx.weight, ctx.deferred = weight_WD, current()
        return functional.embedding(tokens_BT, weight_WD)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout_BTD: Tensor) -> tuple[None, Tensor | None]:
        (tokens_BT,), weight_WD = ctx.saved_tensors, ctx.weight
        if weight_WD.grad is None:
            whole_WD = torch.zeros_like(weight_WD, dtype=weight_WD.grad_dtype or weight_WD.dtype)
            _add(whole_WD, tokens_BT, dout_BTD)
            return None, whole_WD
        deferred = ctx.deferred
        if deferred is not None and deferred.holds:
            deferred.put(lambda: _add(weight_WD.grad, tokens_BT, dout_BTD))
        else:
            _add(weight_WD.grad, tokens_BT, dout_BTD)
        return None, None


def _add(into_WD: Tensor, tokens_BT: Tensor, rows_BTD: Tensor) -> None:
    into_WD.index_add_(0, tokens_BT.flatten(), rows_BTD.flatten(0, -2).to(into_WD.dtype))
