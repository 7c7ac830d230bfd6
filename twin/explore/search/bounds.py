"""The least time and the least memory of a layout, however its layers are split, before it is
planned: bounds for a search.

Of a stage, let A be the time before its first forward can begin (forwards of the layers before it),
R its micro-batches per chunk, T the least time of one micro-batch through all its layers, forward
and backward, D the same without weight gradients that are put off, and Z the backwards that still
have to run before it when its own last one has ended. A step then takes at least

    max over stages of max(A + R T, A + R D + Z)

since a stage's kernels run one after the other, and so do a stream's transfers, which T is no less
than. Nobody knows the split here, so two stages are looked at that every split has:

- the mean one: T and D are at least the model's over the stages. Stages begin one after the other,
  each behind one layer more, so A and Z are at least those of half the other stages' layers;
- a full one: some stage holds L / p layers, rounded up, and where many do, the last of them is
  behind the others.

With equal stages of one chunk this is (m + p - 1)(F + B) for 1F1B (Narayanan et al. 2021, section
2.2.1), which 1F1B then takes. Where a schedule runs forwards in pairs with backwards, T counts the
kernels of both. Messages between stages, copies to the host, what ends a step (reductions, update)
and what shares links and SMs are left out: they add time.

Memory: on every stage there is room for so many layers of each kind, with weights, gradients and
optimizer states as ZeRO shards them (the ledger's own accounting, `twin.planning.memory.states`),
and with the activations that wait when most chunk forwards wait. Where all stages together have too
little room, no split fits. Of activations that go to the host, one chunk's count, which are on
their way. Working sets, buffers and logits are left out. So a layout that is refused here cannot
fit; one that is not may still not fit: the plan's ledger decides.

What one layer costs at least is taken from the templates that the engine plays
(`twin.engine.passes`), one layer at a time, once for each way to cut a layer:

- kernels run one after the other on one stream, so their sum is a bound (`kernels`);
- a layer that follows another begins its first kernel when the last one of that layer has ended, or
  later, so the time from a layer's first kernel to its last, with all collectives that wait for no
  kernel of its own already done, adds up over layers (`alone`), as long as passes do not run in
  pairs;
- each other stream is busy for the time of its transfers (`busy`).

Links are idle and no SM is taken: sharing only adds time. A pair of passes of one layer is ordered,
too (`paired`). It is no bound, since longer chunks hide more of it: the search takes it to order
layouts, and never to leave one out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, sqrt
from typing import Any, Final, Literal, TypeVar

import numpy as np

from twin.arch.ops import Layer
from twin.engine.cost_model import CostModel, nanoseconds
from twin.engine.overlap import in_turn, together
from twin.engine.passes import backward_pass, forward_pass, input_pass, weight_pass
from twin.engine.program import COMPUTE, GATHER, OverlapLoss, Step, Template
from twin.hardware.host_costs import HostCosts
from twin.planning.chunks import layers_of
from twin.planning.columns import Columns, columns
from twin.planning.footprint import kept_bytes
from twin.planning.layer_times import Scale
from twin.planning.memory import states
from twin.planning.mesh import lay_out, placements
from twin.planning.split_costs import layer_ends
from twin.planning.types import Chunk, Memory, Plan
from twin.planning.walk import enough_microbatches
from twin.scenario import Scenario
from twin.schedules.base import Pass, Schedule

T = TypeVar("T")

PASSES: Final[tuple[Pass, ...]] = ("F", "B", "I", "W")
QUARTERS: Final = 4
"""OURS: stages whose order is walked for what waits; a stage between two of them holds at least
what the later one does."""


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

    layer: Layer
    count: int
    """Layers of the model of this kind."""
    passes: Mapping[Pass, Least]
    paired: Mapping[Pass, float]
    """Nanoseconds of a forward and each kind of backward as a pair."""
    kept: float
    """Bytes that wait for the backward pass of one micro-batch, on the device or the host."""

    def turns(
        self, kinds: Sequence[Pass], pairs: Literal["no", "kernels", "ordered"]
    ) -> tuple[float, float, float]:
        """T, D, and A + Z of one layer with these kinds of backward passes: in no pairs, in pairs
        that take their kernels, or in pairs as one layer's are ordered."""
        forward, best = self.passes["F"], list[tuple[float, float, float]]()
        for kind in kinds:
            back, late = self.passes[kind], self.passes["W"].kernels if kind == "I" else 0.0
            both = forward.alone + back.alone
            due = both
            if pairs != "no":
                due = forward.kernels + back.kernels
                due = max(due, self.paired[kind]) if pairs == "ordered" else due
            best.append((due + late, due, both))
        whole, due, both = (min(one) for one in zip(*best, strict=True))
        return whole, due, both


