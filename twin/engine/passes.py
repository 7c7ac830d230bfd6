"""Layers to templates: what one pass of one micro-batch through one chunk does on one rank, in
order.

Neighbouring kernels are fused into one segment; a collective closes the segment. The backward pass
walks the layers in reverse; what the memory policy does not keep is computed again first, layer by
layer, as activation checkpointing does (Chen et al. 2016; Korthikanti et al. 2022, section 4.2): a
fully recomputed layer runs its whole forward again, with its collectives; attention cores are
recomputed inside their own layer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import ceil, log2

from twin.arch import again, wholly
from twin.arch.ops import CollectiveKind, Exchange, Layer, Op, Work
from twin.collectives import traffic
from twin.collectives.traffic import Traffic
from twin.engine.program import COMPUTE, EXPERT, TENSOR, Step, Template
from twin.hardware import seconds
from twin.network import capacity, latency
from twin.network.placement import Placement
from twin.plan.types import Plan
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import ClusterSpec


def nanoseconds(value: float) -> int:
    """Seconds as integer nanoseconds, rounded once."""
    return round(value * 1e9)


@dataclass(frozen=True, slots=True)
class Coster:
    """Seconds and traffic of the run's operations on its cluster."""

    cluster: ClusterSpec
    calibration: CalibrationSpec
    placements: dict[str, Placement]

    @staticmethod
    def of(plan: Plan) -> Coster:
        """The coster of a plan."""
        scenario = plan.scenario
        return Coster(scenario.cluster, scenario.calibration, plan.placements)

    def agree(self, ranks: int) -> tuple[Traffic, int]:
        """Traffic and latency (ns) of an all-reduce of one number over `ranks`: up and down a
        binary tree, NVLink inside the nodes and the fabric between them (NCCL's trees for small
        messages); its bytes do not matter."""
        inside = min(ranks, self.cluster.node.gpus)
        depths = (ceil(log2(inside)), ceil(log2(ranks / inside)) if ranks > inside else 0)
        return self.priced(Traffic(nvlink_hops=2 * depths[0], nic_hops=2 * depths[1]))

    def forward(self, op: Op) -> float:
        """Seconds of an op's forward kernels."""
        return self._seconds(op, op.forward, backward=False)

    def input_gradient(self, op: Op) -> float:
        """Seconds of the kernels for the gradient of an op's input."""
        return self._seconds(op, op.backward, backward=True)

    def weight_gradient(self, op: Op) -> float:
        """Seconds of the kernels for the gradient of an op's weight."""
        return self._seconds(op, op.weight, backward=True)

    def _seconds(self, op: Op, work: Work, backward: bool) -> float:
        return seconds(op.kind, work, self.cluster.node.gpu, self.calibration, backward=backward)

    def alone_ns(self, step: Step) -> float:
        """Nanoseconds of a step with its links to itself."""
        flow = step.traffic or Traffic()
        nvlink = flow.nvlink_bytes / capacity(self.cluster, "nvlink")
        nic = flow.nic_bytes / capacity(self.cluster, "nic")
        return step.duration_ns + max(nvlink, nic) * 1e9

    def collective(self, kind: CollectiveKind, size: float, group: str) -> tuple[Traffic, int]:
        """Traffic per rank and latency (ns) of a collective of `size` bytes in a group of the given
        kind."""
        return self.priced(traffic(kind, size, self.placements[group]))

    def priced(self, flow: Traffic) -> tuple[Traffic, int]:
        """A traffic with the latency (ns) of its serial hops."""
        hops = flow.nvlink_hops * latency(self.cluster, "nvlink") + flow.nic_hops * latency(
            self.cluster, "nic"
        )
        return flow, nanoseconds(hops)


