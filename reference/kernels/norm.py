"""RMSNorm with the statistics of every row kept for the backward.

Legend: X any leading dimensions, D hidden.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def rms_norm(x_XD: Tensor, gain_D: Tensor, eps: float) -> Tensor:
    """`x / sqrt(mean(x^2) + eps) * gain` over the last dimension, shape and dtype of `x_XD`.

    Arithmetic is fp32 inside (float64 for float64) and rounded once. Saves x, gain and rstd, the
    reciprocal root mean square of every row, [X, 1] in fp32.
    Source: Zhang & Sennrich 2019, "Root Mean Square Layer Normalization", eq. (4).
    """
    return _RmsNorm.apply(x_XD, gain_D, eps)


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_XD: Tensor, gain_D: Tensor, eps: float) -> Tensor:
        wide = torch.promote_types(x_XD.dtype, torch.float32)
        wide_XD, D = x_XD.to(wide), x_XD.shape[-1]
        rstd_X1 = torch.linalg.vecdot(wide_XD, wide_XD).unsqueeze(-1).div_(D).add_(eps).rsqrt_()
        ctx.save_for_backward(x_XD, gain_D, rstd_X1)
        return (wide_XD * rstd_X1).mul_(gain_D.to(wide)).to(x_XD.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy_XD: Tensor) -> tuple[Tensor, Tensor, None]:
        """With u = x * rstd and g = dy * gain: dx = rstd * (g - u * mean(g * u)).

        Both sums, over rows for the gain and over D for the mean, are products of dy * x with a
        vector, which is quicker than an elementwise product and a reduction.
        """
        x_XD, gain_D, rstd_X1 = ctx.saved_tensors
        wide, D = rstd_X1.dtype, x_XD.shape[-1]
        x_ND, dy_ND = x_XD.reshape(-1, D).to(wide), dy_XD.reshape(-1, D).to(wide)
        rstd_N1, wide_D = rstd_X1.view(-1, 1), gain_D.to(wide)
        both_ND = dy_ND * x_ND
        dgain_D = (rstd_N1.T @ both_ND).view(D)
        pull_N1 = (both_ND @ wide_D).unsqueeze(1).mul_(rstd_N1.pow(3)).div_(-D)
        dx_ND = torch.mul(dy_ND, rstd_N1, out=both_ND).mul_(wide_D).addcmul_(x_ND, pull_N1)
        return dx_ND.to(x_XD.dtype).view(x_XD.shape), dgain_D.to(gain_D.dtype), None
