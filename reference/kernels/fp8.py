"""FP8-E4M3 storage with one fp32 scale per tile: 1 + 4/128 bytes a value.

Kimi K2 stores the inputs of its experts' up-projections and of SwiGLU like this and computes
nothing in FP8 (report, section 2.4.2). A value that is normal in E4M3 after scaling, that is not
below 2^-6 / 448 of its tile's largest, comes back within 2^-4 of itself; a smaller one within
2^-10 / 448 of the largest.

Legend: X any leading dimensions, D last dimension, J tiles of it, K values of a tile,
O x I a weight.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from reference.kernels.path import by_triton

TILE = 128
"""Values that share a scale: "1 x 128 tiles with FP32 scales", Kimi K2 report, section 2.4.2."""
LARGEST = 448.0
"""Largest finite E4M3 value; Micikevicius et al. 2022, "FP8 Formats for Deep Learning", table 1."""
SMALLEST_SCALE = 2.0**-126
"""The smallest normal fp32: the scale of a tile of zeros, which so come back as zeros."""


class Fp8(NamedTuple):
    """A tensor in FP8: each value times the scale of its tile."""

    values_XD: Tensor
    """float8_e4m3fn, contiguous."""
    scales_XJ: Tensor
    """fp32."""


def quantize(x_XD: Tensor) -> Fp8:
    """`x_XD` with a scale per tile of 1 x 128 of its last dimension, the largest over 448.

    A last partial tile has a scale of its own. Nothing overflows; a tile that holds an infinity or
    a NaN comes back as NaN altogether, so that a diverged run stays visible.
    """
    if x_XD.is_meta:
        tiles = -(-x_XD.shape[-1] // TILE)
        scales_XJ = x_XD.new_empty(*x_XD.shape[:-1], tiles, dtype=torch.float32)
        return Fp8(
            torch.empty(x_XD.shape, dtype=torch.float8_e4m3fn, device=x_XD.device), scales_XJ
        )
    if _by_triton(x_XD):
        from reference.kernels import fp8_triton  # noqa: PLC0415 - Triton is there with CUDA only

        return Fp8(*fp8_triton.quantize(x_XD))
    tiles_XJK = _tiles(x_XD.float())
    largest_XJ = torch.linalg.vector_norm(tiles_XJK, torch.inf, dim=-1)
    scales_XJ = largest_XJ.div_(LARGEST).clamp_(min=SMALLEST_SCALE)
    values_XJK = (tiles_XJK / scales_XJ.unsqueeze(-1)).to(torch.float8_e4m3fn)
    return Fp8(values_XJK.flatten(-2)[..., : x_XD.shape[-1]].contiguous(), scales_XJ)


def dequantize(packed: Fp8, dtype: torch.dtype) -> Tensor:
    """The values times their tile's scale, rounded once, in `dtype`."""
    if packed.values_XD.is_meta:
        return torch.empty(packed.values_XD.shape, dtype=dtype, device=packed.values_XD.device)
    if _by_triton(packed.values_XD):
        from reference.kernels import fp8_triton  # noqa: PLC0415 - as above

        return fp8_triton.dequantize(packed.values_XD, packed.scales_XJ, dtype)
    tiles_XJK = _tiles(packed.values_XD.float())
    wide_XD = tiles_XJK.mul_(packed.scales_XJ.unsqueeze(-1)).flatten(-2)
    return wide_XD[..., : packed.values_XD.shape[-1]].to(dtype)


def dequantize_blocks(weight_OI: Tensor, scale_inv: Tensor, dtype: torch.dtype) -> Tensor:
    """An FP8 weight that has one scale per block of 128 x 128, in `dtype`.

    `scale_inv` [ceil(O / 128), ceil(I / 128)] multiplies, whatever its name says: it is
    DeepSeek-V3's `weight_scale_inv` (its released `fp8_cast_bf16.py`).
    """
    rows, columns = weight_OI.shape
    scale_OI = scale_inv.float().repeat_interleave(TILE, 0).repeat_interleave(TILE, 1)
    return (weight_OI.float() * scale_OI[:rows, :columns]).to(dtype)


def _tiles(x_XD: Tensor) -> Tensor:
    """[X, J, K] of [X, D], zeros after the end; a single partial tile keeps its width."""
    D = x_XD.shape[-1]
    if D <= TILE:
        return x_XD.unsqueeze(-2)
    return pad(x_XD, (0, -D % TILE)).unflatten(-1, (-1, TILE))


def _by_triton(x: Tensor) -> bool:
    """Triton converts to E4M3 from Ada and Hopper on (compute capability 8.9)."""
    return by_triton(x) and torch.cuda.get_device_capability(x.device) >= (8, 9)
