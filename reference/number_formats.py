"""Which number formats a device multiplies by itself, and which one is fastest to train in.

On a CPU without instructions for bf16, oneDNN converts every operand: products take 3 times as long
as in fp32 with AVX-512, and 20 times with AVX2 (torch 2.13, one thread, measured 2026-11-29).
"""

from __future__ import annotations

import os
from functools import cache
from math import inf
from time import thread_time
from typing import Final, Literal

Precision = Literal["bf16", "fp32", "fp64"]
_INSTRUCTIONS: Final = {"amx_bf16": "AMX", "avx512_bf16": "AVX512-BF16", "bf16": "Arm BF16"}
"""By what torch calls them, the fastest first."""
_ISA: Final = "ONEDNN_MAX_CPU_ISA"
"""Keeps oneDNN from newer instructions."""
GAIN: Final = 1.6
"""The least `onednn_gain` for oneDNN to multiply fp32. On a busy Zen 5 it was 1.97 to 2.09 in 200
trials with AVX-512, and 1.01 to 1.38 with AVX2, where a step gains 1 %. Far from both, so that a
run and its continuation choose alike."""
TURNS: Final = 12


@cache
def cpu_bf16() -> str:
    """The instructions by which this CPU multiplies bf16; empty where it has none that torch
    uses."""
    import torch  # noqa: PLC0415  a configuration is read without it

    known = torch.cpu.get_capabilities()
    found = next((name for flag, name in _INSTRUCTIONS.items() if known.get(flag)), "")
    return found if _allowed("AMX", "BF16") else ""


def _allowed(*instructions: str) -> bool:
    """Whether oneDNN may use one of these, named in the environment by its newest set."""
    newest = os.environ.get(_ISA, "ALL").upper()
    return "AVX" not in newest or any(one in newest for one in instructions)


@cache
def fp32_by_onednn() -> bool:
    """Whether oneDNN multiplies fp32 on this CPU faster than the BLAS that torch calls, by a trial
    of 20 ms: MKL keeps AVX-512 for Intel's CPUs."""
    import torch  # noqa: PLC0415

    libraries = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    return libraries and onednn_gain() >= GAIN


def onednn_gain() -> float:
    """How many times as fast as by torch's BLAS a product in fp32 is by oneDNN."""
    import torch  # noqa: PLC0415

    threads, (left, right) = torch.get_num_threads(), torch.ones(2, 256, 256)
    # Inductor's; nothing public reaches oneDNN in fp32.
    onednn = torch.ops.mkldnn._linear_pointwise  # noqa: SLF001
    ways = (
        lambda: torch.mm(left, right.T),
        lambda: onednn(left, right, None, "none", [], ""),
    )
    shortest = [inf, inf]
    # In turns and by a single thread's own clock, so that other processes change nothing.
    torch.set_num_threads(1)
    for turn in range(TURNS):
        for way, product in enumerate(ways):
            begun = thread_time()
            product()
            if turn:  # the first one makes what the others find
                shortest[way] = min(shortest[way], thread_time() - begun)
    torch.set_num_threads(threads)
    return shortest[0] / shortest[1]


def fastest(device: str) -> Precision:
    """What to train in where nobody says: bf16 where the device (`auto`, `cpu`, `cuda`) has it."""
    import torch  # noqa: PLC0415

    on_cpu = device == "cpu" or not torch.cuda.is_available()
    return "fp32" if on_cpu and not cpu_bf16() else "bf16"


def words(precision: Precision, device: str) -> str:
    """Where a run computes and in what, for a person."""
    import torch  # noqa: PLC0415

    if device != "cpu":
        return f"trains in {precision} on {device}"
    with_bf16 = f", by {cpu_bf16()}" if precision == "bf16" and cpu_bf16() else ""
    slow = ", which this CPU has to convert for each product" if not with_bf16 else ""
    why = slow if precision == "bf16" else "" if cpu_bf16() else ": this CPU has no bf16"
    by = ", by oneDNN" if precision == "fp32" and fp32_by_onednn() else ""
    threads = torch.get_num_threads()
    several = "1 thread" if threads == 1 else f"{threads} threads"
    return f"trains in {precision}{with_bf16}{by}{why}, on {several} of the CPU"
