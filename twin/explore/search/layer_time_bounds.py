"""What one layer costs at least: the least time that its passes hold a rank's streams, and the
bytes that it keeps, for every kind of layer under one sharding.

Layers of one kind are alike wherever they are, so a search needs these numbers once for each way to
cut a layer, not for each layout. They are taken from the templates that the engine plays
(`twin.engine.passes`), one layer at a time, and hold for any sequence of layers in a chunk:

- kernels run one after the other on one stream, so their sum is a bound (`kernels`);
- a layer that follows another begins its first kernel when the last one of that layer has ended, or
  later, so the time from a layer's first kernel to its last, with all collectives that wait for no
  kernel of its own already done, adds up over layers (`alone`), as long as passes do not run in
  pairs;
- each other stream is busy for the time of its transfers (`busy`).

A pair of passes is one list of steps, so its time from the first kernel to the last is taken from
the list of a whole chunk. Links are idle and no SM is taken: sharing only adds time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from twin.arch.ops import Layer
from twin.engine.cost_model import CostModel, nanoseconds
from twin.engine.overlap import in_turn, together
from twin.engine.passes import backward_pass, forward_pass, input_pass, weight_pass
from twin.engine.program import COMPUTE, GATHER, OverlapLoss, Step, Template
from twin.planning.compile import layer_seconds, layers_of
from twin.planning.footprint import kept_bytes
from twin.planning.mesh import lay_out, placements
from twin.planning.types import Memory, Plan
from twin.scenario import Scenario
from twin.schedules.base import Pass

T = TypeVar("T")

PASSES: Final[tuple[Pass, ...]] = ("F", "B", "I", "W")


class Memo(dict[object, Any]):
    """Results by what they depend on."""

    def once(self, make: Callable[[], T], *key: object) -> T:
        """What `make` gives for this key, made once."""
        if key not in self:
            self[key] = make()
        return self[key]


@dataclass(frozen=True, slots=True)
class Least:
    """Nanoseconds that one pass of one layer takes at least."""

    kernels: float
    """Of all its kernels, one after the other."""
    alone: float
    """From its first kernel to its last."""
    host: float
    """That the host needs to launch its kernels."""
    busy: Mapping[int, float]
    """That each stream of transfers is busy, by stream."""

    @property
    def longest(self) -> float:
        """What the pass takes at least where it is no part of a pair."""
        return max(self.alone, self.host)


@dataclass(frozen=True, slots=True, eq=False)
class LayerTimes:
    """One kind of layer under one sharding and memory policy."""

    index: int
    """Its place among the kinds of the model's layers."""
    layer: Layer
    passes: Mapping[Pass, Least]
    weight: float
    """Seconds by which layers are balanced over chunks (`twin.planning.compile.layer_seconds`)."""
    kept: float
    """Bytes that wait for the backward pass of one micro-batch, on the device or the host."""


@dataclass(frozen=True, slots=True, eq=False)
class ModelPart:
    """One part of the model: its layers, and the least time of its passes (ns)."""

    layers: tuple[LayerTimes, ...]
    passes: Mapping[Pass, Least]

    @property
    def kept(self) -> float:
        """Bytes that wait for the backward of one micro-batch; the head's comes at once."""
        return sum(own.kept for own in self.layers if own.layer.kind != "head")


