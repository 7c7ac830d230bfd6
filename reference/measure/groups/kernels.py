"""What a kernel costs beside arithmetic: launches and the host's time (`launch`), kernels that wait
for memory (`bandwidth`), copies between host and device (`copies`).

`launch` is a chain of tiny kernels, per kernel once the host is ahead; `dispatch` the host's time
to enqueue one. On a CPU nothing runs ahead, and both are the time of a tiny operation.

`bandwidth` has copy, add, RMSNorm, SwiGLU, rotary positions, the cast to FP8, the sum of a weight's
gradient into fp32, copies of rows for their experts and back, and the loss over the vocabulary, in
the sizes of a micro-batch. Bytes are those of one fused kernel that reads its inputs once and
writes its outputs once, as the twin counts: what an unfused implementation moves beyond that shows
as a lower share of the bandwidth.

On a CPU most of these are not kernels but functions of the reference, which find their operands
where the function before left them. They are timed among each other, with autograd, at a model's
widths (`reference.measure.host.items.in_place`): repeated alone they are up to twice as fast.

`copies` are pinned memory over PCIe each way where there is a GPU, from memory to memory where the
device is the host: offload on a CPU run, which reads and writes the same memory.

Legend: T tokens, D width, K experts per token, E experts, W words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import prod
from typing import Final

import torch

from reference.config import load_run
from reference.kernels.cross_entropy import cross_entropy
from reference.kernels.fp8 import quantize
from reference.kernels.norm import rms_norm
from reference.kernels.swiglu import swiglu
from reference.measure import clock
from reference.measure.clock import Call, Timing
from reference.measure.host.functions import Layers
from reference.measure.host.items import in_place
from reference.measure.points import (
    BF16,
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
from reference.trainer.settings import settings
from twin.spec.model import LatentAttention, ModelSpec, Moe, Rope

CHAIN: Final = 20
"""Kernels in a chain."""
TINY: Final = 8
"""Numbers that each works on."""
FP8: Final = 1 + 4 / 128
"""Bytes of a value in FP8 with its part of a tile's fp32 scale."""
ROTARY: Final = 64
"""Width of the rotary part of a head (Kimi K2, DeepSeek-V3)."""
BACK: Final = "_backward"
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
    placed = not setting.cuda and _has_functions(setting.spec)
    for T in setting.of(TOKENS):
        names = ALONE if placed else KERNELS
        found += [_memory_case(op, T, setting.spec.hidden) for op in names]
    for T in () if placed else setting.of(TOKENS):
        found += _of_model(setting.spec, T)
    for place in PLACES if placed else ():
        found += _in_place(setting, place)
    if not setting.cuda:
        found += [
            _memory_case(op, *TD) for TD in setting.of(LARGE) for op in ("copy", "accumulate")
        ]
    return of_reach(found, "bandwidth", setting)


def _has_functions(spec: ModelSpec) -> bool:
    """Whether a model has all that is timed in place."""
    latent = isinstance(spec.attention, LatentAttention) and spec.attention.q_lora_rank
    return bool(latent) and spec.moe is not None and spec.moe.shared_experts > 0


def _in_place(setting: Setting, place: tuple[int, int]) -> Iterator[TimedCase]:
    """The functions of a layer on so many sequences of so many tokens, all timed with the first.
    Bytes and kernels are those of the twin's ops."""
    spec, N = setting.spec, prod(place)
    assert isinstance(spec.attention, LatentAttention)
    assert spec.moe is not None
    D, W, E, K, F = spec.hidden, spec.vocab, spec.moe.experts, spec.moe.top_k, spec.moe.width
    norm, gate, rows = D * N, F * spec.moe.shared_experts * N, K * N
    # By function: bytes forward and backward, and kernels of each.
    functions = {
        "norm": ("rms_norm", 4 * norm, 6 * norm, 1, 2),
        "swiglu": ("swiglu", 6 * gate, 10 * gate, 1, 1),
        "weighted_swiglu": ("weighted_swiglu", 6 * F * rows, 10 * F * rows, 1, 1),
        "experts_order": ("order", 4 * D * (N + rows), 4 * D * (N + rows), 2, 2),
        "router": ("route", 12 * E * N + 8 * rows, 8 * E * N + 8 * rows, 7, 7),
        "loss": ("loss", 26 * W * N, 14 * W * N, 4, 2),
        "latent_attention": ("rope", *[_rotated(spec.attention, N)] * 2, 2, 2),
    }
    made: dict[str, float] = {}
    shape = {"sequences": place[0], "tokens": place[1]}
    for name, (op, *moved) in functions.items():
        for way, size, kernels in (("", *moved[::2]), (BACK, *moved[1::2])):
            run = partial(_placed, name + way, made, place)
            yield TimedCase(op + way, shape, BF16, 0.0, float(size), kernels, run)


def _rotated(a: LatentAttention, N: int) -> int:
    """Bytes of `mla_rope`: rotary parts of queries in place, keys from their parts, values."""
    nope, rotary = a.qk_nope_head_dim, a.qk_rope_head_dim
    return 2 * N * (a.heads * (3 * rotary + 2 * nope + 2 * a.v_head_dim) + rotary)


def _placed(name: str, made: dict[str, float], place: tuple[int, int], setting: Setting) -> Timing:
    """A function of the same rounds as the others, which are timed anew once it has been told."""
    if name not in made:
        run = load_run("nano", ["train.threads=1", "train.precision=bf16"])
        spec = setting.spec.model_copy(update={"layers": 2})
        with settings(run.train):
            made |= in_place(Layers(run.model_copy(update={"model": spec}), *place))
    return clock.summary([made.pop(name)], 1)


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
        return lambda: cross_entropy(logits_TW, targets_T).mean()
    return gradient(cross_entropy(logits_TW.requires_grad_(), targets_T).mean(), logits_TW)


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
    turns_TR = Positions(Rope(), width).turns(T, x_BTHR)
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


ALONE: Final = ("copy", "add", "fp8_cast", "accumulate")
"""Those that are timed alone on a CPU."""
PLACES: Final = ((1, 64), (1, 256), (4, 256), (8, 256), (1, 1024))
"""Sequences and their tokens of functions that are timed in place."""


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
