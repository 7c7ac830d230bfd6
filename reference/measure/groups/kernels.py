"""What a kernel costs beside arithmetic: launches and the host's time (`launch`), kernels that wait
for memory (`bandwidth`), copies between host and device (`copies`).

`launch` is a chain of tiny kernels, per kernel once the host is ahead; `dispatch` the host's time
to enqueue one. On a CPU nothing runs ahead, and both are the time of a tiny operation.

`bandwidth` has copy, add, RMSNorm, SwiGLU, rotary positions, the cast to FP8, the sum of a weight's
gradient into fp32, copies of rows for their experts and back, and the loss over the vocabulary, in
the sizes of a micro-batch. Bytes are those of one fused kernel that reads its inputs once and
writes its outputs once, as the twin counts: what an unfused implementation moves beyond that shows
as a lower share of the bandwidth.

`copies` are pinned memory over PCIe each way where there is a GPU, from memory to memory where the
device is the host: offload on a CPU run, which reads and writes the same memory.

Legend: T tokens, D width, K experts per token, E experts, W words.

Products: dense ones (`gemm`), those of experts (`grouped`), and attention.

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

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import Final

import torch
from torch.nn import functional

from reference.kernels.attention import attention
from reference.kernels.fp8 import quantize
from reference.kernels.grouped import grouped_matmul
from reference.kernels.norm import rms_norm
from reference.kernels.swiglu import swiglu
from reference.measure import clock
from reference.measure.clock import Call, Timing
from reference.measure.points import (
    BF16,
    TYPES,
    WIDTH,
    BySetting,
    Make,
    Setting,
    Skip,
    TimedCase,
    bf16,
    gradient,
    of_reach,
    random,
    timed,
)
from reference.model.dispatch import gather, order_of, spread
from reference.model.moe import Router
from reference.model.rope import Positions, rotate
from twin.spec.model import LatentAttention, ModelSpec, Moe, Rope

CHAIN: Final = 20
"""Kernels in a chain."""
TINY: Final = 8
"""Numbers that each works on."""
FP8: Final = 1 + 4 / 128
"""Bytes of a value in FP8 with its part of a tile's fp32 scale."""
ROTARY: Final = 64
"""Width of the rotary part of a head (Kimi K2, DeepSeek-V3)."""
TOKENS: Final = BySetting((16, 1024), (8, 64, 512, 2048, 8192, 32768), (16, 256, 1024, 4096))
"""Tokens of the model's width; a few of them show what a kernel costs beside its bytes."""
LARGE: Final = BySetting([(2048, 4096)], [], [(4096, 4096)])
"""Tokens and width of what the memory of a host moves: more than its caches hold, no new pages."""
COPIED: Final = BySetting((16, 19), *[(12, 15, 18, 21, 24, 27)] * 2)
"""Exponents of two of the bytes copied."""


def launch_cases(setting: Setting) -> list[TimedCase | Skip]:
    """Chains of one elementwise kernel, and of a product, on a few numbers."""
    del setting
    chain, one = {"chain": CHAIN, "values": TINY}, {"values": TINY}
    size = 2.0 * CHAIN * TINY * 2
    square = {"rows": TINY, "cols": TINY, "inner": TINY}
    flop, moved = 2.0 * TINY**3, 6.0 * TINY**2
    linear = _host(_tiny_linear)
    return [
        TimedCase("launch", chain, BF16, 0.0, size, CHAIN, timed(_chain, size)),
        TimedCase("dispatch", one, BF16, 0.0, size / CHAIN, 1, _host(lambda d: bf16(d, TINY).neg_)),
        TimedCase("dispatch_gemm", square, BF16, flop, moved, 1, _host(_tiny_gemm)),
        TimedCase("dispatch_autograd", square, BF16, 3 * flop, 3 * moved, 3, linear),
    ]


def _chain(device: torch.device) -> Call:
    x = bf16(device, TINY)

    def call() -> None:
        for _ in range(CHAIN):
            x.neg_()  # magnitudes stay, however long the chain

    return call


def _tiny_gemm(device: torch.device) -> Call:
    x, w = bf16(device, TINY, TINY), bf16(device, TINY, TINY)
    return lambda: x @ w


def _tiny_linear(device: torch.device) -> Call:
    """A linear layer forward and both gradients: three kernels."""
    x, w = (bf16(device, TINY, TINY).requires_grad_() for _ in range(2))
    dy = bf16(device, TINY, TINY)
    return lambda: torch.autograd.grad(x @ w, (x, w), dy)


def _host(make: Make) -> Callable[[Setting], Timing]:
    return lambda setting: clock.host_seconds(make(setting.device), setting.device, setting.effort)


