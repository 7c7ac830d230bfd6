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

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil, log2
from typing import Final, Literal

from twin.arch import again, wholly
from twin.arch.ops import CollectiveKind, Exchange, Item, Layer, Op, Work
from twin.collectives import Choice, Spread, Traffic, chosen, deepep, spread
from twin.engine.overlap import hold_for_host
from twin.engine.program import (
    COMPUTE,
    CONTEXT,
    DATA,
    EXPERT,
    GATHER,
    TENSOR,
    Group,
    Step,
    Template,
)
from twin.engine.roles import seats
from twin.engine.wiring import Rates, wire
from twin.hardware import price
from twin.network import capacity, latency
from twin.network.placement import Placement
from twin.optimizers import dense_weights
from twin.plan.compile import shape_of
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


def rates(cluster: ClusterSpec, profile: CalibrationSpec) -> Rates:
    """Bytes per nanosecond of the cluster's links; the uplinks are those of a whole pod."""
    nic, fabric = capacity(cluster, "nic") / 1e9, cluster.fabric
    uplink, leaf = capacity(cluster, "pcie_uplink"), capacity(cluster, "leaf")
    down = fabric.nodes_per_leaf * cluster.node.gpus * nic
    return Rates(
        nvlink=capacity(cluster, "nvlink") / 1e9,
        nic=nic,
        pcie=capacity(cluster, "pcie") / 1e9,
        dram=capacity(cluster, "dram") / 1e9,
        pcie_uplink=None if uplink is None else uplink / 1e9,
        leaf=None if leaf is None else down / fabric.oversubscription,
        loss=profile.expert_contention,
    )


def nanoseconds(value: float) -> int:
    """Seconds as integer nanoseconds, rounded once."""
    return round(value * 1e9)


@dataclass(frozen=True, slots=True)
class Kernels:
    """Some kernels: seconds at full speed, those of them that SMs bound, and launches."""

    seconds: float
    sm_bound: float
    count: int


NOTHING: Final = Kernels(0.0, 0.0, 0)
Part = Literal["forward", "backward", "weight"]
"""Forward, the gradient of the input, and that of the weight."""