@dataclass(frozen=True, slots=True, eq=False)
class StepBound:
    """The least step of one way to cut a layer, over a pipeline, for any number of micro-batches
    (ns)."""

    stages: int
    mean: float
    """T of the whole model, over the stages."""
    work: tuple[float, float]
    """T and D of all transformer layers."""
    full: tuple[float, float]
    """T and D of a stage with the most layers that one stage must have."""
    more: float
    """T of one layer more."""
    ahead: tuple[float, float]
    """A, and A + Z, of the last of the full stages."""
    each: tuple[float, float]
    """A, and A + Z, of one layer; 0 where stages begin with copies of each other."""
    busy: float
    """The busiest stream of transfers of a stage."""

    def nanoseconds(self, runs: int) -> float:
        """The least step of so many micro-batches per chunk."""
        full = max(runs * own + ahead for own, ahead in zip(self.full, self.ahead, strict=True))
        full = min(full, runs * (self.full[0] + self.more))
        means = (
            self._mean(runs * own, ahead) for own, ahead in zip(self.work, self.each, strict=True)
        )
        return max(full, *means, runs * self.mean, runs * self.busy)

    def _mean(self, work: float, each: float) -> float:
        """Of the stages that hold a transformer layer, so many as give the least."""
        filled = min(float(self.stages), max(1.0, sqrt(2 * work / each))) if each else self.stages
        return work / filled + each * (filled - 1) / 2