def bandwidth_cases(setting: Setting) -> list[TimedCase | Skip]:
    """Every kernel at every size."""
    found: list[TimedCase] = []
    for T in setting.of(TOKENS):
        found += [_memory_case(op, T, setting.spec.hidden) for op in KERNELS]
    for T in setting.of(TOKENS):
        found += _of_model(setting.spec, T)
    if not setting.cuda:
        found += [
            _memory_case(op, *TD) for TD in setting.of(LARGE) for op in ("copy", "accumulate")
        ]
    return of_reach(found, "bandwidth", setting)


def _memory_case(op: str, T: int, D: int) -> TimedCase:
    width, kernels, make = KERNELS[op]
    size, run = width * T * D, partial(make, T=T, D=D)
    return TimedCase(op, {"tokens": T, "width": D}, BF16, 0.0, size, kernels, timed(run, size))


def _of_model(spec: ModelSpec, T: int) -> Iterator[TimedCase]:
    """Loss and routed rows of a model. Bytes and kernels are those of the twin's ops: `loss_max`,
    `loss_exp` and `loss_softmax` (26 bytes per logit forward, 14 backward); `dispatch_permute` and
    `combine_unpermute`, whose backwards are each other's forward; `router_scores`."""
    D, W = spec.hidden, spec.vocab
    for op, width, kernels in (("loss", 26.0, 4), ("loss_backward", 14.0, 2)):
        make = timed(partial(_loss, T=T, W=W, backward=kernels == 2), 26.0 * T * W)
        yield TimedCase(op, {"tokens": T, "width": W}, BF16, 0.0, width * T * W, kernels, make)
    if spec.moe is None:
        return
    K, E = spec.moe.top_k, spec.moe.experts
    size = 2.0 * (1 + K) * T * D
    shape = {"tokens": T, "width": D, "copies": K}
    for op in ("spread", "gather"):
        make = timed(partial(_rows, op=op, T=T, D=D, experts=(K, E)), size)
        yield TimedCase(op, shape, BF16, 0.0, size, 1, make)
    for op, times in (("route", 3), ("route_backward", 2)):
        size = 4.0 * times * T * E + 8.0 * T * K
        make = timed(partial(_route, moe=spec.moe, T=T, backward=times == 2), size)
        yield TimedCase(op, {"tokens": T, "experts": E, "copies": K}, BF16, 0.0, size, 7, make)


def _loss(device: torch.device, *, T: int, W: int, backward: bool) -> Call:
    logits_TW = bf16(device, T, W)
    targets_T = torch.randint(W, (T,), device=device)
    if not backward:
        return lambda: functional.cross_entropy(logits_TW.float(), targets_T)
    wide_TW = logits_TW.requires_grad_().float()
    return gradient(functional.cross_entropy(wide_TW, targets_T), logits_TW)


def _rows(device: torch.device, *, op: str, T: int, D: int, experts: tuple[int, int]) -> Call:
    K, E = experts
    order = order_of(torch.rand(T, E, device=device).topk(K).indices, E)
    rows = bf16(device, T if op == "spread" else K * T, D)
    return lambda: (spread if op == "spread" else gather)(rows, order, K)


def _route(device: torch.device, *, moe: Moe, T: int, backward: bool) -> Call:
    """Scores, choice, weights and the order of rows, from logits."""
    router = Router(moe, 1, device, torch.bfloat16)
    router.bias.zero_()
    logits_TE = random(device, torch.float32, T, moe.experts)
    if backward:
        return gradient(router.assign(logits_TE.requires_grad_())[1], logits_TE)
    return lambda: order_of(router.assign(logits_TE)[0], moe.experts)


def _copy(device: torch.device, *, T: int, D: int) -> Call:
    x_TD, y_TD = bf16(device, T, D), bf16(device, T, D)
    return lambda: y_TD.copy_(x_TD)


def _add(device: torch.device, *, T: int, D: int) -> Call:
    x_TD, y_TD = bf16(device, T, D), bf16(device, T, D)
    return lambda: x_TD + y_TD


def _norm(device: torch.device, *, T: int, D: int) -> Call:
    x_TD, gain_D = bf16(device, T, D), bf16(device, D)
    return lambda: rms_norm(x_TD, gain_D, 1e-6)


def _norm_backward(device: torch.device, *, T: int, D: int) -> Call:
    x_TD, gain_D = bf16(device, T, D).requires_grad_(), bf16(device, D).requires_grad_()
    return gradient(rms_norm(x_TD, gain_D, 1e-6), x_TD, gain_D)


def _swiglu(device: torch.device, *, T: int, D: int) -> Call:
    gate_up = bf16(device, T, 2 * D)
    return lambda: swiglu(gate_up, None)


