"""Kernels of two streams at a time (`streams`), and products without pause (`sustained`).

A case of `streams` times one operation while a second stream repeats another without pause; its
shape says the bytes or FLOP of a call. Each operation is timed alone in the same group, so that the
slowdown is a ratio within one minute. `sustained` repeats one large GEMM for seconds: a GPU that
reaches its power limit lowers its clock, which short rows never show.

Legend: T tokens, D width, H heads, Q query-key width, V value width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import torch
from torch.nn.functional import scaled_dot_product_attention

from reference.kernels.swiglu import swiglu
from reference.measure import clock
from reference.measure.clock import Call, Timing
from reference.measure.groups.products import WIDE, fp8_product
from reference.measure.points import BF16, Setting, Skip, TimedCase, bf16

T: Final = 4096
"""Tokens of a micro-batch."""
D, F, H = 7168, 2048, 64
"""Widths and heads of Kimi K2, so that pairs of one GPU compare with those of another."""
PINNED: Final = 1 << 26
"""Bytes of a copy between host and device."""
SQUARE: Final = 8192
"""Rows, columns and inner sum of the sustained GEMM."""
SUSTAINED: Final = 100.0
"""Times a case's seconds that the sustained GEMM runs: 10 s of 0.1 s."""

Work = tuple[float, float, Callable[[torch.device], Call]]
"""FLOP and bytes of a call, and what prepares it."""


def _gemm(device: torch.device) -> Call:
    x, w = bf16(device, T, D), bf16(device, 2 * F, D)
    return lambda: x @ w.T


def _attention(device: torch.device) -> Call:
    q, k, v = (bf16(device, 1, H, T, width) for width in (WIDE[0], WIDE[0], WIDE[1]))
    return lambda: scaled_dot_product_attention(q, k, v, is_causal=True)


def _swiglu(device: torch.device) -> Call:
    gate_up = bf16(device, T, 2 * D)
    return lambda: swiglu(gate_up, None)


def _copied(way: str, device: torch.device) -> Call:
    host = torch.empty(PINNED, dtype=torch.uint8, pin_memory=device.type == "cuda")
    there = torch.empty(PINNED, dtype=torch.uint8, device=device)
    source, target = (host, there) if way == "host_to_device" else (there, host)
    return lambda: target.copy_(source, non_blocking=True)


WORKS: Final[Mapping[str, Work]] = {
    "gemm": (4.0 * T * D * F, 2.0 * (T * D + 2 * D * F + 2 * T * F), _gemm),
    "attention": (float(T * T * H * sum(WIDE)), 4.0 * T * H * sum(WIDE), _attention),
    "swiglu": (0.0, 6.0 * T * D, _swiglu),
    "host_to_device": (0.0, float(PINNED), partial(_copied, "host_to_device")),
    "device_to_host": (0.0, float(PINNED), partial(_copied, "device_to_host")),
}
PAIRS: Final = (
    ("gemm", "swiglu"),
    ("swiglu", "gemm"),
    ("gemm", "attention"),
    ("attention", "gemm"),
    ("gemm", "host_to_device"),
    ("gemm", "device_to_host"),
    ("attention", "device_to_host"),
    ("swiglu", "host_to_device"),
    ("swiglu", "device_to_host"),
    ("host_to_device", "gemm"),
    ("host_to_device", "swiglu"),
    ("device_to_host", "gemm"),
    ("host_to_device", "device_to_host"),
    ("device_to_host", "host_to_device"),
)
"""What is timed, and what runs beside it."""


def stream_cases(setting: Setting) -> list[TimedCase | Skip]:
    """Each operation alone, then the pairs."""
    if not setting.cuda:
        return [Skip("streams", "kernels of two streams", "a CPU has no streams")]
    pairs = PAIRS[:2] if setting.quick else PAIRS
    alone = dict.fromkeys(name for pair in pairs for name in pair)
    return [*(_case(name, None) for name in alone), *(_case(*pair) for pair in pairs)]


def _case(name: str, other: str | None) -> TimedCase:
    flop, size, make = WORKS[name]

    def run(setting: Setting) -> Timing:
        call = make(setting.device)
        if other is None:
            return clock.measure([call], setting.device, setting.effort)
        return clock.beside(call, WORKS[other][2](setting.device), setting.device, setting.effort)

    op = f"{name}_alone" if other is None else f"{name}_beside_{other}"
    return TimedCase(op, {"bytes": int(size)}, BF16, flop, size, 1, run)


def sustained_cases(setting: Setting) -> list[TimedCase | Skip]:
    """A large GEMM in bf16 and in FP8, for seconds."""
    if not setting.cuda:
        return [Skip("sustained", "products without pause", "a CPU has no power limit to reach")]
    return [_sustained(dtype) for dtype in (BF16, "fp8")]


def _sustained(dtype: str) -> TimedCase:
    n = SQUARE

    def run(setting: Setting) -> Timing:
        x, w = bf16(setting.device, n, n), bf16(setting.device, n, n)
        call = (lambda: x @ w.T) if dtype == BF16 else fp8_product(x, w, "tensor")
        return clock.sustained(call, setting.device, SUSTAINED * setting.effort.seconds)

    shape = {"rows": n, "cols": n, "inner": n}
    return TimedCase("gemm_sustained", shape, dtype, 2.0 * n**3, 0.0, 1, run)
