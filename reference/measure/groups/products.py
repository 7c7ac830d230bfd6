"""Products: dense ones (`gemm`), those of experts (`grouped`), and attention.

`gemm` is a grid in powers of four with small and skinny ones, and the projections of a model with
their gradients: a linear layer's forward is x_MK @ w_NK^T, its input's gradient dy_MN @ w_NK, its
weight's gradient dy_MN^T @ x_MK, an inner sum over rows. The weight's gradient is written in the
dtype of its inputs; that it is then added to an fp32 buffer, as the twin counts, is in `bandwidth`.

`grouped` is all experts of a rank in one call, forward and for the weights' gradients, with equal
groups, with a few that hold most rows, and with empty ones. The twin knows equal groups only:
`profile` fits on these, and reports how far the others are from them.

`attention` runs forward and backward with a model's own heads and heads of equal widths, over
sequence lengths. FLOP are those of the causal half, two products forward and five backward (Dao
2023, FlashAttention-2, arXiv:2307.08691, section 4.1), bytes those of a kernel that never writes
the score matrix; so on a CPU, whose kernel may write it, the share that comes out is low.

Legend: M rows, N columns, K inner sum; E experts of a rank, R rows of all of them, I inputs, O
outputs; T tokens, H heads, Q query-key width, V value width.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import torch

from reference.kernels.attention import attention
from reference.kernels.grouped import grouped_matmul
from reference.measure.cases import (
    BF16,
    TYPES,
    WIDTH,
    Setting,
    Skip,
    TimedCase,
    of_reach,
    random,
    timed,
)
from reference.measure.clock import Call
from twin.spec.model import LatentAttention, ModelSpec


def gemm_cases(setting: Setting) -> list[TimedCase | Skip]:
    """Products of every number type; the model's own in bf16 forward and backward."""
    found: dict[str, TimedCase] = {}
    for dtype in setting.dtypes:
        for rows, cols, inner in _grid(setting):
            case = forward(dtype, rows, cols, inner)
            found[str(case)] = case
    for rows, (cols, inner) in product(_gemm_rows(setting), projections(setting.spec)):
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


def forward(dtype: str, M: int, N: int, K: int) -> TimedCase:
    """x_MK @ w_NK^T."""

    def make(device: torch.device) -> Call:
        x_MK, w_NK = (random(device, TYPES[dtype], n, K) for n in (M, N))
        return lambda: x_MK @ w_NK.T

    return _gemm_case("gemm", dtype, (M, N, K), make)


def input_gradient(dtype: str, M: int, N: int, K: int) -> TimedCase:
    """dy_MN @ w_NK: its result has K columns, and N is what is summed over."""

    def make(device: torch.device) -> Call:
        dy_MN, w_NK = random(device, TYPES[dtype], M, N), random(device, TYPES[dtype], N, K)
        return lambda: dy_MN @ w_NK

    return _gemm_case("gemm_input", dtype, (M, K, N), make)


def weight_gradient(dtype: str, M: int, N: int, K: int) -> TimedCase:
    """dy_MN^T @ x_MK, of the weight's shape, summed over M rows."""

    def make(device: torch.device) -> Call:
        dy_MN, x_MK = random(device, TYPES[dtype], M, N), random(device, TYPES[dtype], M, K)
        return lambda: dy_MN.T @ x_MK

    return _gemm_case("gemm_weight", dtype, (N, K, M), make)


def _gemm_case(op: str, dtype: str, sides: tuple[int, int, int], make) -> TimedCase:  # noqa: ANN001
    rows, cols, inner = sides
    size = float(WIDTH[dtype] * (rows * inner + inner * cols + rows * cols))
    shape = {"rows": rows, "cols": cols, "inner": inner}
    return TimedCase(op, shape, dtype, 2.0 * rows * cols * inner, size, 1, timed(make, size))


def _gemm_rows(setting: Setting) -> tuple[int, ...]:
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


RANK = 24
"""Experts of one rank at most: Kimi K2's under 16-way expert parallelism (report, section 2.4)."""


def grouped_cases(setting: Setting) -> list[TimedCase | Skip]:
    """Both products of an expert: gate and up together, and down."""
    moe = setting.spec.moe
    if moe is None:
        return [Skip("grouped", "every shape", f"{setting.model} has no experts")]
    groups, D, F = min(moe.experts, RANK), setting.spec.hidden, moe.width
    found: list[TimedCase] = []
    for inner, cols in ((D, 2 * F), (F, D)):
        for rows in _grouped_rows(setting):
            equal = [rows] * groups
            found += [_forward("grouped", equal, inner, cols), _weight(equal, inner, cols)]
        uneven = skewed(_grouped_rows(setting)[-1] * groups, groups)
        holes = [0 if e % 4 == 3 else n for e, n in enumerate(uneven)]
        found.append(_forward("grouped_uneven", uneven, inner, cols))
        found.append(_forward("grouped_empty", holes, inner, cols))
    return of_reach(found, "grouped", setting)


def skewed(rows: int, groups: int) -> list[int]:
    """Rows per group in proportion to 1, 1/2, 1/3, ... (Zipf); at least one each."""
    weights = [1 / (e + 1) for e in range(groups)]
    shares = [max(1, int(rows * w / sum(weights))) for w in weights]
    shares[0] += max(0, rows - sum(shares))
    return shares


