"""Matrix multiplication of rows grouped by expert with their expert's weight.

Legend: R rows sorted by expert, E experts, I inputs, O outputs.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from reference.kernels.deferred_wgrad import current, weight_gradient
from reference.kernels.grouped_libraries import (
    ByLoop,
    ByTorch,
    GroupedProducts,
    grouped_products,
    spans,
)
from reference.kernels.linear import WORTHWHILE, product, product_of_columns
from reference.kernels.path import computes
from reference.number_formats import fp32_by_onednn

_TORCH: Final = ByTorch()
_LOOP: Final = ByLoop()
_GROUPED = (torch.float32, torch.bfloat16, torch.float16)
"""What torch 2.13's grouped product takes; it refuses float64."""
_ALIGNMENT = 16
"""Bytes that it wants between rows and before the first value; it refuses anything else."""
_TILE = 64
"""Rows of an expert are rounded up to a multiple of it where oneDNN multiplies on a CPU: it
compiles a kernel for each new shape, 0.6 ms on the machine that this was written on, four times as
long as the product itself; the counts of a router never repeat, rounded counts do (2026-11-20)."""


def grouped_matmul(rows_RI: Tensor, weights_EIO: Tensor, ends_E: Tensor) -> Tensor:
    """Rows `ends_E[e - 1]` up to `ends_E[e]` times weight e, for every expert: [R, O].

    `ends_E` is int32, the cumulative number of rows per expert, and ends with R; an expert may have
    no rows. `weights_EIO` may be the transposed view of a parameter [E, O, I], whose gradient then
    comes in the parameter's own layout. Equal to a loop over experts, bit for bit in fp32 where
    rows and columns are multiples of 16 bytes.

    Saves rows and weights; `ends_E` stays beside them, unseen by hooks on saved tensors.
    """
    return _GroupedMatmul.apply(rows_RI, weights_EIO, ends_E)  # pyright: ignore[reportReturnType]


class _GroupedMatmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows_RI: Tensor, weights_EIO: Tensor, ends_E: Tensor) -> Tensor:
        ctx.save_for_backward(rows_RI, weights_EIO)
        ctx.ends_E = ends_E
        ctx.weights, ctx.deferred = weights_EIO, current()
        return _by_expert(rows_RI, weights_EIO, ends_E)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout_RO: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        rows_RI, weights_EIO = ctx.saved_tensors
        dout_RO = dout_RO.contiguous()  # grouped_mm refuses the stride 0 of a sum's gradient
        drows_RI = dweights_EIO = None
        if ctx.needs_input_grad[0]:
            drows_RI = _by_expert(dout_RO, weights_EIO.transpose(1, 2), ctx.ends_E)
        turned = weights_EIO.transpose(1, 2).is_contiguous()

        def make() -> Tensor:
            if turned:
                return _of_experts(dout_RO, rows_RI, ctx.ends_E)
            return _of_experts(rows_RI, dout_RO, ctx.ends_E)

        if ctx.needs_input_grad[1]:
            base = ctx.weights._base if turned else ctx.weights  # noqa: SLF001 - no public name
            dweights_EIO = weight_gradient(ctx.deferred, base, make)
            if dweights_EIO is not None and turned:
                dweights_EIO = dweights_EIO.transpose(1, 2)
        return drows_RI, dweights_EIO, None


def _by_expert(rows_RI: Tensor, weights_EIO: Tensor, ends_E: Tensor) -> Tensor:
    """Every row times its expert's weight: [R, O]."""
    if rows_RI.is_meta:
        computes(2.0 * rows_RI.numel() * weights_EIO.shape[2])
        return rows_RI.new_empty(rows_RI.shape[0], weights_EIO.shape[2])
    if not _compiles(rows_RI, weights_EIO.shape[2], len(ends_E)):
        products = _library(rows_RI, weights_EIO, weights_EIO.shape[2])
        return products.by_expert(rows_RI, weights_EIO, ends_E)
    each = zip(weights_EIO, spans(ends_E), strict=True)
    if rows_RI.dtype == torch.float32:
        made = [product(_padded(rows_RI, span), one.T)[: span[1] - span[0]] for one, span in each]
        return torch.cat(made)
    out_RO = rows_RI.new_empty(rows_RI.shape[0], weights_EIO.shape[2])
    for weight_IO, span in each:
        _tiled_product(rows_RI, weight_IO, span, out_RO)
    return out_RO


