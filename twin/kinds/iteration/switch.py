"""Bytes that change places when engines and trainers take turns on a GPU, and how long that takes.

A trainer that sleeps has its parameters and its optimizer's states in host memory; gradients are
made anew (Kimi K2, arXiv:2507.20534, section 3.3.2: the idle side is offloaded, and training begins
by copies from the host alone). An engine that sleeps drops its caches and its weights, which the
next update brings anyway. All GPUs of a node copy at once: each over its own PCIe link, those of a
socket through its memory, those of a PCIe switch through its way up.
"""

from __future__ import annotations

from twin.kinds.iteration.types import Switch
from twin.network import capacity
from twin.network.links import latency, sharers
from twin.planning.types import Plan, StageMemory
from twin.spec.cluster import ClusterSpec

KEPT = "parameters"
STATES = "optimizer_"
BUFFERS = "optimizer_buffers"


def switch(trainer: Plan) -> Switch:
    """The way of a trainer's states between host and device, on the fullest GPU."""
    size = max(states_of(stage) for stage in trainer.memory.stages)
    return Switch(size, copy_ns(trainer.scenario.cluster, size))


def states_of(stage: StageMemory) -> float:
    """Bytes of one GPU's parameters and optimizer states that are on the device while it trains."""
    return sum(
        size
        for name, size in stage.categories.items()
        if name == KEPT or (name.startswith(STATES) and name != BUFFERS)
    )


def copy_ns(cluster: ClusterSpec, size: float) -> int:
    """Nanoseconds in which every GPU of a node copies so many bytes from the host, or back."""
    rates = [capacity(cluster, "pcie"), capacity(cluster, "dram") / sharers(cluster, "dram")]
    uplink = capacity(cluster, "pcie_uplink")
    if uplink is not None:
        rates.append(uplink / sharers(cluster, "pcie_uplink"))
    return round(1e9 * (size / min(rates) + latency(cluster, "pcie"))) if size else 0
