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

from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import Final

import torch
from torch.nn import functional

from reference.kernels.attention import attention
from reference.kernels.grouped import grouped_matmul
from reference.measure.clock import Call
from reference.measure.groups.deepgemm import deepgemm_cases
from reference.measure.points import (
    BF16,
    TYPES,
    WIDTH,
    BySetting,
    Setting,
    Skip,
    TimedCase,
    bf16,
    gradient,
    of_reach,
    random,
    timed,
)
from twin.spec.model import LatentAttention, ModelSpec

Sides = tuple[int, int]
Multiply = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
ROWS: Final = BySetting((128,), (1024, 4096, 8192), (256, 1024))
"""Tokens of a micro-batch."""
GRID: Final = BySetting(
    ((8, 64, 256), (64, 256), (64, 256)),
    ((64, 256, 1024, 4096, 16384), (512, 2048, 8192), (512, 2048, 8192)),
    ((8, 32, 128, 512, 2048), (64, 256, 1024), (64, 256, 1024)),
)
"""Rows, columns and inner sums in powers of four."""
EXPERT_ROWS: Final = BySetting((16, 64), (512, 1024, 2048, 4096, 8192), (16, 64, 256, 1024))
"""Rows per expert."""
LENGTHS: Final = BySetting(
    (64, 256), (512, 1024, 2048, 4096, 8192), (64, 128, 256, 512, 1024, 2048)
)
"""Tokens of a sequence."""
RANK: Final = 24
"""Experts of one rank at most: Kimi K2's under 16-way expert parallelism (report, section 2.4)."""
LSE: Final = 4
"""Bytes of the fp32 log-sum-exp per head and token."""
WIDE: Final[tuple[int, int]] = (192, 128)
"""Query-key and value width of Kimi K2's heads."""
DEPTH: Final = {False: 1, True: 3}
"""Kernels that the twin counts, forward and backward: rowsum(dO * O), the main one, a cast."""


def gemm_cases(setting: Setting) -> list[TimedCase | Skip]:
    """Products of every number type; the model's own in bf16 forward and backward."""
    found: dict[str, TimedCase] = {}
    for dtype in setting.dtypes:
        for rows, cols, inner in product(*setting.of(GRID)):
            case = gemm("gemm", dtype, rows, cols, inner)
            found[str(case)] = case
    for rows, (cols, inner) in product(setting.of(ROWS), projections(setting.spec)):
        for case in (
            gemm("gemm", BF16, rows, cols, inner),
            gemm("gemm_input", BF16, rows, inner, cols),
            gemm("gemm_weight", BF16, cols, inner, rows),
        ):
            found[str(case)] = case
    if not setting.cuda:
        fp8 = Skip("gemm", "FP8 products", "torch multiplies FP8 on a GPU only")
        return [*of_reach(list(found.values()), "gemm", setting), fp8]
    for rows, (cols, inner) in product(setting.of(ROWS), projections(setting.spec)):
        for scaling in SCALINGS:
            case = _fp8_gemm(scaling, rows, cols, inner)
            found[str(case)] = case
    sides = [(rows, *pair) for rows in setting.of(ROWS) for pair in projections(setting.spec)]
    return [*of_reach(list(found.values()), "gemm", setting), *deepgemm_cases("gemm", sides)]


SCALINGS: Final = ("tensor", "row", "block")
"""Of FP8 operands: one scale, one for each row, one for 1 x 128 values of x and 128 x 128 of w."""


def _fp8_gemm(scaling: str, rows: int, cols: int, inner: int) -> TimedCase:
    """The product alone: its operands are FP8 already."""

    def make(device: torch.device) -> Call:
        return fp8_product(bf16(device, rows, inner), bf16(device, cols, inner), scaling)

    size = float(rows * inner + inner * cols + 2 * rows * cols)
    shape, flop = {"rows": rows, "cols": cols, "inner": inner}, 2.0 * rows * cols * inner
    return TimedCase(f"gemm_fp8_{scaling}", shape, "fp8", flop, size, 1, timed(make, size))


