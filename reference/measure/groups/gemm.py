"""Dense matrix products: a grid in powers of four with small and skinny ones, the projections of a
model, and their gradients.

Legend: M rows, N columns, K inner sum. A linear layer's forward is x_MK @ w_NK^T, its input's
gradient dy_MN @ w_NK, its weight's gradient dy_MN^T @ x_MK, an inner sum over rows. The weight's
gradient is written in the numbers of its inputs; that it is then added to an fp32 buffer, as the
twin counts, is in `bandwidth`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import torch

from reference.measure.case import BF16, TYPES, WIDTH, Case, Setting, Skip, of_reach, random, timed
from reference.measure.clock import Call
from twin.spec.model import LatentAttention, ModelSpec


def cases(setting: Setting) -> list[Case | Skip]:
    """Products of every number type; the model's own in bf16 forward and backward."""
    found: dict[str, Case] = {}
    for dtype in setting.dtypes:
        for rows, cols, inner in _grid(setting):
            case = forward(dtype, rows, cols, inner)
            found[str(case)] = case
    for rows, (cols, inner) in product(_rows(setting), projections(setting.spec)):
        for case in (
            forward(BF16, rows, cols, inner),
            input_gradient(BF16, rows, cols, inner),
            weight_gradient(BF16, rows, cols, inner),
        ):
            found[str(case)] = case
    fp8 = Skip("gemm", "FP8 products", "the reference multiplies in bf16, as Kimi K2 did")
    return [*of_reach(list(found.values()), "gemm", setting), fp8]


def projections(spec: ModelSpec) -> list[tuple[int, int]]:
    """(outputs, inputs) of the linear layers of a model, each once; the vocabulary's left out,
    whose columns would decide the fitted range alone."""
    D, a = spec.hidden, spec.attention
    if isinstance(a, LatentAttention):
        wide, L = a.heads * (a.qk_nope_head_dim + a.qk_rope_head_dim), a.q_lora_rank
        pairs = [(L, D), (wide, L)] if L else [(wide, D)]
        pairs += [
            (a.kv_lora_rank + a.qk_rope_head_dim, D),
            (a.heads * (a.qk_nope_head_dim + a.v_head_dim), a.kv_lora_rank),
            (D, a.heads * a.v_head_dim),
        ]
    else:
        pairs = [((a.heads + 2 * a.kv_heads) * a.head_dim, D), (D, a.heads * a.head_dim)]
    gates = 2 if spec.ffn.kind == "swiglu" else 1
    widths = {spec.ffn.width} | ({spec.moe.width} if spec.moe else set())
    for F in sorted(widths):
        pairs += [(gates * F, D), (D, F)]
    return list(dict.fromkeys(pairs))


def forward(dtype: str, M: int, N: int, K: int) -> Case:
    """x_MK @ w_NK^T."""

    def make(device: torch.device) -> Call:
        x_MK, w_NK = (random(device, TYPES[dtype], n, K) for n in (M, N))
        return lambda: x_MK @ w_NK.T

    return _case("gemm", dtype, (M, N, K), make)


def input_gradient(dtype: str, M: int, N: int, K: int) -> Case:
    """dy_MN @ w_NK: its result has K columns, and N is what is summed over."""

    def make(device: torch.device) -> Call:
        dy_MN, w_NK = random(device, TYPES[dtype], M, N), random(device, TYPES[dtype], N, K)
        return lambda: dy_MN @ w_NK

    return _case("gemm_input", dtype, (M, K, N), make)


def weight_gradient(dtype: str, M: int, N: int, K: int) -> Case:
    """dy_MN^T @ x_MK, of the weight's shape, summed over M rows."""

    def make(device: torch.device) -> Call:
        dy_MN, x_MK = random(device, TYPES[dtype], M, N), random(device, TYPES[dtype], M, K)
        return lambda: dy_MN.T @ x_MK

    return _case("gemm_weight", dtype, (N, K, M), make)


def _case(op: str, dtype: str, sides: tuple[int, int, int], make) -> Case:  # noqa: ANN001
    rows, cols, inner = sides
    size = float(WIDTH[dtype] * (rows * inner + inner * cols + rows * cols))
    shape = {"rows": rows, "cols": cols, "inner": inner}
    return Case(op, shape, dtype, 2.0 * rows * cols * inner, size, 1, timed(make, size))


def _rows(setting: Setting) -> tuple[int, ...]:
    """Tokens of a micro-batch."""
    if setting.quick:
        return (128,)
    return (1024, 4096, 8192) if setting.cuda else (256, 1024)


def _grid(setting: Setting) -> Iterator[tuple[int, int, int]]:
    """Rows, columns and inner sums in powers of four."""
    if setting.quick:
        return product((8, 64, 256), (64, 256), (64, 256))
    if setting.cuda:
        return product((64, 256, 1024, 4096, 16384), (512, 2048, 8192), (512, 2048, 8192))
    return product((8, 32, 128, 512, 2048), (64, 256, 1024), (64, 256, 1024))