def _library(left: Tensor, right: Tensor, columns: int) -> GroupedProducts:
    if not _can_group(left, right, columns):
        return _LOOP
    return grouped_products(left.device).compute if left.is_cuda else _TORCH


def _tiled_product(
    rows_RI: Tensor, weight_IO: Tensor, span: tuple[int, int], out_RO: Tensor
) -> None:
    """The same with whole tiles of rows. What it writes beyond its rows belongs to the next
    experts, whose products follow; where there is no room behind it, it works on a copy."""
    start, end = span
    behind = start + _whole_tiles(end - start)
    if end == start:
        return
    if behind <= len(out_RO):
        torch.mm(rows_RI[start:behind], weight_IO, out=out_RO[start:behind])
    else:
        out_RO[start:end] = torch.mm(_padded(rows_RI, span), weight_IO)[: end - start]


def _of_experts(left_RI: Tensor, right_RO: Tensor, ends_E: Tensor) -> Tensor:
    """The product over each expert's rows, `left^T right`: [E, I, O], zero where it has none."""
    E, I, O = len(ends_E), left_RI.shape[1], right_RO.shape[1]  # noqa: E741
    if left_RI.is_meta:
        computes(2.0 * left_RI.numel() * O)
        return left_RI.new_empty(E, I, O)
    if not _compiles(left_RI, O, E):
        return _library(left_RI, right_RO, O).of_experts(left_RI, right_RO, ends_E)
    pairs = (
        (_padded(left_RI, span, zeros=True), _padded(right_RO, span, zeros=True))
        for span in spans(ends_E)
    )
    if left_RI.dtype == torch.float32:
        return torch.stack([product_of_columns(*pair) for pair in pairs])
    out_EIO = left_RI.new_empty(E, I, O)
    for out_IO, (left_rI, right_rO) in zip(out_EIO, pairs, strict=True):
        torch.mm(left_rI.T, right_rO, out=out_IO)
    return out_EIO


def _padded(x_RI: Tensor, span: tuple[int, int], *, zeros: bool = False) -> Tensor:
    """The rows of a span up to whole tiles: those that follow, or zeros where they count or where
    there are not enough."""
    start, end = span
    behind = start + _whole_tiles(end - start)
    if behind == end or (not zeros and behind <= len(x_RI)):
        return x_RI[start:behind]
    return torch.constant_pad_nd(x_RI[start:end], (0, 0, 0, behind - end))


def _whole_tiles(rows: int) -> int:
    return -(-rows // _TILE) * _TILE


def _compiles(x_RI: Tensor, columns: int, experts: int) -> bool:
    """Whether products of x run in a library that compiles a kernel for each shape."""
    if x_RI.device.type != "cpu":
        return False
    work = x_RI.numel() * columns // max(1, experts)
    in_fp32 = x_RI.dtype == torch.float32 and work >= WORTHWHILE and fp32_by_onednn()
    return in_fp32 or x_RI.dtype in (torch.bfloat16, torch.float16)


def _can_group(left: Tensor, right: Tensor, columns: int) -> bool:
    size = left.element_size()
    return (
        left.dtype in _GROUPED
        and columns * size % _ALIGNMENT == 0
        and all(
            part.data_ptr() % _ALIGNMENT == 0
            and all(stride == 1 or stride * size % _ALIGNMENT == 0 for stride in part.stride())
            for part in (left, right)
        )
    )