def fp8_product(x_MK: torch.Tensor, w_NK: torch.Tensor, scaling: str) -> Call:
    """x times w transposed in FP8-E4M3, bf16 out, as torch's own kernels do it; scales are ones."""
    x, w = (each.to(torch.float8_e4m3fn) for each in (x_MK, w_NK))
    (rows, inner), cols = x.shape, w.shape[0]
    ones = partial(torch.ones, dtype=torch.float32, device=x.device)
    if scaling == "tensor":
        scales = ones(()), ones(())
    elif scaling == "row":
        scales = ones(rows, 1), ones(1, cols)
    else:  # those of x lie column by column, those of w row by row (cuBLAS, FP8 block scales)
        scales = ones(inner // 128, rows).T, ones(-(-cols // 128), inner // 128).T
    fast = scaling != "block"
    # There is no public name for it (torch.nn.functional.scaled_mm asks for recipes).
    return lambda: torch._scaled_mm(  # noqa: SLF001  # pyright: ignore[reportPrivateImportUsage]
        x, w.T, *scales, out_dtype=torch.bfloat16, use_fast_accum=fast
    )


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


GEMMS: Final[Mapping[str, tuple[Callable[..., tuple[Sides, Sides]], Multiply]]] = {
    "gemm": (lambda rows, cols, inner: ((rows, inner), (cols, inner)), lambda x, w: x @ w.T),
    "gemm_input": (lambda rows, cols, inner: ((rows, inner), (inner, cols)), torch.matmul),
    "gemm_weight": (
        lambda rows, cols, inner: ((inner, rows), (inner, cols)),
        lambda dy, x: dy.T @ x,
    ),
}
"""Both operands of a result of rows x cols, and how they are multiplied: x_MK @ w_NK^T, dy_MN @
w_NK (its result has K columns, and N is summed over), dy_MN^T @ x_MK (summed over M rows)."""


def gemm(op: str, dtype: str, rows: int, cols: int, inner: int) -> TimedCase:
    """A product of rows x cols with an inner sum."""
    sides, multiply = GEMMS[op]

    def make(device: torch.device) -> Call:
        a, b = (random(device, TYPES[dtype], *side) for side in sides(rows, cols, inner))
        return lambda: multiply(a, b)

    size = float(WIDTH[dtype] * (rows * inner + inner * cols + rows * cols))
    shape = {"rows": rows, "cols": cols, "inner": inner}
    return TimedCase(op, shape, dtype, 2.0 * rows * cols * inner, size, 1, timed(make, size))


def grouped_cases(setting: Setting) -> list[TimedCase | Skip]:
    """Both products of an expert: gate and up together, and down."""
    moe = setting.spec.moe
    if moe is None:
        return [Skip("grouped", "every shape", f"{setting.model} has no experts")]
    groups, D, F = min(moe.experts, RANK), setting.spec.hidden, moe.width
    found: list[TimedCase] = []
    for inner, cols in ((D, 2 * F), (F, D)):
        for rows in setting.of(EXPERT_ROWS):
            equal = [rows] * groups
            found += [_grouped(op, equal, inner, cols) for op in ("grouped", "grouped_weight")]
        uneven = skewed(setting.of(EXPERT_ROWS)[-1] * groups, groups)
        holes = [0 if e % 4 == 3 else n for e, n in enumerate(uneven)]
        found.append(_grouped("grouped_uneven", uneven, inner, cols))
        found.append(_grouped("grouped_empty", holes, inner, cols))
    if not setting.cuda:
        return of_reach(found, "grouped", setting)
    sides = [(n, c, i) for c, i in ((2 * F, D), (D, F)) for n in setting.of(EXPERT_ROWS)]
    return [*of_reach(found, "grouped", setting), *deepgemm_cases("grouped", sides, groups)]


def skewed(rows: int, groups: int) -> list[int]:
    """Rows per group in proportion to 1, 1/2, 1/3, ... (Zipf); at least one each."""
    weights = [1 / (e + 1) for e in range(groups)]
    shares = [max(1, int(rows * w / sum(weights))) for w in weights]
    shares[0] += max(0, rows - sum(shares))
    return shares


def _grouped(op: str, counts: list[int], inner: int, cols: int) -> TimedCase:
    """A product of all groups, or the weights' gradient: only they ask for one, so that the rows'
    is not made. The shape is one group's, of the fullest where they differ."""
    weight = op == "grouped_weight"

    def make(device: torch.device) -> Call:
        x_RI, w_EIO = bf16(device, sum(counts), inner), bf16(device, len(counts), inner, cols)
        ends_E = torch.tensor(counts, device=device).cumsum(0).to(torch.int32)
        if weight:
            return gradient(grouped_matmul(x_RI, w_EIO.requires_grad_(), ends_E), w_EIO)
        return lambda: grouped_matmul(x_RI, w_EIO, ends_E)

    groups, rows, E = {"groups": len(counts)}, sum(counts), len(counts)
    sides = (inner, cols, counts[0]) if weight else (counts[0], cols, inner)
    shape = groups | dict(zip(("rows", "cols", "inner"), sides, strict=True))
    size = float(WIDTH[BF16] * (rows * inner + E * inner * cols + rows * cols))
    return TimedCase(op, shape, BF16, 2.0 * rows * inner * cols, size, 1, timed(make, size))


def attention_cases(setting: Setting) -> list[TimedCase | Skip]:
    """Each head shape at each length, forward and backward."""
    found = [
        _attention_case((heads, Q, V), T, batch, backward=backward)
        for heads, Q, V in head_shapes(setting)
        for T in setting.of(LENGTHS)
        for batch in setting.of(BATCHES)
        for backward in (False, True)
    ]
    if setting.cuda:
        found += [
            _attention_case(shape, T, backward=backward, own=False)
            for shape in dict.fromkeys((*head_shapes(setting)[:1], *LLAMA))
            for T in (*setting.of(LENGTHS), LONGEST)
            for backward in (False, True)
        ]
    return of_reach(found, "attention", setting)


BATCHES: Final = BySetting((1,), (1,), (1, 4))
"""Sequences of a call: a CPU goes through blocks of queries, of several sequences at once."""
LLAMA: Final = ((32, 128, 128), (32, 64, 64))
"""Heads and widths of Llama 3 8B and Llama 3.2 1B."""
LONGEST: Final = 16384
"""Tokens of the longest sequence of torch's own attention."""


def head_shapes(setting: Setting) -> list[tuple[int, int, int]]:
    """(heads, Q, V): the model's; on a GPU also twice as many of them, which Kimi K2's report
    weighs against its 64 (section 2.3); as many with Q cut to V; and, since narrow heads come less
    close to the peak, as many of Kimi K2's widths or, where these are the model's, of half."""
    heads, Q, V = widths(setting.spec)
    more = [(2 * heads, Q, V)] if setting.cuda else []
    narrow = (heads, Q // 2, V // 2) if (Q, V) == WIDE else (heads, WIDE[0], WIDE[1])
    return list(dict.fromkeys([(heads, Q, V), *more, (heads, V, V), narrow]))


def widths(spec: ModelSpec) -> tuple[int, int, int]:
    """Heads, query-key width and value width of a model."""
    a = spec.attention
    if isinstance(a, LatentAttention):
        return a.heads, a.qk_nope_head_dim + a.qk_rope_head_dim, a.v_head_dim
    return a.heads, a.head_dim, a.head_dim


def _attention_case(
    shape: tuple[int, int, int], T: int, batch: int = 1, *, backward: bool, own: bool = True
) -> TimedCase:
    """The reference's attention, which also finds the largest logits, or torch's; `shape`: heads,
    Q, V."""
    heads, Q, V = shape

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if own:
            return attention(q, k, v, Q**-0.5)[0]
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def make(device: torch.device) -> Call:
        q, k, v = (bf16(device, batch, T, heads, width) for width in (Q, Q, V))
        if not backward:
            return lambda: run(q, k, v)
        q, k, v = (part.requires_grad_() for part in (q, k, v))
        return gradient(run(q, k, v), q, k, v)

    pairs = float(batch * T * T * heads)  # 2 FLOP x half of the score matrix
    inputs = WIDTH[BF16] * batch * T * heads * 2 * (Q + V)
    lse = LSE * batch * T * heads
    flop = pairs * (3 * Q + 2 * V if backward else Q + V)
    size = float((2 if backward else 1) * inputs + lse)
    op = f"{'attention' if own else 'sdpa'}_{'backward' if backward else 'forward'}"
    named = {"batch": batch, "tokens": T, "heads": heads, "query_key": Q, "value": V}
    return TimedCase(op, named, BF16, flop, size, DEPTH[backward], timed(make, size))
