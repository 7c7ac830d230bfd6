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
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch.nn import functional

from reference.kernels.fp8 import quantize
from reference.kernels.norm import rms_norm
from reference.kernels.swiglu import swiglu
from reference.measure import clock
from reference.measure.cases import BF16, TYPES, Setting, Skip, TimedCase, of_reach, random, timed
from reference.measure.clock import Call
from reference.measure.points import Timing
from reference.model.dispatch import gather, order_of, spread
from reference.model.rope import Positions, rotate
from reference.model.router import Router
from twin.spec.model import ModelSpec, Moe, Rope

CHAIN = 20
"""Kernels in a chain."""
TINY = 8
"""Numbers that each works on."""


def launch_cases(setting: Setting) -> list[TimedCase | Skip]:
    """Chains of one elementwise kernel, and of a product, on a few numbers."""
    del setting
    shape = {"chain": CHAIN, "values": TINY}
    size = 2.0 * CHAIN * TINY * 2
    product = {"rows": TINY, "cols": TINY, "inner": TINY}
    return [
        TimedCase("launch", shape, BF16, 0.0, size, CHAIN, timed(_chain, size)),
        TimedCase("dispatch", {"values": TINY}, BF16, 0.0, size / CHAIN, 1, _host(_tiny)),
        TimedCase(
            "dispatch_gemm", product, BF16, 2.0 * TINY**3, 6.0 * TINY**2, 1, _host(_tiny_gemm)
        ),
        TimedCase(
            "dispatch_autograd",
            product,
            BF16,
            6.0 * TINY**3,
            18.0 * TINY**2,
            3,
            _host(_tiny_linear),
        ),
    ]


def _chain(device: torch.device) -> Call:
    x = random(device, TYPES[BF16], TINY)

    def call() -> None:
        for _ in range(CHAIN):
            x.neg_()  # magnitudes stay, however long the chain

    return call


def _tiny(device: torch.device) -> Call:
    return random(device, TYPES[BF16], TINY).neg_


def _tiny_gemm(device: torch.device) -> Call:
    x, w = random(device, TYPES[BF16], TINY, TINY), random(device, TYPES[BF16], TINY, TINY)
    return lambda: x @ w


def _tiny_linear(device: torch.device) -> Call:
    """A linear layer forward and both gradients: three kernels."""
    x, w = (random(device, TYPES[BF16], TINY, TINY).requires_grad_() for _ in range(2))
    dy = random(device, TYPES[BF16], TINY, TINY)
    return lambda: torch.autograd.grad(x @ w, (x, w), dy)


def _host(make):  # noqa: ANN001, ANN202
    def run(setting: Setting) -> Timing:
        return clock.host_seconds(make(setting.device), setting.device, setting.effort)

    return run


Make = Callable[[torch.device], Call]

FP8 = 1 + 4 / 128
"""Bytes of a value in FP8 with its part of a tile's fp32 scale."""
ROTARY = 64
"""Width of the rotary part of a head (Kimi K2, DeepSeek-V3)."""


def bandwidth_cases(setting: Setting) -> list[TimedCase | Skip]:
    """Every kernel at every size."""
    D = setting.spec.hidden
    found = [
        _memory_case(op, T, D, *kernel)
        for T in _tokens(setting)
        for op, kernel in _kernels(T, D).items()
    ]
    found += [one for T in _tokens(setting) for one in _of_model(setting.spec, T)]
    if not setting.cuda:
        # What the memory of the host moves: more than its caches hold, no new pages.
        T, D = (2048, 4096) if setting.quick else (4096, 4096)
        found += [_memory_case(op, T, D, *_kernels(T, D)[op]) for op in ("copy", "accumulate")]
    return of_reach(found, "bandwidth", setting)


def _memory_case(op: str, T: int, D: int, width: float, kernels: int, make: Make) -> TimedCase:
    size = width * T * D
    return TimedCase(op, {"tokens": T, "width": D}, BF16, 0.0, size, kernels, timed(make, size))


