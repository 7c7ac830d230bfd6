"""FP8 products of DeepGEMM, dense and grouped, where it is installed: E4M3 with a scale for 1 x 128
values of x and 128 x 128 of w, as DeepSeek-V3 trains. Operands are FP8 already; scales are ones.

The experts' rows have to come in multiples of its blocks, so groups are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import torch

from reference.measure.clock import Call
from reference.measure.points import Skip, TimedCase, bf16, timed

TILE: Final = 128
MISSING: Final = "DeepGEMM is not installed"
Shape = tuple[int, int, int]
"""Rows, columns, inner sum."""


def deepgemm_cases(group: str, shapes: Sequence[Shape], groups: int = 1) -> list[TimedCase | Skip]:
    """Dense products, or those of so many experts with so many rows each."""
    if find_spec("deep_gemm") is None:
        return [Skip(group, "FP8 products of DeepGEMM", MISSING)]
    return [_case(shape, groups) for shape in dict.fromkeys(shapes)]


def _case(shape: Shape, groups: int) -> TimedCase:
    rows, cols, inner = shape

    def make(device: torch.device) -> Call:
        library: Any = import_module("deep_gemm")
        x = _scaled(device, (groups * rows, inner), (groups * rows, inner // TILE))
        tiles = -(-cols // TILE), inner // TILE
        out = bf16(device, groups * rows, cols)
        if groups == 1:
            w = _scaled(device, (cols, inner), tiles)
            return lambda: library.fp8_gemm_nt(x, w, out)
        w = _scaled(device, (groups, cols, inner), (groups, *tiles))
        expert = torch.arange(groups, device=device, dtype=torch.int32).repeat_interleave(rows)
        return lambda: library.m_grouped_fp8_gemm_nt_contiguous(x, w, out, expert)

    size = float(groups * (rows * inner + inner * cols + 2 * rows * cols))
    named = {"rows": rows, "cols": cols, "inner": inner}
    own = {"groups": groups, **named} if groups > 1 else named
    op = "grouped_fp8_deepgemm" if groups > 1 else "gemm_fp8_deepgemm"
    flop = 2.0 * groups * rows * cols * inner
    return TimedCase(op, own, "fp8", flop, size, 1, timed(make, size))


def _scaled(
    device: torch.device, shape: tuple[int, ...], scales: tuple[int, ...]
) -> tuple[torch.Tensor, torch.Tensor]:
    ones = torch.ones(scales, dtype=torch.float32, device=device)
    return bf16(device, *shape).to(torch.float8_e4m3fn), ones
