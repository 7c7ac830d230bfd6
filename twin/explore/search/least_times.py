"""What one layer takes and keeps at least, under one sharding and memory policy.

It is taken from the templates that the engine plays (`twin.engine.passes`), one layer at a time,
once for each way to cut a layer:

- kernels run one after the other on one stream, so their sum is a bound (`kernels`);
- a layer that follows another begins its first kernel when the last one of that layer has ended, or
  later, so the time from a layer's first kernel to its last, with all collectives that wait for no
  kernel of its own already done, adds up over layers (`alone`), as long as passes do not run in
  pairs;
- each other stream is busy for the time of its transfers (`busy`), and the memory of a socket for
  what its GPUs copy;
- exchanges of experts hold SMs. While they run, kernels take longer, or nothing computes, so each
  nanosecond of an exchange costs a stage some of one, even where it hides (`crowding`).

Links are idle and no other SM is taken: sharing only adds time. A pair of passes of one layer is
ordered, too (`paired`). It is no bound, since longer chunks hide more of it: the search takes it to
order layouts, and never to leave one out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from twin.arch.ops import Layer
from twin.engine.cost_model import CostModel, nanoseconds
from twin.engine.overlap import in_turn, together
from twin.engine.passes import backward_pass, forward_pass, input_pass, weight_pass
from twin.engine.program import (
    COMPUTE,
    EXPERT,
    FROM_HOST,
    GATHER,
    TO_HOST,
    OverlapLoss,
    Step,
    Template,
)
from twin.engine.sms import most_held
from twin.hardware.host_costs import HostCosts
from twin.hardware.roofline import slowdown
from twin.network.links import capacity, sharers
from twin.planning.chunks import layers_of
from twin.planning.footprint import kept_bytes
from twin.planning.mesh import lay_out, placements
from twin.planning.offload import offload_bytes
from twin.planning.types import Memory, Plan
from twin.scenario import Scenario
from twin.schedules.base import Pass

BEHIND: Final = ("mtp", "head")
"""Kinds of layers behind those."""
SOCKET: Final = -1
"""Among streams of transfers: the memory of a socket."""
COPIES: Final = (TO_HOST, FROM_HOST, SOCKET)
"""Streams of copies to the host and back."""


@dataclass(frozen=True, slots=True)
class Least:
    """Nanoseconds that one pass of one layer takes at least."""

    kernels: float
    """Of all its kernels, one after the other."""
    alone: float
    """From its first kernel to its last."""
    busy: Mapping[int, float]
    """That each stream of transfers is busy, by stream."""
    held: float = 0.0
    """That exchanges of experts hold SMs: they run one after the other."""
    beside: tuple[tuple[float, float], ...] = ()
    """Of its kernels: how many times as long they take beside such an exchange, and nanoseconds."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerTimes:
    """One kind of layer under one sharding and memory policy."""

    layer: Layer
    count: int
    """Layers of the model of this kind."""
    passes: Mapping[Pass, Least]
    paired: Mapping[Pass, float]
    """Nanoseconds of a forward and each kind of backward as a pair."""
    kept: float
    """Bytes that wait for the backward pass of one micro-batch, on the device or the host."""
    crowding: Mapping[Pass, tuple[float, float]] = field(
        default_factory=dict[Pass, tuple[float, float]]
    )
    """Nanoseconds by which exchanges lengthen a forward and each kind of backward at least: with
    weight gradients that are put off, and without. They hold for sums over layers."""
    price: Mapping[Pass, float] = field(default_factory=dict[Pass, float])
    """The part of an exchange's nanosecond that these count at most, by kind of backward."""

    def turns(
        self, kinds: Sequence[Pass], pairs: Literal["no", "kernels", "ordered"]
    ) -> tuple[float, float, float]:
        """T, D, and A + Z of one layer with these kinds of backward passes: in no pairs, in pairs
        that take their kernels, or in pairs as one layer's are ordered."""
        forward, best = self.passes["F"], list[tuple[float, float, float]]()
        for kind in kinds:
            back, late = self.passes[kind], self.passes["W"].kernels if kind == "I" else 0.0
            both = forward.alone + back.alone
            whole, due = both + late, both
            if pairs != "no":
                kernels, (more, less) = forward.kernels + back.kernels, self.crowding[kind]
                whole, due = kernels + more + late, kernels + less
            if pairs == "ordered":
                due = max(forward.kernels + back.kernels, self.paired[kind])
                whole = due + late
            best.append((whole, due, both))
        whole, due, both = (min(one) for one in zip(*best, strict=True))
        return whole, due, both