def _tokens(setting: Setting) -> tuple[int, ...]:
    """Tokens of the model's width; a few of them show what a kernel costs beside its bytes."""
    if setting.quick:
        return (16, 1024)
    return (8, 64, 512, 2048, 8192, 32768) if setting.cuda else (16, 256, 1024, 4096)


def _kernels(T: int, D: int) -> dict[str, tuple[float, int, Make]]:
    """Bytes per value of T x D, kernels that the twin counts, and the call, by name."""
    return {
        "copy": (4.0, 1, lambda device: _copy(device, T, D)),
        "add": (6.0, 1, lambda device: _add(device, T, D)),
        "rms_norm": (4.0, 1, lambda device: _norm(device, T, D, backward=False)),
        "rms_norm_backward": (6.0, 2, lambda device: _norm(device, T, D, backward=True)),
        "swiglu": (6.0, 1, lambda device: _swiglu(device, T, D, backward=False)),
        "swiglu_backward": (10.0, 1, lambda device: _swiglu(device, T, D, backward=True)),
        "rope": (4.0, 1, lambda device: _rope(device, T, D)),
        "fp8_cast": (2 + FP8, 1, lambda device: _cast(device, T, D)),
        "accumulate": (10.0, 1, lambda device: _accumulate(device, T, D)),
    }


def _of_model(spec: ModelSpec, T: int) -> Iterator[TimedCase]:
    """Loss and routed rows of a model. Bytes and kernels are those of the twin's ops: `loss_max`,
    `loss_exp` and `loss_softmax` (26 bytes per logit forward, 14 backward); `dispatch_permute` and
    `combine_unpermute`, whose backwards are each other's forward; `router_scores`."""
    D, W = spec.hidden, spec.vocab
    for op, width, kernels in (("loss", 26.0, 4), ("loss_backward", 14.0, 2)):
        make = _loss(T, W, backward=op == "loss_backward")
        yield TimedCase(op, {"tokens": T, "width": W}, BF16, 0.0, width * T * W, kernels, make)
    if spec.moe is None:
        return
    K, E = spec.moe.top_k, spec.moe.experts
    size = 2.0 * (1 + K) * T * D
    shape = {"tokens": T, "width": D, "copies": K}
    for op in ("spread", "gather"):
        yield TimedCase(op, shape, BF16, 0.0, size, 1, timed(_rows(op, T, D, (K, E)), size))
    for op, times in (("route", 3), ("route_backward", 2)):
        size = 4.0 * times * T * E + 8.0 * T * K
        make = timed(_route(spec.moe, T, backward=times == 2), size)
        yield TimedCase(op, {"tokens": T, "experts": E, "copies": K}, BF16, 0.0, size, 7, make)


def _loss(T: int, W: int, *, backward: bool) -> Callable[[Setting], Timing]:
    def make(device: torch.device) -> Call:
        logits_TW = random(device, TYPES[BF16], T, W)
        targets_T = torch.randint(W, (T,), device=device)
        if not backward:
            return lambda: functional.cross_entropy(logits_TW.float(), targets_T)
        wide_TW = logits_TW.requires_grad_().float()
        return _gradient(functional.cross_entropy(wide_TW, targets_T), logits_TW)

    return timed(make, 26.0 * T * W)


def _rows(op: str, T: int, D: int, experts: tuple[int, int]) -> Make:
    K, E = experts

    def make(device: torch.device) -> Call:
        order = order_of(torch.rand(T, E, device=device).topk(K).indices, E)
        rows = random(device, TYPES[BF16], T if op == "spread" else K * T, D)
        if op == "spread":
            return lambda: spread(rows, order, K)
        return lambda: gather(rows, order, K)

    return make


def _route(moe: Moe, T: int, *, backward: bool) -> Make:
    """Scores, choice, weights and the order of rows, from logits."""

    def make(device: torch.device) -> Call:
        router = Router(moe, 1, device, TYPES[BF16])
        router.bias.zero_()
        logits_TE = random(device, torch.float32, T, moe.experts)
        if backward:
            return _gradient(router.assign(logits_TE.requires_grad_())[1], logits_TE)
        return lambda: order_of(router.assign(logits_TE)[0], moe.experts)

    return make


