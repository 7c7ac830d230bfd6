"""SwiGLU, optionally weighted by row, as one operation.

Legend: R rows, F width, 2F = gate then up, r rows of a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import silu

from reference.kernels.path import by_triton

_BLOCK = 1 << 18
"""Values of gate_up widened at a time on a CPU, OURS: 1 MiB in fp32. Without blocks the memory of
the wide copies is mapped anew in every call, which takes longer than the arithmetic."""


def swiglu(gate_up_R2F: Tensor, weight_R: Tensor | None = None) -> Tensor:
    """`silu(gate) * up`, times `weight_R` per row where given: [R, F], dtype of `gate_up_R2F`.

    Gate is the first half of the last dimension; R may be several dimensions. Arithmetic is fp32
    inside (float64 for float64) and rounded once. Saves gate_up and weight; nothing of width F.
    Source: Shazeer 2020, "GLU Variants Improve Transformer", eq. (6).
    """
    return _SwiGlu.apply(gate_up_R2F, weight_R)  # pyright: ignore[reportReturnType]


class _SwiGlu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate_up_R2F: Tensor, weight_R: Tensor | None) -> Tensor:
        ctx.save_for_backward(gate_up_R2F, weight_R)
        *R, width = gate_up_R2F.shape
        flat_R2F, flat_R = gate_up_R2F.reshape(-1, width), _flat(weight_R)
        return _forward(flat_R2F, flat_R).view(*R, width // 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout_RF: Tensor) -> tuple[Tensor, Tensor | None]:
        gate_up_R2F, weight_R = ctx.saved_tensors
        *R, width = gate_up_R2F.shape
        flat_R2F, flat_R = gate_up_R2F.reshape(-1, width), _flat(weight_R)
        dgate_up_R2F, dweight_R = _backward(dout_RF.reshape(-1, width // 2), flat_R2F, flat_R)
        dweight_R = None if dweight_R is None else dweight_R.view(R)
        return dgate_up_R2F.view(gate_up_R2F.shape), dweight_R


def _forward(gate_up_R2F: Tensor, weight_R: Tensor | None) -> Tensor:
    if gate_up_R2F.is_meta:
        return gate_up_R2F.new_empty(gate_up_R2F.shape[0], gate_up_R2F.shape[1] // 2)
    if by_triton(gate_up_R2F):
        from reference.kernels import swiglu_triton  # noqa: PLC0415 - Triton is there with CUDA only

        return swiglu_triton.forward(gate_up_R2F, weight_R)
    wide, blocks = _blocks(gate_up_R2F)
    out_RF = gate_up_R2F.new_empty(gate_up_R2F.shape[0], gate_up_R2F.shape[1] // 2)
    for rows in blocks:
        gate_rF, up_rF = gate_up_R2F[rows].to(wide).chunk(2, dim=-1)
        silu_rF = silu(gate_rF)
        if weight_R is not None:
            silu_rF.mul_(weight_R[rows, None])
        torch.mul(silu_rF, up_rF, out=out_RF[rows])
    return out_RF


def _backward(
    dout_RF: Tensor, gate_up_R2F: Tensor, weight_R: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    if gate_up_R2F.is_meta:
        dweight = None if weight_R is None else torch.empty_like(weight_R)
        return torch.empty_like(gate_up_R2F), dweight
    if by_triton(gate_up_R2F):
        from reference.kernels import swiglu_triton  # noqa: PLC0415 - as above

        return swiglu_triton.backward(dout_RF, gate_up_R2F, weight_R)
    wide, blocks = _blocks(gate_up_R2F)
    dgate_up_R2F = torch.empty_like(gate_up_R2F)
    dweight_R = None if weight_R is None else torch.empty_like(weight_R)
    for rows in blocks:
        gate_rF, up_rF = gate_up_R2F[rows].to(wide).chunk(2, dim=-1)
        dout_rF, silu_rF = dout_RF[rows].to(wide), silu(gate_rF)
        if weight_R is not None and dweight_R is not None:
            product_rF = silu_rF * up_rF
            dweight_R[rows] = torch.linalg.vecdot(dout_rF, product_rF)
            dout_rF = torch.mul(dout_rF, weight_R[rows, None], out=product_rF)
        dgate_rF, dup_rF = dgate_up_R2F[rows].chunk(2, dim=-1)
        torch.mul(dout_rF, silu_rF, out=dup_rF)
        dsilu_rF = torch.mul(dout_rF, up_rF, out=silu_rF)
        torch.ops.aten.silu_backward.grad_input(dsilu_rF, gate_rF, grad_input=dgate_rF)
    return dgate_up_R2F, dweight_R


def _blocks(gate_up_R2F: Tensor) -> tuple[torch.dtype, Iterator[slice]]:
    """The dtype of the arithmetic, and the rows that are widened together."""
    rows, width = gate_up_R2F.shape
    wide = torch.promote_types(gate_up_R2F.dtype, torch.float32)
    step = max(1, rows if gate_up_R2F.dtype == wide else _BLOCK // width)
    return wide, (slice(start, start + step) for start in range(0, rows, step))


def _flat(weight_R: Tensor | None) -> Tensor | None:
    return None if weight_R is None else weight_R.reshape(-1)
