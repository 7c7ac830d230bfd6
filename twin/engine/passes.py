"""Layers to templates: what one pass of one micro-batch through one chunk does on one rank, in
order.

Neighbouring kernels are fused into one segment; a collective closes the segment. The backward pass
walks the layers in reverse; what the memory policy does not keep is computed again first, layer by
layer, as activation checkpointing does (Chen et al. 2016; Korthikanti et al. 2022, section 4.2): a
fully recomputed layer runs its whole forward again, with its collectives; attention cores are
recomputed inside their own layer. Schedules that put weight gradients off run the backward in two
passes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import ceil, log2
from typing import Final

from twin.arch import again, wholly
from twin.arch.ops import CollectiveKind, Exchange, Layer, Op, Work
from twin.collectives import traffic
from twin.collectives.traffic import Traffic
from twin.engine.overlap import hold_for_host
from twin.engine.program import (
    COMPUTE,
    CONTEXT,
    DATA,
    EXPERT,
    GATHER,
    LINKS,
    TENSOR,
    Group,
    Step,
    Template,
)
from twin.hardware import seconds
from twin.network import capacity, crowding, latency
from twin.network.placement import Placement
from twin.plan.memory import GRADIENT_BYTES, PARAMETER_BYTES
from twin.plan.types import Plan
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import ClusterSpec

_STREAM_OF: Final = {
    "tensor": TENSOR,
    "context": CONTEXT,
    "expert": EXPERT,
    "expert_tensor": EXPERT,
}
"""The stream of a layer's collectives, by their group."""
_WIDTHS: Final[dict[CollectiveKind, int]] = {
    "all_gather": PARAMETER_BYTES,
    "reduce_scatter": GRADIENT_BYTES,
}
_NAMES: Final[dict[CollectiveKind, str]] = {
    "all_gather": "all_gather_weights",
    "reduce_scatter": "reduce_scatter_gradients",
}


def nanoseconds(value: float) -> int:
    """Seconds as integer nanoseconds, rounded once."""
    return round(value * 1e9)


