"""Seconds that one micro-batch keeps each part of a rank busy in a layer, by which layers are split
over chunks.

Kernels, the host thread and copies to host memory run beside each other. So a stage takes as long
as its busiest part. Kernels wait for the exchanges between them: kernels and exchanges in a row are
one part more. Exchanges that run beside kernels are left out: under pairs those of experts, and
those over tensor ranks that `overlap_tensor` hides. So are ZeRO's: more sharding never moves a
layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from twin.arch.ops import CollectiveKind, Exchange, Layer, Op
from twin.arch.recompute import again, checkpointed
from twin.collectives.deepep import deepep
from twin.collectives.spread import Spread
from twin.collectives.traffic import alone, chosen
from twin.hardware.host_costs import HostCosts
from twin.hardware.roofline import prices, with_scaling
from twin.network.links import capacity, sharers
from twin.network.placement import Placement
from twin.planning.experts import expert_load, expert_spread
from twin.planning.footprint import sent_by_op
from twin.planning.stages import Busy
from twin.scenario import Scenario

KERNELS: Final = 0
"""The place of kernels in `Busy`; the host, copies, and kernels with their exchanges follow."""


def weigh(
    layers: Sequence[Layer], scenario: Scenario, placements: Mapping[str, Placement]
) -> list[Busy]:
    """The times of every layer."""
    # Layers of one kind are one shared object: each is weighed once.
    scale = Scale.of(scenario, placements)
    kinds = {id(layer): layer for layer in layers}
    weighed = {key: scale.busy(layer) for key, layer in kinds.items()}
    return [weighed[id(layer)] for layer in layers]


@dataclass(frozen=True, slots=True)
class Scale:
    """What weighs the layers of a scenario."""

    scenario: Scenario
    placements: Mapping[str, Placement]
    host: HostCosts
    spread: Spread | None
    """Of a token's experts, where copies for one node travel as one."""

    @staticmethod
    def of(scenario: Scenario, placements: Mapping[str, Placement]) -> Scale:
        """With the run's host and dispatcher."""
        spread = expert_spread(scenario, placements["expert"])
        return Scale(scenario, placements, host_costs(scenario, placements), spread)

    def busy(self, layer: Layer) -> Busy:
        """The times of one layer: forward, backward, and what the memory policy runs again."""
        kernels = layer_seconds(layer, self.scenario)
        issued = _issued(layer, self.scenario, self.host)
        if not self.host.ahead:
            kernels, issued = kernels + issued, 0.0
        return kernels, issued, _copied(layer, self.scenario), kernels + self.exchanged(layer)

    def exchanged(self, layer: Layer) -> float:
        """Seconds in which a layer's kernels wait for exchanges, each on idle links."""
        part = checkpointed(layer, self.scenario.memory.recompute)
        total = 0.0
        for item in (*layer.items, *(part.items if part else ())):
            if isinstance(item, Exchange) and not self._hidden(item, "forward"):
                total += self._seconds(item, item.forward, item.payload())
        for item in layer.items:
            if isinstance(item, Exchange) and not self._hidden(item, "backward"):
                total += self._seconds(item, item.backward, item.payload(backward=True))
        return total

    def _hidden(self, item: Exchange, direction: Literal["forward", "backward"]) -> bool:
        """Whether an exchange runs beside kernels."""
        parallel = self.scenario.parallel
        if item.group == "tensor":
            # What is gathered for weights alone comes beside the input's gradient.
            beside = parallel.overlap_tensor == "pieces" or item.forward is None
            return beside or (direction == "backward" and parallel.overlap_tensor == "bulk")
        return item.group != "context" and parallel.schedule.pairs

    def _seconds(self, item: Exchange, kind: CollectiveKind | None, size: float) -> float:
        placement, cluster = self.placements[item.group], self.scenario.cluster
        if kind is None or placement.size == 1:
            return 0.0
        if item.group == "expert" and self.spread is not None:
            # The spread says itself how much more the fullest rank gets.
            flow = deepep(size / expert_load(self.scenario), self.spread, placement)
        else:
            choice = self.scenario.parallel.collectives
            flow = chosen(cluster, choice, kind, size, placement)
        return alone(flow, cluster, placement)


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
