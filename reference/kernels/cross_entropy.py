"""The head and the cross-entropy of each target, whose backward makes no pass over the logits.

PyTorch's own backward fills a tensor of logits with zeros, scatters into it, and reads it again
beside the log-probabilities: on a CPU a seventh of a small model's step. Here the forward leaves
the probabilities, less 1 at the target, where the logits were. What the loss is scaled by, row by
row, multiplies the narrow sides of both products of the backward.

Legend: N targets, D hidden, W words, n rows of a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from reference.kernels.deferred_wgrad import current, weight_gradient
from reference.kernels.linear import linear, product, product_of_columns

_BLOCK: Final = 1 << 18
"""Logits at a time, OURS: 1 MiB in fp32."""


def cross_entropy(x_ND: Tensor, weight_WD: Tensor, targets_N: Tensor) -> Tensor:
    """Nats of each target, [N], in fp32 (float64 for float64), from the logits x W^T in that dtype.

    Saves x, the weight, the gradient of the logits, [N, W] in the dtype of x; elsewhere than on a
    CPU what PyTorch saves.
    """
    if x_ND.device.type != "cpu":
        wide = torch.promote_types(x_ND.dtype, torch.float32)
        logits_NW = linear(x_ND, weight_WD)
        return functional.cross_entropy(logits_NW.to(wide), targets_N, reduction="none")
    return _CrossEntropy.apply(x_ND, weight_WD, targets_N)  # pyright: ignore[reportReturnType]


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, weight_WD: Tensor, targets_N: Tensor) -> Tensor:
        wide = torch.promote_types(x_ND.dtype, torch.float32)
        logits_NW = product(x_ND, weight_WD)
        nats_N = torch.empty(targets_N.shape, dtype=wide)
        for rows in _blocks(logits_NW):
            wide_nW, target_n1 = logits_NW[rows].to(wide), targets_N[rows, None]
            logp_nW = torch.log_softmax(wide_nW, -1)
            torch.neg(logp_nW.gather(1, target_n1).squeeze(1), out=nats_N[rows])
            p_nW = torch.softmax(wide_nW, -1, out=logp_nW)
            p_nW.scatter_add_(1, target_n1, p_nW.new_tensor(-1.0).expand_as(target_n1))
            logits_NW[rows] = p_nW
        ctx.save_for_backward(x_ND, weight_WD, logits_NW)
        ctx.weight, ctx.deferred = weight_WD, current()
        return nats_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dnats_N: Tensor) -> tuple[Tensor, Tensor | None, None]:
        x_ND, weight_WD, dlogits_NW = ctx.saved_tensors
        scale_N1 = dnats_N.unsqueeze(1)
        dx_ND = product(dlogits_NW, weight_WD.T).mul(scale_N1).to(x_ND.dtype)

        def make() -> Tensor:
            return product_of_columns(dlogits_NW, (x_ND * scale_N1).to(x_ND.dtype))

        return dx_ND, weight_gradient(ctx.deferred, ctx.weight, make), None


def _blocks(x_NW: Tensor) -> Iterator[slice]:
    rows, width = x_NW.shape
    step = max(1, _BLOCK // width)
    return (slice(start, start + step) for start in range(0, rows, step))
