"""Rounding to nearest even, written out.

On a GPU a conversion rounds so by itself; Triton's interpreter, which runs the tests on a CPU,
truncates. With the rounding in the kernel both give the same bits.
"""

# Inside a kernel Triton's language rules: tensors are pointers, sizes integers or constants.
# ruff: noqa: ANN001, ANN201
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportReturnType=false

from __future__ import annotations

import triton
import triton.language as tl


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
