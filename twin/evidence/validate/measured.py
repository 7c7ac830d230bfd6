"""What a training row measured: seconds of a step, and bytes at the peak.

Sources give a step's seconds, or tokens per second, or only a rate of FLOP. The first that a row
has is taken, in the order of scenarios/published/README.md; a rate of FLOP becomes seconds through
the FLOP of a step as its source counts them (`Convention`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twin.arch.count import flop_per_token
from twin.evidence.validate.row import Fields, Row, number
from twin.evidence.validate.stacks import Convention, Stack
from twin.scenario import Scenario

MICROBATCH: Final = "microbatch_step_s"
"""Seconds of one micro-batch on each replica, of rows that give no batch."""
GIB: Final = float(1 << 30)
RESERVED: Final = 1.11
"""What PyTorch's allocator holds at its fullest over what tensors need: blocks of one stream that
another cannot have, and holes. Fitted on the five `fit` rows that tell a peak of reserved memory
(1.05 to 1.17, their geometric mean; of the two that send layers' inputs to the host, without
these), for all stacks."""
_PEAKS: Final = {
    "peak_mem_GB": 1e9, "peak_mem_gib": GIB, "peak_mem_GiB": GIB, "peak_alloc_gib": GIB,
}  # fmt: skip
"""What peaks are called, and their units."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A measured rate: FLOP/s per GPU in some convention, or a share of the GPU's bf16 peak."""

    flop_per_second: float | None
    convention: Convention
    share: float = 0.0


def step_seconds(row: Row) -> float | Rate | None:
    """Seconds of a step, or a rate that stands for them; None where the row has neither."""
    metrics, derived = row.metrics, row.derived
    seconds = number(metrics, "step_s")
    if seconds is None:
        seconds = _from_tokens(row, metrics)
    if seconds is None:
        seconds = number(metrics, "derived_step_s") or number(derived, "step_s")
    if seconds is None:
        seconds = number(metrics, MICROBATCH)
    return _rate(metrics) if seconds is None else seconds


def _from_tokens(row: Row, metrics: Fields) -> float | None:
    """Batch over tokens per second."""
    if row.batch is None or row.sequence is None:
        return None
    rate = number(metrics, "tokens_per_s")
    each = number(metrics, "tokens_per_s_per_gpu")
    if each is not None and row.gpus is not None:
        rate = each * row.gpus
    return row.batch * row.sequence / rate if rate else None


def _rate(metrics: Fields) -> Rate | None:
    """FLOP per second and GPU."""
    hardware = number(metrics, "hw_tflops_per_gpu")
    if hardware is not None:
        return Rate(hardware * 1e12, "hardware")
    model = number(metrics, "model_tflops_per_gpu")
    if model is not None:
        return Rate(model * 1e12, "full")
    share, peak = number(metrics, "mfu_pct"), number(metrics, "mfu_peak_tflops")
    if share is None:
        return None
    known = None if peak is None else share / 100 * peak * 1e12
    return Rate(known, "full", share / 100)


def seconds_of(rate: Rate, scenario: Scenario) -> float:
    """Seconds of a step of a scenario at a measured rate."""
    gpus, tokens = scenario.cluster.gpus, scenario.train.global_batch
    each = rate.flop_per_second or rate.share * scenario.cluster.node.gpu.bf16_dense
    return counted_flop(scenario, rate.convention) * tokens / (each * gpus)


def counted_flop(scenario: Scenario, convention: Convention) -> float:
    """FLOP of a token as a source counts them. Attention grows with the sequence, so that all of it
    is what causality leaves of one twice as long. Of hardware FLOP the forward of every layer
    counts twice, and the head's once (Narayanan et al. 2021, equation 3)."""
    model, sequence = scenario.model, scenario.train.sequence
    if convention == "causal":
        return flop_per_token(model, sequence)
    whole = flop_per_token(model, 2 * sequence)
    if convention == "full":
        return whole
    return whole + (whole - 6.0 * model.vocab * model.hidden) / 3.0


def held_bytes(tensors: float, stack: Stack, capacity: float) -> float:
    """What a stack calls its peak, where tensors need so much: an allocator that has no more room
    gives back what it keeps."""
    if stack.memory == "allocated":
        return tensors
    return max(tensors, min(RESERVED * tensors, capacity))


def peak_bytes(row: Row) -> float | None:
    """Bytes of device memory at the peak, as the framework reports them."""
    for name, unit in _PEAKS.items():
        found = number(row.metrics, name)
        if found is not None:
            return found * unit
    return None