@dataclass(slots=True)
class Builder:
    """Collects kernels into segments and collectives into steps; each waits for the one before."""

    coster: Coster
    steps: list[Step] = field(default_factory=list[Step])
    name: str = ""
    pending: float = 0.0
    kernels: int = 0
    launches: list[int] = field(default_factory=list[int])
    """Kernels of each step so far."""
    tail: tuple[int, ...] = ()
    """Steps that the next one waits for."""
    aside: tuple[int, ...] = ()
    """A collective that runs beside the segments until `join`."""

    def compute(self, name: str, value: float, kernels: int) -> None:
        """Add kernels of `value` seconds in all under a segment's name."""
        if name != self.name:
            self.close()
            self.name = name
        self.pending += value
        self.kernels += kernels

    def close(self) -> None:
        """End the open segment."""
        if self.name:
            step = Step(self.name, COMPUTE, nanoseconds(self.pending), self.tail)
            self.tail = (self._append(step, self.kernels),)
        self.name, self.pending, self.kernels = "", 0.0, 0

    def exchange(self, item: Exchange, kind: CollectiveKind) -> None:
        """Add a collective of the layer after the open segment."""
        if (step := self._collective(item, kind)) is not None:
            self.tail = (step,)

    def beside(self, item: Exchange, kind: CollectiveKind) -> None:
        """Add a collective beside the segments that follow, until one that joins it."""
        if (step := self._collective(item, kind)) is not None:
            self.aside = (*self.aside, step)

    def join(self) -> None:
        """What follows waits for the collective beside it."""
        if self.aside:
            self.close()
            self.tail, self.aside = (*self.tail, *self.aside), ()

    def _collective(self, item: Exchange, kind: CollectiveKind) -> int | None:
        flow, delay = self.coster.collective(kind, item.bytes, item.group)
        if flow.nvlink_bytes == 0 and flow.nic_bytes == 0:
            return None
        self.close()
        stream = EXPERT if item.group == "expert" else TENSOR
        return self._append(Step(item.name, stream, delay, self.tail, flow, item.group), 1)

    def _append(self, step: Step, launches: int) -> int:
        self.steps.append(step)
        self.launches.append(launches)
        return len(self.steps) - 1

    def done(self) -> Template:
        """The finished template; an empty chunk still passes its message on, in no time."""
        self.close()
        if not self.steps:
            self._append(Step("empty", COMPUTE, 0, ()), 0)
        return tuple(self._dispatched())

    def _dispatched(self) -> list[Step]:
        """A pass lasts at least as long as the host needs to launch its kernels one after another;
        while the host is ahead, launches are hidden. What is missing goes to the segments by their
        kernels."""
        needed = sum(self.launches) * self.coster.calibration.dispatch
        missing = needed * 1e9 - sum(self.coster.alone_ns(step) for step in self.steps)
        if missing <= 0:
            return self.steps
        compute = [
            n if s.stream == COMPUTE else 0 for s, n in zip(self.steps, self.launches, strict=True)
        ]
        share = missing / sum(compute)
        return [
            replace(step, duration_ns=step.duration_ns + round(share * kernels))
            for step, kernels in zip(self.steps, compute, strict=True)
        ]


def forward_pass(layers: Iterable[Layer], coster: Coster) -> Template:
    """Forward of one micro-batch through a chunk."""
    builder = Builder(coster)
    for layer in layers:
        _forward(layer, builder, "forward")
    return builder.done()


def backward_pass(layers: Iterable[Layer], coster: Coster, recompute: tuple[str, ...]) -> Template:
    """Backward of one micro-batch through a chunk, with what the memory policy computes again."""
    builder = Builder(coster)
    for layer in reversed(tuple(layers)):
        if wholly(layer, recompute):
            _forward(layer, builder, "recompute")
            _backward(layer, builder, frozenset())
        else:
            _backward(layer, builder, again(layer, recompute))
    return builder.done()


def _forward(layer: Layer, builder: Builder, name: str) -> None:
    for item in layer.items:
        if isinstance(item, Op):
            builder.compute(name, builder.coster.forward(item), item.forward.kernels)
        elif item.forward is not None:
            builder.exchange(item, item.forward)


def _backward(layer: Layer, builder: Builder, repeated: frozenset[str]) -> None:
    """Kernels in reverse; where a gather serves only a weight's gradient, the input's gradient is
    computed beside it."""
    coster = builder.coster
    for item in reversed(layer.items):
        if isinstance(item, Op):
            if item.name in repeated:
                builder.compute("backward", coster.forward(item), item.forward.kernels)
            builder.compute("backward", coster.input_gradient(item), item.backward.kernels)
            if builder.aside and item.weight.kernels:
                builder.join()
            builder.compute("backward", coster.weight_gradient(item), item.weight.kernels)
        elif item.backward == "all_gather" and item.forward is None:
            builder.beside(item, item.backward)
        elif item.backward is not None:
            builder.exchange(item, item.backward)
