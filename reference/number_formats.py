"""Which number formats a device multiplies by itself, and which one is fastest to train in.

On a CPU without instructions for bf16, oneDNN converts every operand: products take 3 times as long
as in fp32 with AVX-512, and 20 times with AVX2 (torch 2.13, one thread, measured 2026-11-29).
"""

from __future__ import annotations

import os
from functools import cache
from typing import Final, Literal

Precision = Literal["bf16", "fp32", "fp64"]
_INSTRUCTIONS: Final = {"amx_bf16": "AMX", "avx512_bf16": "AVX512-BF16", "bf16": "Arm BF16"}
"""By what torch calls them, the fastest first."""
_ISA: Final = "ONEDNN_MAX_CPU_ISA"
"""Keeps oneDNN from newer instructions."""


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
    """Whether oneDNN multiplies fp32 faster than the BLAS that torch calls: MKL keeps AVX-512 for
    Intel's CPUs. On a Zen 5 by 2.2 times; with AVX2 alone a step gains nothing (torch 2.13)."""
    import torch  # noqa: PLC0415

    known = torch.cpu.get_capabilities()
    libraries = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    wide = bool(known.get("avx512_f")) and _allowed("AVX512", "AVX10", "AMX")
    return libraries and wide and str(known.get("cpu_name", "")).startswith("AMD")


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
