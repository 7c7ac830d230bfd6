"""The least time and the least memory of a layout, before it is planned: admissible bounds for a
search.

Of a stage, let A be the time before its first forward can begin (the least forwards of the parts
before), R its micro-batches per chunk, T the least time of one micro-batch through all its chunks,
forward and backward, D the same without weight gradients that are put off, and Z the backwards that
still have to run before it when its own last one has ended. A step then takes at least

    max over stages of max(A + R T, A + R D + Z)

since a stage's kernels run one after the other, and so do a stream's transfers, which T is no less
than. Where a schedule runs forwards in pairs with backwards, T counts for each part what is less,
its pair or its passes one by one, since it does both. Messages between stages, copies to the host,
what ends a step (reductions, update) and what shares links and SMs are left out: they add time.

With equal stages, free messages and no pairs this is (m + p - 1)(F + B) for 1F1B (Narayanan et al.
2021, section 2.2.1), which 1F1B then takes.

The least memory of a stage: weights, gradients and optimizer states of its layers as ZeRO shards
them (the ledger's own accounting, `twin.planning.memory.states`, one layer at a time), the
runtime's reserve, and the activations that wait at the moment of the schedule's order at which most
chunk forwards wait. Of activations that go to the host, one chunk's count, which are on their way.
Working sets, buffers and logits are left out. So a layout that is refused here cannot fit; one that
is not may still not fit: the plan's ledger decides.

What one layer costs at least: the least time that its passes hold a rank's streams, and the
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

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import accumulate
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from twin.arch.ops import Layer
from twin.engine.cost_model import CostModel, nanoseconds
from twin.engine.overlap import in_turn, together
from twin.engine.passes import backward_pass, forward_pass, input_pass, weight_pass
from twin.engine.program import COMPUTE, GATHER, OverlapLoss, Step, Template
from twin.hardware.host_costs import HostCosts
from twin.planning.chunks import layers_of
from twin.planning.footprint import kept_bytes
from twin.planning.layer_times import Scale
from twin.planning.memory import states
from twin.planning.mesh import lay_out, placements
from twin.planning.stages import Busy, balance, split
from twin.planning.types import Chunk, Memory, Plan
from twin.planning.walk import enough_microbatches
from twin.scenario import Scenario
from twin.schedules.base import ChunkMap, Pass, Schedule

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class TimeBound:
    """The bound of one way to cut the model over stages, for any number of micro-batches. Arrays
    have a number for each stage (ns)."""

    parts: tuple[ModelPart, ...]
    chunk_map: ChunkMap
    arrival: Numbers
    whole: Numbers
    """T of the module."""
    due: Numbers
    """D of the module."""
    tail: Numbers
    holds: Numbers
    """Layers of each kind on every stage: [stages, kinds]."""
    kept: Numbers
    """Bytes that the fullest chunk of every stage keeps of one micro-batch."""

    @property
    def stages(self) -> int:
        """Of the pipeline."""
        return len(self.arrival)

    @property
    def per_stage(self) -> int:
        """Chunks per stage, each copy of the model by itself."""
        return len(self.parts) // self.stages

    def nanoseconds(self, runs: int) -> float:
        """The least step of so many micro-batches per chunk."""
        whole = self.arrival + runs * self.whole
        due = self.arrival + runs * self.due + self.tail
        return float(max(whole.max(), due.max()))


def time_bound(
    model: ModelTimes,
    parts: tuple[ModelPart, ...],
    pipeline: tuple[Schedule, int],
    *,
    tight: bool = False,
) -> TimeBound:
    """The bound of a model cut into these parts, for a `pipeline`: its schedule and its stages.
    Where passes run in pairs, a `tight` bound orders the kernels and transfers of every pair, which
    takes milliseconds; otherwise a pair takes at least the kernels of both."""
    schedule, stages = pipeline
    chunk_map = schedule.chunk_map(stages, len(parts) // stages)
    ahead = [0.0, *accumulate(part.passes["F"].alone for part in parts)]
    behind = [0.0, *accumulate(part.passes["I"].alone for part in parts)]
    places: list[list[int]] = [[] for _ in range(stages)]
    for chunk, stage in enumerate(chunk_map.stage_of):
        places[stage].append(chunk_map.part_of[chunk])
    held = [[parts[place] for place in own] for own in places]
    alike = {tuple(map(id, own)): own for own in held}
    known = {key: _stage(own, schedule, model if tight else None) for key, own in alike.items()}
    times = [known[tuple(map(id, own))] for own in held]
    return TimeBound(
        parts=parts,
        chunk_map=chunk_map,
        arrival=np.array([min(ahead[place] for place in own) for own in places]),
        whole=np.array([whole for whole, _ in times]),
        due=np.array([due for _, due in times]),
        tail=np.array([min(behind[place] for place in own) for own in places]),
        holds=np.array([_holds(own, len(model.kinds)) for own in held]),
        kept=np.array([max(part.kept for part in own) for own in held]),
    )


def _holds(parts: list[ModelPart], kinds: int) -> list[int]:
    counts = Counter(layer.index for part in parts for layer in part.layers)
    return [counts[index] for index in range(kinds)]


def parts(
    model: ModelTimes, shape: tuple[int, int], *, mirrored: bool = False
) -> tuple[ModelPart, ...]:
    """The parts of a model over `shape`, stages and parts per stage, by the time of its layers, as
    a plan cuts it where no split is written; `mirrored` as of `balance`."""
    blocks, tail = model.blocks, model.tail
    own = [layer.weight for layer in blocks]
    behind = tuple(map(sum, zip(*(layer.weight for layer in tail), strict=True)))
    ranges = split(balance(own, model.stack[0].weight, behind, *shape, mirrored=mirrored))
    cut = [tuple(blocks[one.start : one.stop]) for one in ranges]
    cut[0] = (model.stack[0], *cut[0])
    cut[-1] = (*cut[-1], *tail)
    return tuple(map(model.part, cut))


def _stage(
    held: list[ModelPart], schedule: Schedule, model: ModelTimes | None
) -> tuple[float, float]:
    """T and D of a stage that holds these parts; with `model` tight."""
    transfers: defaultdict[int, float] = defaultdict(float)
    whole = due = 0.0
    for part in held:
        of_part = _turns(part, schedule, model)
        whole += min(time for time, _ in of_part)
        due += min(time for _, time in of_part)
        for kind in ("F", "B"):
            for stream, time in part.passes[kind].busy.items():
                transfers[stream] += time
    return max(whole, *transfers.values(), 0.0), due


def _turns(
    part: ModelPart, schedule: Schedule, model: ModelTimes | None
) -> list[tuple[float, float]]:
    """T and D of one part in each way in which the schedule may run its passes: in pairs or one by
    one, with whole backwards or their halves."""
    passes = part.passes
    forward, found = passes["F"], list[tuple[float, float]]()
    for kind in _backwards(schedule):  # pyright: ignore[reportArgumentType]  a frozen section has a hash
        back, late = passes[kind], passes["W"].kernels if kind == "I" else 0.0
        ways = [forward.alone + back.alone]
        if schedule.pairs:
            pair = model.pair(part, kind) if model is not None else 0.0
            kernels = forward.kernels + back.kernels
            ways.append(max(kernels, forward.alone, back.alone, pair))
        found += [(time + late, time) for time in ways]
    return found


@cache
def _backwards(schedule: Schedule) -> tuple[Pass, ...]:
    """The kinds of backward passes that a schedule runs."""
    virtual = next(n for n in (1, 2) if not _wrong_chunks(schedule, n))
    kinds = {one.kind for actions in schedule.order(2, virtual, 8) for one in actions}
    return tuple(kind for kind in ("B", "I") if kind in kinds)


def _wrong_chunks(schedule: Schedule, chunks: int) -> bool:
    return any(one.field == "parallel.virtual" for one in schedule.problems(2, chunks, 8))


def states_bytes(scenario: Scenario, model: ModelTimes) -> Numbers:
    """Bytes that one layer of each kind holds on the device for the whole step."""
    mesh = lay_out(scenario)
    found: list[float] = []
    for kind in model.kinds:
        # A layer as the only one of a chunk. What is counted in another layer (a tied table) is
        # left out: it may be on the same stage.
        device, _ = states(
            scenario, mesh, [Chunk(0, 0, (kind.layer,), kind.layer.weights, 0, kind.layer.frozen)]
        )
        device.pop("optimizer_buffers", None)
        found.append(sum(device.values()))
    return np.array(found)


def waiting(time_bound: TimeBound, schedule: Schedule, microbatches: int) -> Numbers:
    """Bytes of activations on every stage that wait for their backward on the device, where none
    goes to the host: of all on the first stage, which keeps most, of the largest chunk
    elsewhere."""
    walked = enough_microbatches(schedule, time_bound.stages, time_bound.per_stage, microbatches)
    # A frozen section has a hash, which pyright does not see.
    counts = _counts(schedule, time_bound.stages, time_bound.per_stage, walked)  # pyright: ignore[reportArgumentType]
    part_of = time_bound.chunk_map.part_of
    first = sum(count * time_bound.parts[part_of[chunk]].kept for chunk, count in counts)
    found = time_bound.kept.copy()
    found[0] = max(found[0], first)
    return found


@lru_cache(maxsize=4096)
def _counts(
    schedule: Schedule, stages: int, per_stage: int, microbatches: int
) -> tuple[tuple[int, int], ...]:
    """Of the first stage, which keeps most: how many forwards of each chunk wait for their backward
    when most do. A forward that runs in a pair fills as the backward behind it empties, so it
    counts when both have ended."""
    counts: Counter[int] = Counter()
    most: Counter[int] = Counter()
    for one in schedule.stage_order(0, stages, per_stage, microbatches):
        counts[one.chunk] += (one.kind == "F") - (one.kind in "BI")
        if not one.paired and counts.total() > most.total():
            most = counts.copy()
    return tuple(most.items())


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
    busy: Mapping[int, float]
    """That each stream of transfers is busy, by stream."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerTimes:
    """One kind of layer under one sharding and memory policy."""

    index: int
    """Its place among the kinds of the model's layers."""
    layer: Layer
    passes: Mapping[Pass, Least]
    weight: Busy
    """Seconds by which layers are balanced over chunks."""
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
            reverse(layers, self.costs),
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
    kernels, alone = (sum(getattr(least, name) for least in own) for name in ("kernels", "alone"))
    return Least(kernels, alone, busy)


def _cost_model(scenario: Scenario) -> CostModel:
    """The costs of a layout, before anything is planned; without what the host takes, which
    may run ahead from pass to pass."""
    mesh = lay_out(scenario)
    placed = placements(mesh, scenario.cluster.fabric.nodes_per_leaf)
    nothing = Memory(stages=(), capacity=0.0, reserve={})
    costs = CostModel.of(Plan(scenario, mesh, (), 1, placed, nothing))
    free = costs.calibration.model_copy(update={"dispatch": 0.0})
    return replace(costs, host=HostCosts(free))


def _layer_times(index: int, layer: Layer, costs: CostModel, scenario: Scenario) -> LayerTimes:
    one = (layer,)
    templates: dict[Pass, Template] = {
        "F": forward_pass(one, costs),
        "B": backward_pass(one, costs),
        "I": input_pass(one, costs),
        "W": weight_pass(one, costs),
    }
    return LayerTimes(
        index=index,
        layer=layer,
        passes={kind: least(made, costs.alone) for kind, made in templates.items()},
        weight=Scale.of(scenario, costs.placements).busy(layer),
        kept=kept_bytes(layer, layer.policy),
    )


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
