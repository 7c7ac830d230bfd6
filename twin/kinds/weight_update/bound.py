"""What an update waits for most, and what that in turn is bound by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twin.kinds.weight_update.types import Stage, UpdatePlan, UpdateTrace
from twin.kinds.weight_update.wires import Wires
from twin.reports.numbers import digits

WORDS: Final[dict[Stage, str]] = {
    "regroup": "joining the group",
    "read": "reading from storage",
    "host_copy": "copies from the host",
    "fetch": "reading other hosts' copies",
    "broadcast": "broadcasts",
    "send": "sending",
    "handover": "handing over buckets",
    "reload": "reloading in the engine",
}
"""The stages as sentences name them."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The stage that takes the most of the update, its share of it (0 to 1), and what holds it
    up."""

    stage: Stage
    share: float
    reason: str


def bound(plan: UpdatePlan, trace: UpdateTrace) -> Bound:
    """What bounds an update."""
    stage = max(trace.breakdown_ns, key=lambda one: trace.breakdown_ns[one])
    share = trace.breakdown_ns[stage] / trace.update_ns if trace.update_ns else 0.0
    return Bound(stage, share, _reason(plan, stage))


def _reason(plan: UpdatePlan, stage: Stage) -> str:
    updater = plan.scenario.weight_update.updater
    link, rate = Wires(plan).broadcast_rate()
    return {
        "regroup": "the software's own time",
        "read": "the rate of the storage",
        "host_copy": "PCIe and host memory",
        "fetch": "the NICs of the ranks that receive",
        "broadcast": f"{link} carry {digits(rate / 1e9)} GB/s of it",
        "send": "the NICs of the ranks that receive",
        "handover": f"{digits(updater.hop * 1e6)} us per rank and bucket",
        "reload": f"{digits(updater.per_tensor * 1e6)} us of host time per tensor",
    }[stage]
