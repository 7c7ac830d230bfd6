"""Seconds that one micro-batch keeps each part of a rank busy in a layer, by which layers are split
over chunks.

Kernels, the host thread and copies to host memory run beside each other. So a stage takes as long
as its busiest part. Exchanges are left out: what is exposed of them follows from the split, and
layers of one kind exchange alike. So are ZeRO's, so that more sharding never moves a layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from twin.arch.ops import Layer, Op
from twin.arch.recompute import again, checkpointed
from twin.hardware.host_costs import HostCosts
from twin.hardware.roofline import prices, with_scaling
from twin.network.links import capacity, sharers
from twin.network.placement import Placement
from twin.planning.footprint import sent_by_op
from twin.planning.stages import Busy
from twin.scenario import Scenario

KERNELS: Final = 0
"""The place of kernels in `Busy`; the host and copies follow."""


def weigh(
    layers: Sequence[Layer], scenario: Scenario, placements: Mapping[str, Placement]
) -> list[Busy]:
    """The times of every layer."""
    # Layers of one kind are one shared object: each is weighed once.
    host = host_costs(scenario, placements)
    kinds = {id(layer): layer for layer in layers}
    weighed = {key: busy(layer, scenario, host) for key, layer in kinds.items()}
    return [weighed[id(layer)] for layer in layers]


def busy(layer: Layer, scenario: Scenario, host: HostCosts) -> Busy:
    """The times of one layer: forward, backward, and what the memory policy runs again."""
    kernels, issued = layer_seconds(layer, scenario), _issued(layer, scenario, host)
    if not host.ahead:
        kernels, issued = kernels + issued, 0.0
    return kernels, issued, _copied(layer, scenario)


def host_costs(scenario: Scenario, placements: Mapping[str, Placement]) -> HostCosts:
    """What the host of a rank takes for everything that it issues."""
    return HostCosts(
        scenario.calibration,
        None if scenario.software is None else scenario.software.host,
        scenario.cluster.node.host.slowness,
        max(placements[group].size for group in ("tensor", "expert")),
        scenario.train.fp8_scaling != "block",
    )


def layer_seconds(layer: Layer, scenario: Scenario) -> float:
    """Seconds of a layer's kernels."""
    profile = with_scaling(scenario.calibration, scenario.train.fp8_scaling)
    priced = prices(scenario.cluster.node.gpu, profile)
    repeated = again(layer, scenario.memory.recompute)
    total = 0.0
    for op in layer.items:
        if not isinstance(op, Op):
            continue
        forward = priced(op.kind, op.forward, False).seconds
        total += forward * (2 if op.name in repeated else 1)
        total += priced(op.kind, op.backward, True).seconds
        total += priced(op.kind, op.weight, True).seconds
    return total


def _issued(layer: Layer, scenario: Scenario, host: HostCosts) -> float:
    """Seconds in which the host issues a layer's kernels and collectives."""
    recompute = scenario.memory.recompute
    part, repeated = checkpointed(layer, recompute), again(layer, recompute)
    total = 0.0 if part is None else host.checkpoint
    for item in (*layer.items, *(part.items if part else ())):
        if isinstance(item, Op):
            total += host.op(item, "forward")
        elif item.forward:
            total += host.exchange(item.name)
    for item in layer.items:
        if isinstance(item, Op):
            total += host.op(item, "backward") + host.op(item, "weight")
            alone_again = item.name in repeated and (part is None or item not in part.items)
            total += host.op(item, "forward") if alone_again else 0.0
        elif item.backward:
            total += host.exchange(item.name, backward=True)
    return total


def _copied(layer: Layer, scenario: Scenario) -> float:
    """Seconds in which activations go to host memory, or come back: each way has its own lanes, and
    the GPUs of a socket share its memory."""
    size = sum(sent_by_op(layer, scenario.memory).values())
    if not size:
        return 0.0
    cluster = scenario.cluster
    memory = 2 * sharers(cluster, "dram") / capacity(cluster, "dram")
    return size * max(1 / capacity(cluster, "pcie"), memory)