@dataclass(frozen=True, slots=True)
class Coster:
    """Seconds and traffic of the run's operations on its cluster."""

    cluster: ClusterSpec
    calibration: CalibrationSpec
    placements: dict[str, Placement]
    zero: int = 1
    reshard_after_forward: bool = True

    @staticmethod
    def of(plan: Plan) -> Coster:
        """The coster of a plan."""
        scenario, parallel = plan.scenario, plan.scenario.parallel
        return Coster(
            scenario.cluster,
            scenario.calibration,
            plan.placements,
            parallel.zero,
            parallel.reshard_after_forward,
        )

    def agree(self, placement: Placement) -> tuple[Traffic, int]:
        """Traffic and latency (ns) of an all-reduce of a few numbers: up and down a binary tree,
        NVLink inside the nodes and the fabric between them (NCCL's trees for small messages); its
        bytes do not matter."""
        inside, nodes = placement.per_node, placement.size / placement.per_node
        return self.priced(
            Traffic(nvlink_hops=2 * ceil(log2(inside)), nic_hops=2 * ceil(log2(nodes)))
        )

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

    @property
    def capacity(self) -> dict[str, float]:
        """Bytes per nanosecond of one port in one direction, per link class."""
        return {link: capacity(self.cluster, link) / 1e9 for link in LINKS}

    def collective(self, kind: CollectiveKind, size: float, group: str) -> tuple[Traffic, int]:
        """Traffic per rank and latency (ns) of a collective of `size` bytes in a group of the given
        kind."""
        placement = self.placements[group]
        flow = traffic(kind, size, placement)
        # Bytes that spines hold up keep their NIC as long as so many more would.
        crowded = flow.nic_bytes * crowding(self.cluster, kind, placement)
        return self.priced(replace(flow, nic_bytes=crowded), placement)

    def priced(self, flow: Traffic, placement: Placement | None = None) -> tuple[Traffic, int]:
        """A traffic with the latency (ns) of its serial hops."""
        hops = flow.nvlink_hops * latency(self.cluster, "nvlink") + flow.nic_hops * latency(
            self.cluster, "nic", placement
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
    tail: tuple[int, ...] = ()
    """Steps that the next one waits for."""
    aside: tuple[int, ...] = ()
    """A collective that runs beside the segments until `join`."""
    ends: list[int] = field(default_factory=list[int])
    """Where layers are gathered: the pass's first kernel, then the last one of each layer."""
    reducing: tuple[int, ...] = ()
    """Reductions of the gradients of the layer before."""

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
            time = nanoseconds(self.pending)
            step = Step(self.name, COMPUTE, time, self.tail, kernels=self.kernels)
            self.tail = (self._append(step),)
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

    def gather(self, layer: Layer, name: str) -> None:
        """Gather a layer's sharded parameters while the layer before it runs, so that two layers
        are whole at most. The first of a pass waits for its turn: an FSDP root's gathers wait for
        the kernels before it (torch, `_root_pre_forward`)."""
        if not self.ends:
            self.compute(name, 0.0, 0)
            self.close()
            self.ends.append(len(self.steps) - 1)
        self.close()
        after = (self.ends[max(0, len(self.ends) - 2)],)
        gathers = self._over_replicas("all_gather", layer, GATHER, after)
        self.tail = (*self.tail, *gathers)

    def end_layer(self) -> None:
        """The kernels of a gathered layer are all there."""
        self.close()
        self.ends.append(max(i for i, step in enumerate(self.steps) if step.stream == COMPUTE))

    def reduce(self, layer: Layer) -> None:
        """Reduce-scatter the gradients of a layer behind its kernels. The next layer's wait for the
        reduction before this one, so that gradients of two layers are whole at most (as in torch's
        FSDP2)."""
        self.close()
        reducing = self._over_replicas("reduce_scatter", layer, DATA, self.tail)
        self.tail, self.reducing = (*self.tail, *self.reducing), reducing

    def _over_replicas(
        self, kind: CollectiveKind, layer: Layer, stream: int, after: tuple[int, ...]
    ) -> tuple[int, ...]:
        """A collective over the replicas of a layer's dense weights, and one over those of its
        experts; tied weights are used, so they take part."""
        used, width = layer.weights + layer.tied, _WIDTHS[kind]
        sizes: dict[Group, int] = {
            "data": used.replicated + used.tensor,
            "expert_data": used.expert,
        }
        found: list[int] = []
        for group, size in sizes.items():
            if size and self.coster.placements[group].size > 1:
                flow, delay = self.coster.collective(kind, size * width, group)
                step = Step(_NAMES[kind], stream, delay, after, flow, group, kernels=1)
                found.append(self._append(step))
        return tuple(found)

    def _collective(self, item: Exchange, kind: CollectiveKind) -> int | None:
        flow, delay = self.coster.collective(kind, item.bytes, item.group)
        if flow.nvlink_bytes == 0 and flow.nic_bytes == 0:
            return None
        self.close()
        stream = _STREAM_OF[item.group]
        step = Step(item.name, stream, delay, self.tail, flow, item.group, kernels=1)
        return self._append(step)

    def _append(self, step: Step) -> int:
        self.steps.append(step)
        return len(self.steps) - 1

    def done(self) -> Template:
        """The finished template; an empty chunk still passes its message on, in no time."""
        self.close()
        if not self.steps:
            self._append(Step("empty", COMPUTE, 0, ()))
        dispatch = self.coster.calibration.dispatch * 1e9
        return hold_for_host(tuple(self.steps), self.coster.capacity, dispatch)


def forward_pass(layers: Iterable[Layer], coster: Coster) -> Template:
    """Forward of one micro-batch through a chunk."""
    builder = Builder(coster)
    for layer in layers:
        with _whole(layer, builder, "forward", gathered=coster.zero >= 3):
            _forward(layer, builder, "forward")
    return builder.done()


def backward_pass(layers: Iterable[Layer], coster: Coster, recompute: tuple[str, ...]) -> Template:
    """Whole backward of one micro-batch through a chunk, with what the memory policy computes
    again."""
    return _reversed(layers, coster, recompute, "backward")


def input_pass(layers: Iterable[Layer], coster: Coster, recompute: tuple[str, ...]) -> Template:
    """Backward for the input only: what recomputation brings back stays for `weight_pass`."""
    return _reversed(layers, coster, recompute, "backward_input")


def weight_pass(layers: Iterable[Layer], coster: Coster) -> Template:
    """Gradients of a chunk's weights, put off after `input_pass`, with the gathers that only they
    need."""
    builder = Builder(coster)
    for layer in reversed(tuple(layers)):
        for item in reversed(layer.items):
            if isinstance(item, Op):
                if item.weight.kernels:
                    builder.join()
                time = coster.weight_gradient(item)
                builder.compute("backward_weight", time, item.weight.kernels)
            elif _serves_weights(item):
                builder.beside(item, "all_gather")
        if coster.zero >= 2:
            builder.reduce(layer)
    return builder.done()


def _reversed(
    layers: Iterable[Layer], coster: Coster, recompute: tuple[str, ...], name: str
) -> Template:
    builder = Builder(coster)
    gathered = coster.zero >= 3 and coster.reshard_after_forward
    for layer in reversed(tuple(layers)):
        with _whole(layer, builder, name, gathered=gathered):
            if wholly(layer, recompute):
                _forward(layer, builder, "recompute")
                _backward(layer, builder, frozenset(), name)
            else:
                _backward(layer, builder, again(layer, recompute), name)
        if coster.zero >= 2 and name == "backward":
            builder.reduce(layer)
    return builder.done()


@contextmanager
def _whole(layer: Layer, builder: Builder, name: str, *, gathered: bool) -> Generator[None]:
    """Around the kernels of a layer: its parameters are gathered before them."""
    if gathered:
        builder.gather(layer, name)
    yield
    if gathered:
        builder.end_layer()


def _forward(layer: Layer, builder: Builder, name: str) -> None:
    for item in layer.items:
        if isinstance(item, Op):
            builder.compute(name, builder.coster.forward(item), item.forward.kernels)
        elif item.forward is not None:
            builder.exchange(item, item.forward)


def _backward(layer: Layer, builder: Builder, repeated: frozenset[str], name: str) -> None:
    """Kernels in reverse; where a gather serves only a weight's gradient, the input's gradient is
    computed beside it. `backward_input` leaves weights out."""
    coster, whole = builder.coster, name == "backward"
    for item in reversed(layer.items):
        if isinstance(item, Op):
            if item.name in repeated:
                builder.compute(name, coster.forward(item), item.forward.kernels)
            builder.compute(name, coster.input_gradient(item), item.backward.kernels)
            if not whole:
                continue
            if builder.aside and item.weight.kernels:
                builder.join()
            builder.compute(name, coster.weight_gradient(item), item.weight.kernels)
        elif _serves_weights(item):
            if whole:
                builder.beside(item, "all_gather")
        elif item.backward is not None:
            builder.exchange(item, item.backward)


def _serves_weights(item: Exchange) -> bool:
    """A gather of backward only over tensor ranks: the input again, for the weight's gradient."""
    return item.group == "tensor" and item.backward == "all_gather" and item.forward is None
