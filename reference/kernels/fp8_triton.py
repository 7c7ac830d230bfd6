"""FP8 tiles in Triton: each value is read once and written once; and rounding to nearest even.

The twin of `fp8`'s PyTorch path, equal bit for bit. On a GPU a conversion rounds to nearest even by
itself; Triton's interpreter, which runs the tests on a CPU, truncates. With the rounding in the
kernel both give the same bits.

Legend: X any leading dimensions, N their rows, D last dimension, J tiles of it, n rows of a block,
K values of a tile.
"""

from __future__ import annotations

# Inside a kernel Triton's language rules: tensors are pointers, sizes integers or constants.
# ruff: noqa: ANN001, ANN202, PLR0913, PLR0917
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportReturnType=false
import torch
import triton
import triton.language as tl
from torch import Tensor

# Inside a kernel Triton's language rules: tensors are pointers, sizes integers or constants.
# ruff: noqa: ANN001, ANN201
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportReturnType=false


@triton.jit
def rounded(x, dtype: tl.constexpr):
    """fp32 `x` in `dtype`."""
    if dtype == tl.bfloat16:
        bits = x.to(tl.uint32, bitcast=True)
        even = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        x = tl.where(x == x, even.to(tl.float32, bitcast=True), x)  # noqa: PLR0124 - false for NaN
    return x.to(dtype)


@triton.jit
def rounded_e4m3(x):
    """fp32 `x` of at most 448 in E4M3: 3 bits of mantissa, the smallest normal 2^-6."""
    bits = x.to(tl.uint32, bitcast=True)
    size = tl.abs(x)
    power = (bits & 0x7F800000).to(tl.float32, bitcast=True)
    unit = tl.maximum(power, 0.015625) * 0.125
    steps = size / unit  # exact: the unit is a power of two
    steps = (steps + 8388608.0) - 8388608.0  # 2^23, from which on fp32 counts in ones
    sign = bits & 0x80000000  # of zero, too
    return (
        ((steps * unit).to(tl.uint32, bitcast=True) | sign)
        .to(tl.float32, bitcast=True)
        .to(tl.float8e4nv)
    )


_TILE = 128
_ROWS = 32
"""Rows per program, OURS: 32 x 128 values are 16 KiB in fp32."""


def quantize(x_XD: Tensor) -> tuple[Tensor, Tensor]:
    """Values in E4M3 and a scale per tile of 128."""
    *X, D = x_XD.shape
    x_ND = x_XD.reshape(-1, D).contiguous()
    N, J = x_ND.shape[0], triton.cdiv(D, _TILE)
    values_ND = torch.empty_like(x_ND, dtype=torch.float8_e4m3fn)
    scales_NJ = x_ND.new_empty(N, J, dtype=torch.float32)
    if x_ND.numel():
        _quantize[(triton.cdiv(N, _ROWS), J)](x_ND, values_ND, scales_NJ, N, D, _ROWS, _TILE)
    return values_ND.view(x_XD.shape), scales_NJ.view(*X, J)


def dequantize(values_XD: Tensor, scales_XJ: Tensor, dtype: torch.dtype) -> Tensor:
    """Values times their tile's scale in `dtype`."""
    D = values_XD.shape[-1]
    values_ND, scales_XJ = values_XD.reshape(-1, D).contiguous(), scales_XJ.contiguous()
    N, J = values_ND.shape[0], triton.cdiv(D, _TILE)
    out_ND = torch.empty_like(values_ND, dtype=dtype)
    if out_ND.numel():
        _dequantize[(triton.cdiv(N, _ROWS), J)](values_ND, scales_XJ, out_ND, N, D, _ROWS, _TILE)
    return out_ND.view(values_XD.shape)


@triton.jit
def _places(N, D, ROWS: tl.constexpr, TILE: tl.constexpr):
    """Where a program's rows, its values and which of them exist."""
    row_n = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column_K = tl.program_id(1) * TILE + tl.arange(0, TILE)
    there_nK = (row_n < N)[:, None] & (column_K < D)[None, :]
    return row_n, row_n[:, None] * D + column_K[None, :], there_nK


@triton.jit
def _quantize(x_ptr, values_ptr, scales_ptr, N, D, ROWS: tl.constexpr, TILE: tl.constexpr):
    row_n, place_nK, there_nK = _places(N, D, ROWS, TILE)
    x_nK = tl.load(x_ptr + place_nK, mask=there_nK, other=0.0).to(tl.float32)
    scale_n = tl.maximum(tl.math.div_rn(tl.max(tl.abs(x_nK), 1), 448.0), 1.1754943508222875e-38)
    endless_n = tl.sum(((x_nK - x_nK) != 0).to(tl.int32), 1)  # infinities and NaNs
    endless = endless_n > 0  # pyright: ignore[reportOperatorIssue]  # a tensor, whatever the stub says
    scale_n = tl.where(endless, float("nan"), scale_n)
    tl.store(scales_ptr + row_n * tl.num_programs(1) + tl.program_id(1), scale_n, mask=row_n < N)
    value_nK = rounded_e4m3(tl.math.div_rn(x_nK, scale_n[:, None] + tl.zeros_like(x_nK)))
    tl.store(values_ptr + place_nK, value_nK, mask=there_nK)


@triton.jit
def _dequantize(values_ptr, scales_ptr, out_ptr, N, D, ROWS: tl.constexpr, TILE: tl.constexpr):
    row_n, place_nK, there_nK = _places(N, D, ROWS, TILE)
    value_nK = tl.load(values_ptr + place_nK, mask=there_nK, other=0.0).to(tl.float32)
    scale_place_n = row_n * tl.num_programs(1) + tl.program_id(1)
    scale_n = tl.load(scales_ptr + scale_place_n, mask=row_n < N, other=0.0)
    out_nK = rounded(value_nK * scale_n[:, None], out_ptr.dtype.element_ty)
    tl.store(out_ptr + place_nK, out_nK, mask=there_nK)