def _grouped_rows(setting: Setting) -> tuple[int, ...]:
    """Rows per expert."""
    if setting.quick:
        return (16, 64)
    return (512, 1024, 2048, 4096, 8192) if setting.cuda else (16, 64, 256, 1024)


def _forward(op: str, counts: list[int], inner: int, cols: int) -> TimedCase:
    def make(device: torch.device) -> Call:
        x_RI, w_EIO, ends_E = _inputs(device, counts, inner, cols)
        return lambda: grouped_matmul(x_RI, w_EIO, ends_E)

    shape = _shape(counts, counts[0], cols, inner)
    return _grouped_case(op, shape, (sum(counts), inner, cols), make)


def _weight(counts: list[int], inner: int, cols: int) -> TimedCase:
    """Only the weights ask for a gradient, so that the rows' is not made."""

    def make(device: torch.device) -> Call:
        x_RI, w_EIO, ends_E = _inputs(device, counts, inner, cols)
        out_RO = grouped_matmul(x_RI, w_EIO.requires_grad_(), ends_E)
        dout_RO = torch.randn_like(out_RO)
        return lambda: torch.autograd.grad(out_RO, w_EIO, dout_RO, retain_graph=True)

    shape = _shape(counts, inner, cols, counts[0])
    return _grouped_case("grouped_weight", shape, (sum(counts), inner, cols), make)


def _inputs(
    device: torch.device, counts: list[int], inner: int, cols: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x_RI = random(device, TYPES[BF16], sum(counts), inner)
    w_EIO = random(device, TYPES[BF16], len(counts), inner, cols)
    ends_E = torch.tensor(counts, device=device).cumsum(0).to(torch.int32)
    return x_RI, w_EIO, ends_E


def _shape(counts: list[int], rows: int, cols: int, inner: int) -> dict[str, int]:
    """As a product: the rows of the result of one group, its columns, and what it sums over; where
    groups differ, of the fullest."""
    return {"groups": len(counts), "rows": rows, "cols": cols, "inner": inner}


def _grouped_case(op: str, shape: dict[str, int], work: tuple[int, int, int], make) -> TimedCase:  # noqa: ANN001
    rows, inner, cols = work
    weights = shape["groups"] * inner * cols
    size = float(WIDTH[BF16] * (rows * inner + weights + rows * cols))
    return TimedCase(op, shape, BF16, 2.0 * rows * inner * cols, size, 1, timed(make, size))


LSE = 4
"""Bytes of the fp32 log-sum-exp per head and token."""
WIDE: tuple[int, int] = (192, 128)
"""Query-key and value width of Kimi K2's heads."""
DEPTH = {False: 1, True: 3}
"""Kernels that the twin counts, forward and backward: rowsum(dO * O), the main one, a cast."""


def attention_cases(setting: Setting) -> list[TimedCase | Skip]:
    """Each head shape at each length, forward and backward."""
    found = [
        _attention_case(heads, Q, V, T, backward=backward)
        for heads, Q, V in head_shapes(setting)
        for T in _lengths(setting)
        for backward in (False, True)
    ]
    return of_reach(found, "attention", setting)


def head_shapes(setting: Setting) -> list[tuple[int, int, int]]:
    """(heads, Q, V): the model's; on a GPU also twice as many of them, which Kimi K2's report
    weighs against its 64 (section 2.3); as many with Q cut to V; and, since narrow heads come less
    close to the peak, as many of Kimi K2's widths or, where these are the model's, of half."""
    heads, Q, V = widths(setting.spec)
    more = [(2 * heads, Q, V)] if setting.cuda else []
    other = (Q // 2, V // 2) if (Q, V) == WIDE else WIDE
    return list(dict.fromkeys([(heads, Q, V), *more, (heads, V, V), (heads, *other)]))


def widths(spec: ModelSpec) -> tuple[int, int, int]:
    """Heads, query-key width and value width of a model."""
    a = spec.attention
    if isinstance(a, LatentAttention):
        return a.heads, a.qk_nope_head_dim + a.qk_rope_head_dim, a.v_head_dim
    return a.heads, a.head_dim, a.head_dim


def _lengths(setting: Setting) -> tuple[int, ...]:
    if setting.quick:
        return (64, 256)
    return (512, 1024, 2048, 4096, 8192) if setting.cuda else (64, 128, 256, 512, 1024, 2048)


def _attention_case(heads: int, Q: int, V: int, T: int, *, backward: bool) -> TimedCase:
    def make(device: torch.device) -> Call:
        q, k, v = (random(device, TYPES[BF16], 1, T, heads, w) for w in (Q, Q, V))
        if not backward:
            return lambda: attention(q, k, v, Q**-0.5)
        inputs = [one.requires_grad_() for one in (q, k, v)]
        out, *_ = attention(q, k, v, Q**-0.5)
        dout = torch.randn_like(out)
        return lambda: torch.autograd.grad(out, inputs, dout, retain_graph=True)

    pairs = float(T * T * heads)  # 2 FLOP x half of the score matrix
    inputs = WIDTH[BF16] * T * heads * 2 * (Q + V)
    lse = LSE * T * heads
    flop = pairs * (3 * Q + 2 * V if backward else Q + V)
    size = float((2 if backward else 1) * inputs + lse)
    op = "attention_backward" if backward else "attention_forward"
    shape = {"batch": 1, "tokens": T, "heads": heads, "query_key": Q, "value": V}
    return TimedCase(op, shape, BF16, flop, size, DEPTH[backward], timed(make, size))
