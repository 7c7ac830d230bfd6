"""What a kernel costs beside its work: a chain of tiny ones, and the host's time for each.

On a GPU the two differ: `launch` is the chain's time per kernel once the host is ahead, `dispatch`
the host's time to enqueue one. On a CPU nothing runs ahead, and both are the time of a tiny
operation.
"""

from __future__ import annotations

import torch

from reference.measure import clock
from reference.measure.case import BF16, TYPES, Case, Setting, Skip, random, timed
from reference.measure.clock import Call
from reference.measure.point import Timing

CHAIN = 20
"""Kernels in a chain."""
TINY = 8
"""Numbers that each works on."""


def cases(setting: Setting) -> list[Case | Skip]:
    """Chains of one elementwise kernel, and of a product, on a few numbers."""
    del setting
    shape = {"chain": CHAIN, "values": TINY}
    size = 2.0 * CHAIN * TINY * 2
    product = {"rows": TINY, "cols": TINY, "inner": TINY}
    return [
        Case("launch", shape, BF16, 0.0, size, CHAIN, timed(_chain, size)),
        Case("dispatch", {"values": TINY}, BF16, 0.0, size / CHAIN, 1, _host(_tiny)),
        Case("dispatch_gemm", product, BF16, 2.0 * TINY**3, 6.0 * TINY**2, 1, _host(_gemm)),
        Case("dispatch_autograd", product, BF16, 6.0 * TINY**3, 18.0 * TINY**2, 3, _host(_linear)),
    ]


def _chain(device: torch.device) -> Call:
    x = random(device, TYPES[BF16], TINY)

    def call() -> None:
        for _ in range(CHAIN):
            x.neg_()  # magnitudes stay, however long the chain

    return call


def _tiny(device: torch.device) -> Call:
    return random(device, TYPES[BF16], TINY).neg_


def _gemm(device: torch.device) -> Call:
    x, w = random(device, TYPES[BF16], TINY, TINY), random(device, TYPES[BF16], TINY, TINY)
    return lambda: x @ w


def _linear(device: torch.device) -> Call:
    """A linear layer forward and both gradients: three kernels."""
    x, w = (random(device, TYPES[BF16], TINY, TINY).requires_grad_() for _ in range(2))
    dy = random(device, TYPES[BF16], TINY, TINY)
    return lambda: torch.autograd.grad(x @ w, (x, w), dy)


def _host(make):  # noqa: ANN001, ANN202
    def run(setting: Setting) -> Timing:
        return clock.host_seconds(make(setting.device), setting.device, setting.effort)

    return run