@dataclass(slots=True, eq=False)
class ModelTimes:
    """The least times of every layer of the model, in order; layers of one kind share theirs."""

    stack: tuple[LayerTimes, ...]
    layers: int
    """Transformer layers of the model: between the embedding and what comes behind them."""
    scenario: Scenario
    costs: CostModel
    """Without what the host takes, which belongs to whole passes."""
    _known: Memo = field(default_factory=Memo)

    @property
    def blocks(self) -> Sequence[LayerTimes]:
        """The transformer layers."""
        return self.stack[1 : self.layers + 1]

    @property
    def tail(self) -> Sequence[LayerTimes]:
        """Prediction modules and the head."""
        return self.stack[self.layers + 1 :]

    @property
    def kinds(self) -> tuple[LayerTimes, ...]:
        """Each kind of layer once."""
        return tuple({layer.index: layer for layer in self.stack}.values())

    def part(self, layers: tuple[LayerTimes, ...]) -> ModelPart:
        """The part of these layers; those of the same kinds are one shared object."""
        kinds = (layer.index for layer in layers)
        return self._known.once(
            lambda: ModelPart(layers, {kind: _sum(layers, kind) for kind in PASSES}), *kinds
        )

    def pair(self, part: ModelPart, backward: Pass) -> float:
        """Nanoseconds from the first kernel to the last of a forward and a backward (whole, or of
        the input only) of a part as a pair."""
        return self._known.once(lambda: self._pair(part, backward), id(part), backward)

    def _pair(self, part: ModelPart, backward: Pass) -> float:
        layers, profile = [own.layer for own in part.layers], self.scenario.calibration
        reverse = backward_pass if backward == "B" else input_pass
        lanes = (
            forward_pass(layers, self.costs),
            reverse(layers, self.costs, self.scenario.memory.recompute),
        )
        beside = OverlapLoss(nanoseconds(profile.expert_wait), profile.expert_contention)
        return pair_ns(lanes, self.costs.alone, beside)


def model_times(scenario: Scenario) -> ModelTimes:
    """The least times of a scenario's layers as its layout cuts them. Raises ValueError where the
    degrees do not divide the model."""
    layers = layers_of(scenario)
    costs = _cost_model(scenario)
    kinds = {id(layer): layer for layer in layers}.values()
    made = {
        id(layer): _layer_times(index, layer, costs, scenario) for index, layer in enumerate(kinds)
    }
    stack = tuple(made[id(layer)] for layer in layers)
    return ModelTimes(stack, scenario.model.layers, scenario, costs)


def _sum(layers: tuple[LayerTimes, ...], kind: Pass) -> Least:
    """The least times of a pass through several layers."""
    own = [layer.passes[kind] for layer in layers]
    busy: defaultdict[int, float] = defaultdict(float)
    for least in own:
        for stream, time in least.busy.items():
            busy[stream] += time
    kernels, alone, host = (
        sum(getattr(least, name) for least in own) for name in ("kernels", "alone", "host")
    )
    return Least(kernels, alone, host, busy)


def _cost_model(scenario: Scenario) -> CostModel:
    """The costs of a layout, before anything is planned; without what the host takes, which
    belongs to whole passes."""
    mesh = lay_out(scenario)
    placed = placements(mesh, scenario.cluster.fabric.nodes_per_leaf)
    nothing = Memory(stages=(), capacity=0.0, reserve={})
    costs = CostModel.of(Plan(scenario, mesh, (), 1, placed, nothing))
    return replace(costs, calibration=costs.calibration.model_copy(update={"dispatch": 0.0}))


def _layer_times(index: int, layer: Layer, costs: CostModel, scenario: Scenario) -> LayerTimes:
    memory, dispatch = scenario.memory, scenario.calibration.dispatch * 1e9
    one = (layer,)
    templates: dict[Pass, Template] = {
        "F": forward_pass(one, costs),
        "B": backward_pass(one, costs, memory.recompute),
        "I": input_pass(one, costs, memory.recompute),
        "W": weight_pass(one, costs),
    }
    return LayerTimes(
        index=index,
        layer=layer,
        passes={kind: least(made, costs.alone, dispatch) for kind, made in templates.items()},
        weight=layer_seconds(layer, scenario),
        kept=kept_bytes(layer, memory),
    )


def least(template: Template, capacity: Mapping[str, float], dispatch_ns: float) -> Least:
    """The least times of a template: every transfer with its links to itself."""
    times = [step.alone_ns(capacity) for step in template]
    busy: defaultdict[int, float] = defaultdict(float)
    for step, time in zip(template, times, strict=True):
        busy[step.stream] += time
    kernels = busy.pop(COMPUTE, 0.0)
    host = dispatch_ns * sum(step.kernels for step in template)
    alone = _last_kernel((0, step, time) for step, time in zip(template, times, strict=True))
    return Least(kernels, alone, host, busy)


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
