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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from twin.arch.ops import Layer
from twin.engine.coster import Coster, nanoseconds
from twin.engine.overlap import in_turn, together
from twin.engine.passes import backward_pass, forward_pass, input_pass, weight_pass
from twin.engine.program import COMPUTE, GATHER, Beside, Template
from twin.planning.compile import layer_seconds, layers_of
from twin.planning.footprint import kept_bytes
from twin.planning.mesh import lay_out, placements
from twin.planning.types import Memory, Plan
from twin.scenario import Scenario
from twin.schedules.action import Pass

PASSES: Final[tuple[Pass, ...]] = ("F", "B", "I", "W")


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
class Pace:
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
class Part:
    """One part of the model: its layers, and the least time of its passes (ns)."""

    layers: tuple[Pace, ...]
    passes: Mapping[Pass, Least]

    @property
    def kept(self) -> float:
        """Bytes that wait for the backward of one micro-batch; the head's comes at once."""
        return sum(pace.kept for pace in self.layers if pace.layer.kind != "head")


@dataclass(slots=True, eq=False)
class Paces:
    """Every layer of the model, in order, each with its pace; layers of one kind share theirs."""

    stack: tuple[Pace, ...]
    layers: int
    """Transformer layers of the model: between the embedding and what comes behind them."""
    scenario: Scenario
    coster: Coster
    """Without what the host takes, which belongs to whole passes."""
    _parts: dict[tuple[int, ...], Part] = field(default_factory=dict[tuple[int, ...], Part])
    _pairs: dict[tuple[tuple[int, ...], Pass], float] = field(
        default_factory=dict[tuple[tuple[int, ...], Pass], float]
    )

    @property
    def blocks(self) -> Sequence[Pace]:
        """The transformer layers."""
        return self.stack[1 : self.layers + 1]

    @property
    def tail(self) -> Sequence[Pace]:
        """Prediction modules and the head."""
        return self.stack[self.layers + 1 :]

    @property
    def kinds(self) -> tuple[Pace, ...]:
        """Each pace once."""
        return tuple({pace.index: pace for pace in self.stack}.values())

    def part(self, layers: tuple[Pace, ...]) -> Part:
        """The part of these layers; those of the same kinds are one shared object."""
        key = tuple(pace.index for pace in layers)
        if key not in self._parts:
            self._parts[key] = Part(layers, {kind: _sum(layers, kind) for kind in PASSES})
        return self._parts[key]

    def pair(self, part: Part, backward: Pass) -> float:
        """Nanoseconds from the first kernel to the last of a forward and a backward (whole, or of
        the input only) of a part as a pair."""
        key = tuple(pace.index for pace in part.layers), backward
        if key not in self._pairs:
            self._pairs[key] = self._pair(part, backward)
        return self._pairs[key]

    def _pair(self, part: Part, backward: Pass) -> float:
        layers, profile = [pace.layer for pace in part.layers], self.scenario.calibration
        reverse = backward_pass if backward == "B" else input_pass
        lanes = (
            forward_pass(layers, self.coster),
            reverse(layers, self.coster, self.scenario.memory.recompute),
        )
        beside = Beside(nanoseconds(profile.expert_wait), profile.expert_contention)
        return pair_ns(lanes, self.coster.alone, beside)


def paces(scenario: Scenario) -> Paces:
    """The paces of a scenario's layers as its layout cuts them. Raises ValueError where the
    degrees do not divide the model."""
    layers = layers_of(scenario)
    coster = _coster(scenario)
    kinds = {id(layer): layer for layer in layers}.values()
    made = {id(layer): _pace(index, layer, coster, scenario) for index, layer in enumerate(kinds)}
    stack = tuple(made[id(layer)] for layer in layers)
    return Paces(stack, scenario.model.layers, scenario, coster)


def _sum(layers: tuple[Pace, ...], kind: Pass) -> Least:
    """The least times of a pass through several layers."""
    own = [layer.passes[kind] for layer in layers]
    busy: dict[int, float] = {}
    for one in own:
        for stream, time in one.busy.items():
            busy[stream] = busy.get(stream, 0.0) + time
    return Least(
        sum(one.kernels for one in own),
        sum(one.alone for one in own),
        sum(one.host for one in own),
        busy,
    )


def _coster(scenario: Scenario) -> Coster:
    """The coster of a layout, before anything is planned; without what the host takes, which
    belongs to whole passes."""
    mesh = lay_out(scenario)
    placed = placements(mesh, scenario.cluster.fabric.nodes_per_leaf)
    nothing = Memory(stages=(), capacity=0.0, reserve={})
    coster = Coster.of(Plan(scenario, mesh, (), 1, placed, nothing))
    return replace(coster, calibration=coster.calibration.model_copy(update={"dispatch": 0.0}))


def _pace(index: int, layer: Layer, coster: Coster, scenario: Scenario) -> Pace:
    memory, dispatch = scenario.memory, scenario.calibration.dispatch * 1e9
    one = (layer,)
    templates: dict[Pass, Template] = {
        "F": forward_pass(one, coster),
        "B": backward_pass(one, coster, memory.recompute),
        "I": input_pass(one, coster, memory.recompute),
        "W": weight_pass(one, coster),
    }
    return Pace(
        index=index,
        layer=layer,
        passes={kind: least(made, coster.alone, dispatch) for kind, made in templates.items()},
        weight=layer_seconds(layer, scenario),
        kept=kept_bytes(layer, memory),
    )


def least(template: Template, capacity: Mapping[str, float], dispatch_ns: float) -> Least:
    """The least times of a template: every transfer with its links to itself; those that wait for
    nothing of the template, and gathers of parameters, which go ahead, done before it begins."""
    free: dict[int, float] = {}
    ends: list[float] = []
    busy: dict[int, float] = {}
    kernels = 0.0
    for step in template:
        time = step.alone_ns(capacity)
        if step.stream == COMPUTE:
            kernels += time
        else:
            busy[step.stream] = busy.get(step.stream, 0.0) + time
            if not step.after or step.stream == GATHER:
                ends.append(0.0)
                continue
        start = max((ends[i] for i in step.after), default=0.0)
        ends.append(max(start, free.get(step.stream, 0.0)) + time)
        free[step.stream] = ends[-1]
    host = dispatch_ns * sum(step.kernels for step in template)
    return Least(kernels, free.get(COMPUTE, 0.0), host, busy)


def pair_ns(
    lanes: tuple[Template, Template], capacity: Mapping[str, float], beside: Beside
) -> float:
    """The time from the first kernel to the last of two passes in one order, as `least` has it of
    one."""
    free: dict[int, float] = {}
    ends: tuple[list[float], list[float]] = ([], [])
    times = [[together(step, beside).alone_ns(capacity) for step in lane] for lane in lanes]
    for lane, position in in_turn(*lanes):
        step, own = lanes[lane][position], ends[lane]
        if step.stream != COMPUTE and (not step.after or step.stream == GATHER):
            own.append(0.0)
            continue
        start = max((own[i] for i in step.after), default=0.0)
        own.append(max(start, free.get(step.stream, 0.0)) + times[lane][position])
        free[step.stream] = own[-1]
    return free.get(COMPUTE, 0.0)