def _swiglu_backward(device: torch.device, *, T: int, D: int) -> Call:
    gate_up = bf16(device, T, 2 * D).requires_grad_()
    return gradient(swiglu(gate_up, None), gate_up)


def _rope(device: torch.device, *, T: int, D: int) -> Call:
    width = min(ROTARY, D)
    x_BTHR = bf16(device, 1, T, D // width, width)
    turns_TR = Positions(Rope(), width).turns(0, T, x_BTHR)
    return lambda: rotate(x_BTHR, turns_TR)


def _cast(device: torch.device, *, T: int, D: int) -> Call:
    x_TD = bf16(device, T, D)
    return lambda: quantize(x_TD)


def _accumulate(device: torch.device, *, T: int, D: int) -> Call:
    sum_TD, x_TD = random(device, torch.float32, T, D), bf16(device, T, D)
    return lambda: sum_TD.add_(x_TD)


KERNELS: Final[Mapping[str, tuple[float, int, Callable[..., Call]]]] = {
    "copy": (4.0, 1, _copy),
    "add": (6.0, 1, _add),
    "rms_norm": (4.0, 1, _norm),
    "rms_norm_backward": (6.0, 2, _norm_backward),
    "swiglu": (6.0, 1, _swiglu),
    "swiglu_backward": (10.0, 1, _swiglu_backward),
    "rope": (4.0, 1, _rope),
    "fp8_cast": (2 + FP8, 1, _cast),
    "accumulate": (10.0, 1, _accumulate),
}
"""Bytes per value of T x D, kernels that the twin counts, and what prepares a call."""


def copy_cases(setting: Setting) -> list[TimedCase | Skip]:
    """Sizes in steps of eight, each way; bytes are those of the payload."""
    ways = ("host_to_device", "device_to_host") if setting.cuda else ("host_copy",)
    sizes = [2**exponent for exponent in setting.of(COPIED)]
    found = [
        TimedCase(way, {"bytes": size}, "uint8", 0.0, float(size), 1, timed(make, size))
        for way in ways
        for size in sizes
        for make in [partial(_copied, way=way, size=size)]
    ]
    what, why = "pinned copies to and from a GPU", "no GPU; memory copies instead"
    skips = [] if setting.cuda else [Skip("copies", what, why)]
    return [*of_reach(found, "copies", setting), *skips]


def _copied(device: torch.device, *, way: str, size: int) -> Call:
    host, there = (
        torch.randint(256, (size,), dtype=torch.uint8, device=place) for place in ("cpu", device)
    )
    if way == "host_copy":
        return lambda: there.copy_(host)
    pinned = host.pin_memory()
    source, target = (pinned, there) if way == "host_to_device" else (there, pinned)
    return lambda: target.copy_(source, non_blocking=True)


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
    return of_reach(list(found.values()), "gemm", setting)


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
    return of_reach(found, "grouped", setting)


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
        _attention_case(heads, Q, V, T, backward=backward)
        for heads, Q, V in head_shapes(setting)
        for T in setting.of(LENGTHS)
        for backward in (False, True)
    ]
    if setting.cuda:
        found += [
            _attention_case(*shape, T, backward=backward, own=False)
            for shape in dict.fromkeys((*head_shapes(setting)[:1], *LLAMA))
            for T in (*setting.of(LENGTHS), LONGEST)
            for backward in (False, True)
        ]
    return of_reach(found, "attention", setting)


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
    heads: int, Q: int, V: int, T: int, *, backward: bool, own: bool = True
) -> TimedCase:
    """The reference's attention, which also finds the largest logits, or torch's."""

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if own:
            return attention(q, k, v, Q**-0.5)[0]
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def make(device: torch.device) -> Call:
        q, k, v = (bf16(device, 1, T, heads, width) for width in (Q, Q, V))
        if not backward:
            return lambda: run(q, k, v)
        q, k, v = (part.requires_grad_() for part in (q, k, v))
        return gradient(run(q, k, v), q, k, v)

    pairs = float(T * T * heads)  # 2 FLOP x half of the score matrix
    inputs = WIDTH[BF16] * T * heads * 2 * (Q + V)
    lse = LSE * T * heads
    flop = pairs * (3 * Q + 2 * V if backward else Q + V)
    size = float((2 if backward else 1) * inputs + lse)
    op = f"{'attention' if own else 'sdpa'}_{'backward' if backward else 'forward'}"
    shape = {"batch": 1, "tokens": T, "heads": heads, "query_key": Q, "value": V}
    return TimedCase(op, shape, BF16, flop, size, DEPTH[backward], timed(make, size))