def kinds_of(scenario: Scenario) -> list[tuple[Layer, int]]:
    """Each kind of layer once, and how many of it there are."""
    layers = layers_of(scenario)
    kinds = {id(layer): layer for layer in layers}
    return [(kinds[key], count) for key, count in Counter(map(id, layers)).items()]


WAYS: Final[Mapping[Pass, tuple[Pass, ...]]] = {"B": ("F", "B"), "I": ("F", "I", "W")}
"""All passes of a micro-batch, by the kind of backward."""


def model_times(
    scenario: Scenario, kinds: Sequence[Pass] = ("B", "I"), *, pairs: bool = True
) -> tuple[LayerTimes, ...]:
    """The least times of each kind of a scenario's layers as its layout cuts them, for backward
    passes of these kinds, in pairs or in none. Raises ValueError where the degrees do not divide
    the model."""
    costs = idle_costs(unplanned(scenario))
    made = [_layer_times(one, costs, kinds, pairs=pairs) for one in kinds_of(scenario)]
    return crowded(made, kinds) if pairs else tuple(made)


def crowded(made: Sequence[LayerTimes], kinds: Sequence[Pass]) -> tuple[LayerTimes, ...]:
    """The layers with what their exchanges cost their kernels.

    On a stage kernels K and exchanges H have to run. The shortest way hides exchanges under the
    kernels that they slow least. With p the part of an exchange's nanosecond that the last of these
    lose, any stage takes K + p H - sum over kernels k of max(0, p s - s + 1) k at least, if kernels
    take s times as long beside an exchange. That adds up over layers, whichever a stage holds: weak
    duality of linear programs."""
    found, prices = [dict[Pass, tuple[float, float]]() for _ in made], dict[Pass, float]()
    for kind in kinds:
        passes = WAYS[kind]
        price = prices[kind] = _price(made, passes)
        for layer, own in zip(made, found, strict=True):
            lost = [_lost(layer.passes[one], price) for one in passes]
            own[kind] = sum(lost), sum(lost[:2])
    rows = zip(made, found, strict=True)
    return tuple(replace(layer, crowding=own, price=prices) for layer, own in rows)


def _price(made: Sequence[LayerTimes], passes: Sequence[Pass]) -> float:
    """The part of an exchange's nanosecond that the model's kernels lose, of those that have to
    hide some of it the one that loses most."""
    left, kernels = 0.0, defaultdict[float, float](float)
    for layer in made:
        for one in (layer.passes[kind] for kind in passes):
            left += layer.count * one.held
            for stretch, time in one.beside:
                kernels[stretch] += layer.count * time
    price = 0.0
    for stretch in sorted(kernels):
        if left <= 0:
            break
        price, left = 1 - 1 / stretch, left - stretch * kernels[stretch]
    return price


def _lost(one: Least, price: float) -> float:
    """What a pass of a layer adds to its kernels, in the sum above."""
    spared = (time * max(0.0, 1 - stretch * (1 - price)) for stretch, time in one.beside)
    return price * one.held - sum(spared)


def unplanned(scenario: Scenario) -> Plan:
    """What is known of a layout before it is planned."""
    mesh = lay_out(scenario)
    placed = placements(mesh, scenario.cluster.fabric.nodes_per_leaf)
    return Plan(scenario, mesh, (), 1, placed, Memory(stages=(), capacity=0.0, reserve={}))


def idle_costs(plan: Plan) -> CostModel:
    """The costs of a layout, without what the host takes, which may run ahead from pass to pass."""
    costs = CostModel.of(plan)
    free = costs.calibration.model_copy(update={"dispatch": 0.0})
    return replace(costs, host=HostCosts(free))


