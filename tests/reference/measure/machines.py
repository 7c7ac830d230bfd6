"""Machines and points for these tests, made without a clock."""

from __future__ import annotations

from dataclasses import replace

import torch

from reference.machine import Machine
from reference.measure.clock import Effort, Timing
from reference.measure.points import MeasuredPoint, Setting, Skip, TimedCase
from twin.loading import load_part

CORE = Machine(
    name="core",
    device="a core",
    kind="cpu",
    units=1,
    memory=8 * 2**30,
    free=4 * 2**30,
    host_memory=8 * 2**30,
    count=2,
    capability="AVX512",
    software="torch 2.13.0",
    date="2026-11-20",
)
H200 = replace(
    CORE,
    name="h200-here",
    device="NVIDIA H200",
    kind="cuda",
    units=132,
    memory=143771 * 2**20,
    free=140 * 10**9,
    host_memory=128 * 2**30,
    count=1,
    capability="9.0",
)


def exactly(seconds: float) -> Timing:
    """A call that always lasts the same."""
    return Timing(seconds, seconds, seconds, seconds, seconds, 9, 1, 0)


def setting(kind: str, model: str, quick: bool = False, ranks: int = 1) -> Setting:
    """Where cases are listed, on a device that need not be here."""
    return Setting(
        torch.device(kind),
        model,
        load_part("models", model).spec,
        ("bf16", "fp32"),
        Effort(1e-3, 1),
        quick,
        2e13 if kind == "cuda" else 5e9,
        2.0**34 if kind == "cuda" else 2.0**28,
        0,
        ranks,
    )


def timed(group: str, case: TimedCase, seconds: float) -> MeasuredPoint:
    """The point of a case that took so long."""
    shape = dict(case.shape)
    own = (case.flop, case.bytes, case.kernels)
    return MeasuredPoint(group, case.op, shape, case.dtype, *own, exactly(seconds))


def runnable(cases: list[TimedCase | Skip]) -> list[TimedCase]:
    """The cases that are to be timed."""
    return [case for case in cases if isinstance(case, TimedCase)]