def step_bound(
    model: Sequence[LayerTimes],
    schedule: Schedule,
    shape: tuple[int, int],
    kinds: Sequence[Pass],
    *,
    evenly: bool = False,
) -> StepBound:
    """The bound of a model for a schedule's `shape`, stages and chunks on each, with these `kinds`
    of backward passes; `evenly` that of an even split whose pairs last as long as one layer's: no
    bound, but nearer to a step."""
    stages, virtual = shape
    copies = schedule.chunk_map(stages, virtual).copies
    pairs = "no" if not schedule.pairs else "ordered" if evenly else "kernels"
    turns = [layer.turns(kinds, pairs) for layer in model]
    total = copies * sum(one[0] * of.count for one, of in zip(turns, model, strict=True))
    blocks = [(one, of) for one, of in zip(turns, model, strict=True) if of.layer.kind in BLOCKS]
    layers = copies * sum(of.count for _, of in blocks)
    full = -(-layers // stages)
    held = [_lightest([(one[n], copies * of.count) for one, of in blocks], full) for n in (0, 1)]
    work = [copies * sum(one[n] * of.count for one, of in blocks) for n in (0, 1)]
    most = layers - stages * (full - 1)
    first = min(of.passes["F"].alone for _, of in blocks) if copies == 1 else 0.0
    both = min(one[2] for one, _ in blocks) if copies == 1 else 0.0
    before = (most - 1) * (full if virtual == 1 else 1)
    if evenly:
        # Rounds wait for the longest chunk: an even one, or the head's.
        behind = [one for one, of in zip(turns, model, strict=True) if of.layer.kind in BEHIND]
        each = -(-layers // (stages * virtual))
        for n in (0, 1):
            longest = max(each * max(one[n] for one, _ in blocks), sum(one[n] for one in behind))
            held[n] = virtual * longest
        before = (stages - 1) * layers / (stages * virtual)
    busy = defaultdict[int, float](float)
    for layer in model:
        for kind in ("F", "B"):
            for stream, time in layer.passes[kind].busy.items():
                busy[stream] += copies * layer.count * time / stages
    return StepBound(
        stages=stages,
        mean=total / stages,
        work=(work[0], work[1]),
        full=(held[0], held[1]),
        more=inf if evenly else min(one[0] for one, _ in blocks),
        ahead=(before * first, before * both),
        each=(first, both),
        busy=max(busy.values(), default=0.0),
    )


def _lightest(weights: Sequence[tuple[float, int]], count: int) -> float:
    """What so many layers take at least, of kinds with a time and a number of layers each."""
    total = 0.0
    for time, there in sorted(weights):
        taken = min(there, count)
        total, count = total + taken * time, count - taken
    return total


def backwards(schedule: Schedule, shape: tuple[int, int], microbatches: int) -> tuple[Pass, ...]:
    """The kinds of backward passes that a schedule runs: whole ones, or of the input only."""
    walked = enough_microbatches(schedule, *shape, microbatches)
    return _backwards(schedule, *shape, walked)  # pyright: ignore[reportArgumentType]


@lru_cache(maxsize=4096)
def _backwards(
    schedule: Schedule, stages: int, virtual: int, microbatches: int
) -> tuple[Pass, ...]:
    first = schedule.stage_order(0, stages, virtual, microbatches)
    last = schedule.stage_order(stages - 1, stages, virtual, microbatches)
    kinds = {one.kind for one in (*first, *last)}
    return tuple(kind for kind in ("B", "I") if kind in kinds)


@dataclass(frozen=True, slots=True)
class Held:
    """Layers of a kind: how many there are, and the bytes that each holds on the device for the
    whole step."""

    count: int
    each: float


def held_bytes(scenario: Scenario) -> tuple[Held, ...]:
    """What layers hold, in the order of `model_times`."""
    mesh, found = lay_out(scenario), list[Held]()
    for layer, count in _kinds(scenario):
        # A layer as the only one of a chunk. What is counted in another layer (a tied table) is
        # left out: it may be on the same stage.
        device, _ = states(scenario, mesh, [Chunk(0, 0, (layer,), layer.weights, 0, layer.frozen)])
        device.pop("optimizer_buffers", None)
        found.append(Held(count, sum(device.values())))
    return tuple(found)


def _kinds(scenario: Scenario) -> list[tuple[Layer, int]]:
    """Each kind of layer once, and how many of it there are."""
    layers = layers_of(scenario)
    kinds = {id(layer): layer for layer in layers}
    return [(kinds[key], count) for key, count in Counter(map(id, layers)).items()]


def closing_ns(scenario: Scenario) -> float:
    """About how long a step closes behind its passes, on the mean stage."""
    parallel, mesh = scenario.parallel, lay_out(scenario)
    placed = placements(mesh, scenario.cluster.fabric.nodes_per_leaf)
    scale, total = Scale.of(scenario, placed), 0.0
    for layer, count in _kinds(scenario):
        opens, reduces, closes = layer_ends(layer, scale, mesh)
        total += count * (opens + reduces / parallel.virtual + closes)
    return 1e9 * total * mesh.copies / mesh.pipeline


@dataclass(frozen=True, slots=True)
class Waiting:
    """Forwards of a chunk that wait for their backward when most do, on some neighbouring stages:
    of the chunk with least, and of the mean one."""

    stages: int
    least: float
    mean: float


def has_room(
    model: Sequence[LayerTimes], held: Sequence[Held], waits: Sequence[Waiting], budget: float
) -> bool:
    """Whether stages have room for all layers of each kind, one of which holds these bytes; for one
    copy of each part."""
    for layer, own in zip(model, held, strict=True):
        if layer.layer.kind in BLOCKS:
            each = [own.each + one.least * layer.kept for one in waits]
            room = sum(
                one.stages * int(budget // size) for one, size in zip(waits, each, strict=True)
            )
            if room < layer.count:
                return False
    return True


def even_bytes(
    model: Sequence[LayerTimes], held: Sequence[Held], waits: Sequence[Waiting], full: int
) -> float:
    """About what the fullest stage of an even split holds: so many of the largest layers."""
    count = max(one.mean for one in waits)
    blocks = (
        own.each + count * one.kept
        for one, own in zip(model, held, strict=True)
        if one.layer.kind in BLOCKS
    )
    return full * max(blocks)


def waiting(
    schedule: Schedule, shape: tuple[int, int], microbatches: int, *, away: bool
) -> tuple[Waiting, ...]:
    """What waits on every stage of a `shape`, stages and chunks on each. Of what goes `away` to the
    host, only what is not there yet or no more."""
    walked = enough_microbatches(schedule, *shape, microbatches)
    return _waiting(schedule, shape, walked, away)  # pyright: ignore[reportArgumentType]


@lru_cache(maxsize=4 * QUARTERS)
def _order(schedule: Schedule, stage: int, shape: tuple[int, int], microbatches: int) -> Columns:
    """The last few orders: what stays and what goes away is asked of each."""
    return columns(schedule.stage_order(stage, *shape, microbatches))


@lru_cache(maxsize=4096)
def _waiting(
    schedule: Schedule, shape: tuple[int, int], microbatches: int, away: bool
) -> tuple[Waiting, ...]:
    stages, chunk_map = shape[0], schedule.chunk_map(*shape)
    per_stage = len(chunk_map.stage_of) // stages
    ends = sorted({-(-stages * part // QUARTERS) for part in range(1, QUARTERS + 1)})
    found: list[Waiting] = []
    for begin, end in zip([0, *ends[:-1]], ends, strict=True):
        order = _order(schedule, end - 1, shape, microbatches)  # pyright: ignore[reportArgumentType]
        sign = np.array([(kind == "F") - (kind in "BI") for kind, _ in order.rows])
        # What weights' gradients need stays: inputs, and gradients of outputs beside them.
        late = np.array([2 * (kind == "I") - 2 * (kind == "W") for kind, _ in order.rows])
        here = np.cumsum((sign + late)[order.row])
        if away:
            turns = (order.trips.gone, order.trips.back)
            gone, back = (np.bincount(at, minlength=len(order) + 1) for at in turns)
            here -= np.cumsum(gone - back)[:-1]
        # A forward in a pair fills as the backward behind it empties: it counts when both end.
        most = int(np.where(order.paired, 0, np.cumsum(sign[order.row])).argmax())
        by_row = sign * np.bincount(order.row[: most + 1], minlength=len(sign))
        own = [chunk for chunk, at in enumerate(chunk_map.stage_of) if at == end - 1]
        chunks = np.array([chunk for _, chunk in order.rows])
        least = min(int(by_row[chunks == chunk].sum()) for chunk in own)
        if away or chunk_map.copies > 1:
            least = 0
        mean = float(here.max()) / per_stage
        found.append(Waiting(end - begin, max(1 / per_stage, least), mean))
    return tuple(found)


BLOCKS: Final = ("dense", "moe")
"""Kinds of transformer layers."""
BEHIND: Final = ("mtp", "head")
"""Kinds of layers behind those."""


def model_times(scenario: Scenario) -> tuple[LayerTimes, ...]:
    """The least times of each kind of a scenario's layers as its layout cuts them. Raises
    ValueError where the degrees do not divide the model."""
    costs = _cost_model(scenario)
    return tuple(_layer_times(one, costs, scenario, count) for one, count in _kinds(scenario))


def _cost_model(scenario: Scenario) -> CostModel:
    """The costs of a layout, before anything is planned; without what the host takes, which
    may run ahead from pass to pass."""
    mesh = lay_out(scenario)
    placed = placements(mesh, scenario.cluster.fabric.nodes_per_leaf)
    nothing = Memory(stages=(), capacity=0.0, reserve={})
    costs = CostModel.of(Plan(scenario, mesh, (), 1, placed, nothing))
    free = costs.calibration.model_copy(update={"dispatch": 0.0})
    return replace(costs, host=HostCosts(free))


def _layer_times(layer: Layer, costs: CostModel, scenario: Scenario, count: int) -> LayerTimes:
    one = (layer,)
    templates: dict[Pass, Template] = {
        "F": forward_pass(one, costs),
        "B": backward_pass(one, costs),
        "I": input_pass(one, costs),
        "W": weight_pass(one, costs),
    }
    profile = scenario.calibration
    beside = OverlapLoss(nanoseconds(profile.expert_wait), profile.expert_contention)
    pairs: dict[Pass, float] = {
        kind: pair_ns((templates["F"], templates[kind]), costs.alone, beside) for kind in ("B", "I")
    }
    return LayerTimes(
        layer=layer,
        count=count,
        passes={kind: least(made, costs.alone) for kind, made in templates.items()},
        paired=pairs,
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
