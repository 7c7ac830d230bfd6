"""Weighted SwiGLU in Triton: forward and backward each read and write every value once.

The twin of `swiglu`'s PyTorch path. Arithmetic is fp32; the exponentials of two libraries may
differ in the last bit. Legend: R rows, F width, 2F = gate then up, f columns of a block.
"""

# Inside a kernel Triton's language rules: tensors are pointers, sizes integers or constants.
# ruff: noqa: ANN001, ANN202, PLR0913, PLR0917
# pyright: reportCallIssue=false, reportArgumentType=false, reportGeneralTypeIssues=false, reportReturnType=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from reference.kernels.fp8_triton import rounded

_COLUMNS = 1024
"""Columns that a program holds at a time, OURS: 8 values of 2 bytes per thread of 4 warps."""


def forward(gate_up_R2F: Tensor, weight_R: Tensor | None) -> Tensor:
    """`silu(gate) * up [* weight]`, [R, F]."""
    R, F = gate_up_R2F.shape[0], gate_up_R2F.shape[1] // 2
    gate_up_R2F = gate_up_R2F.contiguous()
    out_RF = gate_up_R2F.new_empty(R, F)
    if out_RF.numel():
        weight, weighted = _weight(weight_R, gate_up_R2F)
        columns, warps = _block(F, gate_up_R2F.element_size())
        tensors = gate_up_R2F, weight, out_RF
        _forward[(R,)](*tensors, F, weighted, columns, num_warps=warps)
    return out_RF


def backward(
    dout_RF: Tensor, gate_up_R2F: Tensor, weight_R: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Gradients of gate_up and of the weight."""
    R, F = dout_RF.shape
    gate_up_R2F = gate_up_R2F.contiguous()
    dgate_up_R2F = torch.empty_like(gate_up_R2F)
    dweight_R = None if weight_R is None else weight_R.new_zeros(R)
    if dout_RF.numel():
        weight, weighted = _weight(weight_R, gate_up_R2F)
        dweight = gate_up_R2F if dweight_R is None else dweight_R  # any pointer where unused
        tensors = dout_RF.contiguous(), gate_up_R2F, weight, dgate_up_R2F, dweight
        columns, warps = _block(F, gate_up_R2F.element_size())
        _backward[(R,)](*tensors, F, weighted, columns, num_warps=warps)
    return dgate_up_R2F, dweight_R


def _weight(weight_R: Tensor | None, other: Tensor) -> tuple[Tensor, bool]:
    return (other, False) if weight_R is None else (weight_R.contiguous(), True)


def _block(F: int, size: int) -> tuple[int, int]:
    """Columns at a time, and as many warps as still move 16 bytes per thread, of 4."""
    columns = min(_COLUMNS, triton.next_power_of_2(F))
    return columns, max(1, min(4, columns * size // (16 * 32)))


@triton.jit
def _forward(gate_up_ptr, weight_ptr, out_ptr, F, WEIGHTED: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    weight = tl.load(weight_ptr + row).to(tl.float32) if WEIGHTED else 1.0
    for start in range(0, F, COLUMNS):
        column_f = start + tl.arange(0, COLUMNS)
        place_f, there_f = row * 2 * F + column_f, column_f < F
        gate_f = tl.load(gate_up_ptr + place_f, mask=there_f, other=0.0).to(tl.float32)
        up_f = tl.load(gate_up_ptr + place_f + F, mask=there_f, other=0.0).to(tl.float32)
        silu_f = gate_f / (1.0 + tl.exp(-gate_f))
        out_f = rounded(silu_f * weight * up_f, out_ptr.dtype.element_ty)
        tl.store(out_ptr + row * F + column_f, out_f, mask=there_f)


@triton.jit
def _backward(
    dout_ptr,
    gate_up_ptr,
    weight_ptr,
    dgate_up_ptr,
    dweight_ptr,
    F,
    WEIGHTED: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    weight = tl.load(weight_ptr + row).to(tl.float32) if WEIGHTED else 1.0
    dweight_f = tl.zeros((COLUMNS,), tl.float32)
    for start in range(0, F, COLUMNS):
        column_f = start + tl.arange(0, COLUMNS)
        place_f, there_f = row * 2 * F + column_f, column_f < F
        gate_f = tl.load(gate_up_ptr + place_f, mask=there_f, other=0.0).to(tl.float32)
        up_f = tl.load(gate_up_ptr + place_f + F, mask=there_f, other=0.0).to(tl.float32)
        dout_f = tl.load(dout_ptr + row * F + column_f, mask=there_f, other=0.0).to(tl.float32)
        sigmoid_f = 1.0 / (1.0 + tl.exp(-gate_f))
        silu_f = gate_f * sigmoid_f
        dweight_f += dout_f * silu_f * up_f
        dout_f *= weight
        dgate_f = dout_f * up_f * sigmoid_f * (1.0 + gate_f * (1.0 - sigmoid_f))
        dtype: tl.constexpr = dgate_up_ptr.dtype.element_ty
        tl.store(dgate_up_ptr + place_f, rounded(dgate_f, dtype), mask=there_f)
        tl.store(dgate_up_ptr + place_f + F, rounded(dout_f * silu_f, dtype), mask=there_f)
    if WEIGHTED:
        dweight = rounded(tl.sum(dweight_f, 0), dweight_ptr.dtype.element_ty)
        tl.store(dweight_ptr + row, dweight)