@dataclass(frozen=True, slots=True)
class Coster:
    """Seconds and traffic of the run's operations on its cluster."""

    cluster: ClusterSpec
    calibration: CalibrationSpec
    placements: dict[str, Placement]
    alone: Mapping[str, float]
    """Bytes per nanosecond of a transfer that has its links to itself, as in `Wiring`."""
    choice: Choice = "ring"
    """Of the algorithm of collectives."""
    zero: int = 1
    reshard_after_forward: bool = True
    spread: Spread | None = None
    """Of a token's experts, where copies for one node travel as one."""
    expert_load: float = 1.0
    """Rows of the fullest expert rank over the mean."""

    @staticmethod
    def of(plan: Plan) -> Coster:
        """The coster of a plan."""
        scenario, parallel = plan.scenario, plan.scenario.parallel
        return Coster(
            scenario.cluster,
            scenario.calibration,
            plan.placements,
            wire(seats(plan), rates(scenario.cluster, scenario.calibration), host=False).alone,
            parallel.collectives,
            parallel.zero,
            parallel.reshard_after_forward,
            _spread(plan),
            shape_of(scenario).expert_load,
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
        return self.kernels(op, "forward").seconds

    def input_gradient(self, op: Op) -> float:
        """Seconds of the kernels for the gradient of an op's input."""
        return self.kernels(op, "backward").seconds

    def weight_gradient(self, op: Op) -> float:
        """Seconds of the kernels for the gradient of an op's weight."""
        return self.kernels(op, "weight").seconds

    def kernels(self, op: Op, part: Part) -> Kernels:
        """The kernels of one part of an op: forward, of the input's or of the weight's gradient."""
        work: Work = getattr(op, part)
        gpu, profile, backward = self.cluster.node.gpu, self.calibration, part != "forward"
        cost = price(op.kind, work, gpu, profile, backward=backward)
        return Kernels(cost.seconds, cost.seconds * cost.sm_bound, work.kernels)

    def collective(self, kind: CollectiveKind, size: float, group: str) -> tuple[Traffic, int]:
        """Traffic per rank and latency (ns) of a collective of `size` bytes in a group of the given
        kind."""
        placement = self.placements[group]
        if group == "expert" and self.spread is not None:
            # The spread says itself how much more the fullest rank gets.
            flow = deepep(size / self.expert_load, self.spread, placement)
        else:
            flow = self.flow(kind, size, placement)
        return self.priced(flow, placement)

    def flow(self, kind: CollectiveKind, size: float, placement: Placement) -> Traffic:
        """The traffic of a collective by the run's choice of algorithm."""
        return chosen(self.cluster, self.choice, kind, size, placement)

    def priced(self, flow: Traffic, placement: Placement | None = None) -> tuple[Traffic, int]:
        """A traffic with the latency (ns) of its serial hops."""
        hops = flow.nvlink_hops * latency(self.cluster, "nvlink") + flow.nic_hops * latency(
            self.cluster, "nic", placement
        )
        return flow, nanoseconds(hops)


def _spread(plan: Plan) -> Spread | None:
    """How a token's experts spread over the expert group, where the dispatcher merges copies."""
    scenario, moe = plan.scenario, plan.scenario.model.moe
    if moe is None or scenario.parallel.dispatcher != "deepep":
        return None
    routing, balanced = scenario.train.routing, scenario.train.routing.kind == "balanced"
    return spread(
        moe.experts,
        moe.top_k,
        plan.placements["expert"],
        moe.groups,
        moe.top_groups,
        None if balanced else routing.shares(moe.experts),
    )


@dataclass(slots=True)
class Builder:
    """Collects kernels into segments and collectives into steps; each waits for the one before."""

    coster: Coster
    steps: list[Step] = field(default_factory=list[Step])
    name: str = ""
    pending: Kernels = NOTHING
    waiting: bool = False
    """Whether the open segment runs while the exchange before it is on its way."""
    tail: tuple[int, ...] = ()
    """Steps that the next one waits for."""
    before: tuple[int, ...] = ()
    """What the last exchange waited for."""
    aside: tuple[int, ...] = ()
    """A collective that runs beside the segments until `join`."""
    ends: list[int] = field(default_factory=list[int])
    """Where layers are gathered: the pass's first kernel, then the last one of each layer."""
    reducing: tuple[int, ...] = ()
    """Reductions of the gradients of the layer before."""

    def compute(self, name: str, kernels: Kernels, *, aside: bool = False) -> None:
        """Add kernels under a segment's name; those `aside` do not wait for the exchange before
        them."""
        if (name, aside) != (self.name, self.waiting):
            self.close()
            self.name, self.waiting = name, aside
        self.pending = Kernels(
            self.pending.seconds + kernels.seconds,
            self.pending.sm_bound + kernels.sm_bound,
            self.pending.count + kernels.count,
        )

    def close(self) -> None:
        """End the open segment."""
        if self.name:
            done = self.pending
            bound = done.sm_bound / done.seconds if done.seconds else 0.0
            step = Step(
                self.name,
                COMPUTE,
                nanoseconds(done.seconds),
                self.before if self.waiting else self.tail,
                kernels=done.count,
                # Segments of one share in a thousand are alike: fewer paces to work out.
                sm_bound=round(bound, 3),
            )
            place = self._append(step)
            self.tail = (*self.tail, place) if self.waiting else (place,)
        self.name, self.pending, self.waiting = "", NOTHING, False

    def exchange(self, item: Exchange, kind: CollectiveKind, *, backward: bool = False) -> None:
        """Add a collective of the layer after the open segment."""
        if (step := self._collective(item, kind, backward=backward)) is not None:
            self.before, self.tail = self.steps[step].after, (step,)

    def beside(self, item: Exchange, kind: CollectiveKind) -> None:
        """Add a collective beside the segments that follow, until one that joins it."""
        if (step := self._collective(item, kind, backward=True)) is not None:
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
            self.compute(name, NOTHING)
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
            "data": dense_weights(used),
            "expert_data": used.expert,
        }
        found: list[int] = []
        for group, size in sizes.items():
            if size and self.coster.placements[group].size > 1:
                flow, delay = self.coster.collective(kind, size * width, group)
                sms = self.coster.calibration.collective_sms
                step = Step(_NAMES[kind], stream, delay, after, flow, group, kernels=1, sms=sms)
                found.append(self._append(step))
        return tuple(found)

    def _collective(self, item: Exchange, kind: CollectiveKind, *, backward: bool) -> int | None:
        flow, delay = self.coster.collective(kind, item.payload(backward), item.group)
        if flow.nvlink_bytes == 0 and flow.nic_bytes == 0:
            return None
        self.close()
        profile, stream = self.coster.calibration, _STREAM_OF[item.group]
        sms = profile.expert_sms if item.group == "expert" else profile.collective_sms
        step = Step(
            *(item.name, stream, delay, self.tail, flow, item.group),
            kernels=1,
            sms=sms,
            asks=item.asks,
        )
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
        return hold_for_host(tuple(self.steps), self.coster.alone, dispatch)


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
                builder.compute("backward_weight", coster.kernels(item, "weight"))
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
            builder.compute(name, builder.coster.kernels(item, "forward"), aside=item.aside)
        elif item.forward is not None:
            builder.exchange(item, item.forward)


def _backward(layer: Layer, builder: Builder, repeated: frozenset[str], name: str) -> None:
    """Kernels in reverse; where a gather serves only a weight's gradient, the input's gradient is
    computed beside it. `backward_input` leaves weights out."""
    coster, whole = builder.coster, name == "backward"
    for item in _backwards(layer.items):
        if isinstance(item, Op):
            parts: list[Part] = ["forward"] if item.name in repeated else []
            for part in (*parts, "backward"):
                builder.compute(name, coster.kernels(item, part), aside=item.aside)
            if not whole:
                continue
            if builder.aside and item.weight.kernels:
                builder.join()
            builder.compute(name, coster.kernels(item, "weight"), aside=item.aside)
        elif _serves_weights(item):
            if whole:
                builder.beside(item, "all_gather")
        elif item.backward is not None:
            builder.exchange(item, item.backward, backward=True)


def _backwards(items: Sequence[Item]) -> list[Item]:
    """A layer's items in the order of its backward pass: an exchange leaves before the kernels
    beside it, which need nothing of it."""
    found: list[Item] = []
    for item in reversed(items):
        place = len(found)
        if isinstance(item, Exchange):
            while place and isinstance(one := found[place - 1], Op) and one.aside:
                place -= 1
        found.insert(place, item)
    return found


def _serves_weights(item: Exchange) -> bool:
    """A gather of backward only over tensor ranks: the input again, for the weight's gradient."""
    return item.group == "tensor" and item.backward == "all_gather" and item.forward is None