def _copy(device: torch.device, T: int, D: int) -> Call:
    x_TD, y_TD = (random(device, TYPES[BF16], T, D) for _ in range(2))
    return lambda: y_TD.copy_(x_TD)


def _add(device: torch.device, T: int, D: int) -> Call:
    x_TD, y_TD = (random(device, TYPES[BF16], T, D) for _ in range(2))
    return lambda: x_TD + y_TD


def _norm(device: torch.device, T: int, D: int, *, backward: bool) -> Call:
    x_TD, gain_D = random(device, TYPES[BF16], T, D), random(device, TYPES[BF16], D)
    if not backward:
        return lambda: rms_norm(x_TD, gain_D, 1e-6)
    return _gradient(rms_norm(x_TD.requires_grad_(), gain_D.requires_grad_(), 1e-6), x_TD, gain_D)


def _swiglu(device: torch.device, T: int, D: int, *, backward: bool) -> Call:
    gate_up = random(device, TYPES[BF16], T, 2 * D)
    if not backward:
        return lambda: swiglu(gate_up, None)
    return _gradient(swiglu(gate_up.requires_grad_(), None), gate_up)


def _rope(device: torch.device, T: int, D: int) -> Call:
    width = min(ROTARY, D)
    x_BTHR = random(device, TYPES[BF16], 1, T, D // width, width)
    turns_TR = Positions(Rope(), width).turns(0, T, x_BTHR)
    return lambda: rotate(x_BTHR, turns_TR)


def _cast(device: torch.device, T: int, D: int) -> Call:
    x_TD = random(device, TYPES[BF16], T, D)
    return lambda: quantize(x_TD)


def _accumulate(device: torch.device, T: int, D: int) -> Call:
    sum_TD, x_TD = random(device, torch.float32, T, D), random(device, TYPES[BF16], T, D)
    return lambda: sum_TD.add_(x_TD)


def _gradient(out: torch.Tensor, *inputs: torch.Tensor) -> Call:
    dout = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, inputs, dout, retain_graph=True)


BYTE = "uint8"


def copy_cases(setting: Setting) -> list[TimedCase | Skip]:
    """Sizes in steps of eight, each way; bytes are those of the payload."""
    exponents = (16, 19) if setting.quick else (12, 15, 18, 21, 24, 27)
    sizes = [2**exponent for exponent in exponents]
    if not setting.cuda:
        found = [_copy_case("host_copy", size, _within) for size in sizes]
        return [
            *of_reach(found, "copies", setting),
            Skip("copies", "pinned copies to and from a GPU", "no GPU; memory copies instead"),
        ]
    down = [_copy_case("device_to_host", size, _down) for size in sizes]
    return of_reach(
        [_copy_case("host_to_device", size, _up) for size in sizes] + down, "copies", setting
    )


def _copy_case(op: str, size: int, make) -> TimedCase:  # noqa: ANN001
    run = timed(lambda device: make(device, size), size)
    return TimedCase(op, {"bytes": size}, BYTE, 0.0, float(size), 1, run)


def _within(device: torch.device, size: int) -> Call:
    source, target = (_random_bytes(size, device) for _ in range(2))
    return lambda: target.copy_(source)


def _up(device: torch.device, size: int) -> Call:
    source, target = _random_bytes(size).pin_memory(), _random_bytes(size, device)
    return lambda: target.copy_(source, non_blocking=True)


def _down(device: torch.device, size: int) -> Call:
    source, target = _random_bytes(size, device), _random_bytes(size).pin_memory()
    return lambda: target.copy_(source, non_blocking=True)


def _random_bytes(size: int, device: torch.device | str = "cpu") -> torch.Tensor:
    return torch.randint(256, (size,), dtype=torch.uint8, device=device)