def _layer_times(
    kind_of_layer: tuple[Layer, int], costs: CostModel, kinds: Sequence[Pass], *, pairs: bool
) -> LayerTimes:
    layer, count = kind_of_layer
    needed: set[Pass] = {one for kind in kinds for one in WAYS[kind]}
    templates: dict[Pass, Template] = {
        one: make((layer,), costs) for one, make in PASSES.items() if one in needed
    }
    copies, passes = _copies(layer, costs), dict[Pass, Least]()
    for one, made in templates.items():
        found = least(made, costs.alone)
        held, slower = _held(made, costs) if pairs else (0.0, ())
        busy = {**found.busy, **copies.get(one, {})}
        passes[one] = replace(found, busy=busy, held=held, beside=slower)
    profile = costs.calibration
    beside = OverlapLoss(nanoseconds(profile.expert_wait), profile.expert_contention)
    paired: dict[Pass, float] = {
        kind: pair_ns((templates["F"], templates[kind]), costs.alone, beside)
        for kind in (kinds if pairs else ())
    }
    return LayerTimes(
        layer=layer,
        count=count,
        passes=passes,
        paired=paired,
        kept=kept_bytes(layer, layer.policy),
    )


PASSES: Final[Mapping[Pass, Callable[[Iterable[Layer], CostModel], Template]]] = {
    "F": forward_pass,
    "B": backward_pass,
    "I": input_pass,
    "W": weight_pass,
}


def _held(template: Template, costs: CostModel) -> tuple[float, tuple[tuple[float, float], ...]]:
    """How long exchanges of experts hold SMs, and what kernels take beside one (`Least.beside`)."""
    profile, sms = costs.calibration, costs.cluster.node.gpu.sms
    held = min(profile.expert_sms, most_held(sms))
    times = [one.alone_ns(costs.alone) for one in template if one.stream == EXPERT and one.sms]
    beside = (
        (slowdown(one.sm_bound, held, sms, profile.contention), float(one.duration_ns))
        for one in template
        if one.stream == COMPUTE and one.duration_ns
    )
    return sum(times), tuple(beside)


def _copies(layer: Layer, costs: CostModel) -> dict[Pass, dict[int, float]]:
    """How long copies of a layer's activations to the host and back are busy, by pass and stream.
    Both directions share the memory of a socket, which all its GPUs fill: the mean GPU's part."""
    size, cluster = offload_bytes((layer,)), costs.cluster
    if not size:
        return {}
    alone = size / costs.alone["host"]
    memory = 1e9 * size * sharers(cluster, "dram") / capacity(cluster, "dram")
    back = {FROM_HOST: alone, SOCKET: memory}
    return {"F": {TO_HOST: alone, SOCKET: memory}, "B": back, "I": back}


def least(template: Template, capacity: Mapping[str, float]) -> Least:
    """The least times of a template: every transfer with its links to itself."""
    times = [step.alone_ns(capacity) for step in template]
    busy: defaultdict[int, float] = defaultdict(float)
    for step, time in zip(template, times, strict=True):
        busy[step.stream] += time
    kernels = busy.pop(COMPUTE, 0.0)
    alone = _last_kernel((0, step, time) for step, time in zip(template, times, strict=True))
    return Least(kernels, alone, busy)


def pair_ns(
    lanes: tuple[Template, Template], capacity: Mapping[str, float], beside: OverlapLoss
) -> float:
    """The time from the first kernel to the last of two passes in one order."""
    order = ((lane, lanes[lane][place]) for lane, place in in_turn(*lanes))
    return _last_kernel(
        (lane, step, together(step, beside).alone_ns(capacity)) for lane, step in order
    )


def _last_kernel(steps: Iterable[tuple[int, Step, float]]) -> float:
    """When the last kernel ends of steps in the order in which they are issued, each with its pass
    and its time. Transfers that wait for nothing of their pass, and gathers of parameters, which go
    ahead, are done before it begins."""
    free: defaultdict[int, float] = defaultdict(float)
    ends: tuple[list[float], list[float]] = ([], [])
    for lane, step, time in steps:
        own = ends[lane]
        if step.stream != COMPUTE and (not step.after or step.stream == GATHER):
            own.append(0.0)
            continue
        own.append(max(free[step.stream], *(own[i] for i in step.after), 0.0) + time)
        free[step.stream] = own[-1]
    return free[COMPUTE]
