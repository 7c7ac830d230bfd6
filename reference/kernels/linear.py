"""A product with one weight, whose gradient may wait (`reference.kernels.deferred_wgrad`).

Legend: X any leading dimensions, I inputs, O outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from reference.kernels.deferred_wgrad import current, weight_gradient


def linear(x_XI: Tensor, weight_OI: Tensor) -> Tensor:
    """x W^T: [X, O]. Saves x and the weight.

    The weight is a parameter, not something computed: its gradient is added to it by whoever put
    the pass off. Outside of such a pass it is torch's own product.
    """
    if current() is None:
        return functional.linear(x_XI, weight_OI)
    return _Linear.apply(x_XI, weight_OI)  # pyright: ignore[reportReturnType]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_XI: Tensor, weight_OI: Tensor) -> Tensor:
        ctx.save_for_backward(x_XI, weight_OI)
        ctx.weight, ctx.deferred = weight_OI, current()
        return functional.linear(x_XI, weight_OI)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout_XO: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x_XI, weight_OI = ctx.saved_tensors
        dx_XI = dout_XO @ weight_OI if ctx.needs_input_grad[0] else None

        def make() -> Tensor:
            return dout_XO.flatten(0, -2).T @ x_XI.flatten(0, -2)

        dweight = (
            weight_gradient(ctx.deferred, ctx.weight, make) if ctx.needs_input_grad[1] else None
        )
        return dx_XI, dweight
