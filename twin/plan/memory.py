"""Does it fit: the device bytes of every stage by name, at the fullest moment of the step.

Weights, gradients and optimizer states stand for the whole step. Activations come and go: the
stage's ordered actions are walked, each forward keeps what its backward needs (less what the memory
policy computes again), each backward frees it, and the fullest moment is kept with its name.
Sources: mixed-precision bytes from Rajbhandari et al. 2020 (ZeRO), section 3.1; activations and
recomputation from Korthikanti et al. 2022, sections 4 and 5.

Left out: the transient buffers of the optimizer step, which runs when no activation is alive;
alignment and fragmentation, which are entries of the GPU's reserve. Between the two halves of a
split backward wait the input and the output's gradient of every op with weights (M_W of Qi et al.
2023, arXiv:2401.10241, table 1); an input that two ops share is counted for both, which is an upper
bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, get_args

from twin.arch import again, wholly
from twin.arch.kernels import ELEMENT
from twin.arch.ops import Exchange, Group, Layer, Op, Weights
from twin.plan.types import Chunk, Memory, Mesh, StageMemory
from twin.scenario import Scenario
from twin.schedules import Schedule
from twin.schedules.action import Action, Pass

PARAMETER_BYTES: Final = 2
"""BF16 weights (Rajbhandari et al. 2020, section 3.1)."""
GRADIENT_BYTES: Final = 4
"""FP32 gradient buffer: micro-batches accumulate in it (Megatron-LM; Kimi K2 report, section
2.4)."""

PASS_NAMES: Final[dict[Pass, str]] = {
    "F": "forward",
    "B": "backward",
    "I": "input backward",
    "W": "weight backward",
}


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes alive because of chunks' passes: `activations` and `logits` wait for a backward pass,
    `working` is what the running pass needs beside them (recomputed activations, gradients of
    activations, outputs on their way)."""

    activations: float = 0.0
    logits: float = 0.0
    working: float = 0.0

    @property
    def total(self) -> float:
        """All bytes."""
        return self.activations + self.logits + self.working

    def __add__(self, other: Held) -> Held:
        return Held(
            self.activations + other.activations,
            self.logits + other.logits,
            self.working + other.working,
        )

    def __sub__(self, other: Held) -> Held:
        return self + other.times(-1)

    def times(self, count: int) -> Held:
        """This many of it."""
        return Held(self.activations * count, self.logits * count, self.working * count)

    def categories(self) -> dict[str, float]:
        """As the ledger names them."""
        return {
            "activations": self.activations,
            "logits": self.logits,
            "working_set": self.working,
        }


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one chunk holds for one micro-batch: between its passes, and at the fullest instant of
    each pass."""

    kept: Held
    """From the forward to the backward."""
    late: Held
    """From the input's backward to the weights'."""
    forward: Held
    backward: Held
    input_backward: Held

    def during(self, kind: Pass) -> Held:
        """At the fullest instant of a pass."""
        match kind:
            case "F":
                return self.forward
            case "B":
                return self.backward
            case "I":
                return self.input_backward
            case "W":
                return self.late


@dataclass(frozen=True, slots=True)
class Peak:
    """The fullest moment of a walk: the action, what passes hold then, how many chunk forwards wait
    for their backward, and how many backwards for their weights' half."""

    action: Action
    held: Held
    in_flight: int
    late: int = 0


def kept_bytes(layer: Layer, recompute: Sequence[str]) -> float:
    """Bytes of one layer that stay between its forward and its backward pass. `full` keeps the
    inputs of transformer layers; `attention_core` drops what the attention core saves; embedding
    and head are never recomputed."""
    return sum(kept_by_op(layer, recompute).values())


def kept_by_op(layer: Layer, recompute: Sequence[str]) -> dict[str, float]:
    """The same by the name of the op that keeps them."""
    if wholly(layer, recompute):
        return {"layer_input": layer.input_bytes}
    repeated = again(layer, recompute)
    kept: dict[str, float] = {}
    for item in layer.items:
        if item.name not in repeated and item.saved:
            kept[item.name] = kept.get(item.name, 0.0) + item.saved
    return kept


def saved_bytes(layer: Layer) -> float:
    """Bytes that one layer keeps when nothing is recomputed."""
    return sum(item.saved for item in layer.items)


def late_bytes(layer: Layer) -> float:
    """Bytes of one layer that wait for its weights' gradients when those are put off."""
    ops = [item for item in layer.items if isinstance(item, Op) and item.weight.kernels]
    return sum(op.input + op.output for op in ops)


def footprint(layers: Sequence[Layer], recompute: Sequence[str]) -> Footprint:
    """What a chunk of these layers holds for one micro-batch. Layers fill one by one in the forward
    pass and empty one by one in the backward pass, so each pass is fullest at one of its layers."""
    kept, late = Held(), sum((_held(layer, late_bytes(layer)) for layer in layers), Held())
    forward, backward, input_backward = Held(), Held(), late
    left = late
    for layer in layers:
        kept += _held(layer, kept_bytes(layer, recompute))
        left -= _held(layer, late_bytes(layer))
        again = saved_bytes(layer) - kept_bytes(layer, recompute)
        gradients = layer.input_bytes + _widest_pair(layer)
        reverse = kept + _working(layer, max(again, 0.0) + gradients)
        forward = _fuller(forward, kept + _working(layer, _widest_pair(layer)))
        backward = _fuller(backward, reverse)
        input_backward = _fuller(input_backward, reverse + left)
    return Footprint(kept, late, forward, backward, input_backward)


def _fuller(one: Held, other: Held) -> Held:
    return max(one, other, key=lambda held: held.total)


def _held(layer: Layer, size: float) -> Held:
    return Held(logits=size) if layer.kind == "head" else Held(activations=size)


def _working(layer: Layer, size: float) -> Held:
    return Held(logits=size) if layer.kind == "head" else Held(working=size)


def _widest_pair(layer: Layer) -> float:
    """Bytes of the two largest neighbouring tensors: an op's input and output, or their gradients,
    live together."""
    written = [item.output for item in layer.items if isinstance(item, Op) and item.output]
    outputs = [layer.input_bytes, *written]
    return max((left + right for left, right in pairwise(outputs)), default=layer.input_bytes)


def walk(actions: Iterable[Action], footprints: Mapping[int, Footprint]) -> Peak:
    """The first fullest moment of a stage's ordered actions."""
    order = tuple(actions)
    kinds = {(one.kind, one.chunk): one for one in order}
    moves = {key: _move(one, footprints) for key, one in kinds.items()}
    base, highest, fullest, beside = 0.0, -1.0, -1, 0.0
    for place, action in enumerate(order):
        running, added = moves[action.kind, action.chunk]
        total = base + running + beside
        if total > highest:
            highest, fullest = total, place
        base += added
        beside = _working_of(action, footprints).total if action.paired else 0.0
    if fullest < 0:
        raise ValueError("a stage without actions has no peak")
    return _at(order[: fullest + 1], footprints)


def _move(action: Action, footprints: Mapping[int, Footprint]) -> tuple[float, float]:
    """Bytes that a pass needs at its fullest, and those that it leaves, beyond what was there."""
    need = footprints[action.chunk]
    found = before(action, need).total
    return need.during(action.kind).total - found, after(action, need).total - found


def before(action: Action, need: Footprint) -> Held:
    """What a pass finds of its own micro-batch."""
    return {"F": Held(), "B": need.kept, "I": need.kept, "W": need.late}[action.kind]


def after(action: Action, need: Footprint) -> Held:
    """What a pass leaves of its own micro-batch."""
    return {"F": need.kept, "B": Held(), "I": need.late, "W": Held()}[action.kind]


def _working_of(forward: Action, footprints: Mapping[int, Footprint]) -> Held:
    """What a forward needs at its fullest beyond what it leaves: its pair runs at the same time."""
    need = footprints[forward.chunk]
    return need.forward - need.kept


def _at(order: Sequence[Action], footprints: Mapping[int, Footprint]) -> Peak:
    """What passes hold during the last of these actions."""
    *past, action = order
    alive: Counter[int] = Counter()
    late: Counter[int] = Counter()
    for one in past:
        alive[one.chunk] += {"F": 1, "B": -1, "I": -1, "W": 0}[one.kind]
        late[one.chunk] += {"F": 0, "B": 0, "I": 1, "W": -1}[one.kind]
    need = footprints[action.chunk]
    held = need.during(action.kind) - before(action, need)
    if past and past[-1].paired:
        held += _working_of(past[-1], footprints)
    for chunk, count in alive.items():
        held += footprints[chunk].kept.times(count)
    for chunk, count in late.items():
        held += footprints[chunk].late.times(count)
    return Peak(action, held, alive.total() + (action.kind == "F"), late.total())


def enough_microbatches(schedule: Schedule, stages: int, chunks: int, microbatches: int) -> int:
    """Micro-batches whose walk passes the same peak as the whole step: the warm-up and one whole
    period of the steady state, after which a repeating order holds what it held a period before;
    the cool-down is the same."""
    period = schedule.period(stages, chunks, microbatches)
    if period is None:
        return microbatches
    least = schedule.warmup_microbatches(stages, chunks, microbatches) + period
    return microbatches if microbatches <= least else least + (microbatches - least) % period


def ledger(scenario: Scenario, mesh: Mesh, chunks: Sequence[Chunk], microbatches: int) -> Memory:
    """The memory ledger of every stage, in bytes on one rank."""
    per_stage = scenario.parallel.virtual
    schedule = scenario.parallel.schedule
    walked = enough_microbatches(schedule, mesh.pipeline, per_stage, microbatches)
    orders = schedule.order(mesh.pipeline, per_stage, walked)
    needs = footprints(scenario, chunks)
    message = boundary_bytes(scenario) if mesh.pipeline > 1 else 0.0
    stages: list[StageMemory] = []
    for stage, actions in enumerate(orders):
        own = [chunk for chunk in chunks if chunk.stage == stage]
        standing = states(scenario, mesh, own)
        standing |= buffers(own, len(chunks), message)
        at_once = 2 if any(action.paired for action in actions) else 1
        standing["data_buffers"] = at_once * unsharded(scenario, mesh, own)
        peak = in_whole_step(walk(actions, needs), stage, actions, (scenario, microbatches))
        stages.append(_stage(stage, standing, peak))
    gpu = scenario.cluster.node.gpu
    reserve: dict[str, float] = {}
    for entry in gpu.reserve:
        reserve[entry.name] = reserve.get(entry.name, 0.0) + entry.bytes
    return Memory(stages=tuple(stages), capacity=gpu.memory, reserve=reserve)


def in_whole_step(
    peak: Peak, stage: int, walked: Sequence[Action], run: tuple[Scenario, int]
) -> Peak:
    """The peak of a shortened walk with the micro-batch that it falls on in the whole step: behind
    the periods that were left out, its number is larger by them."""
    scenario, microbatches = run
    parallel = scenario.parallel
    shape = parallel.pipeline, parallel.virtual
    done = 1 + max(action.microbatch for action in walked)
    period = parallel.schedule.period(*shape, microbatches)
    if done == microbatches or period is None:
        return peak
    end = walked.index(peak.action) + 1
    longer = parallel.schedule.order(*shape, done + period)[stage]
    if tuple(walked[:end]) == longer[:end]:
        return peak
    shifted = replace(peak.action, microbatch=peak.action.microbatch + microbatches - done)
    return replace(peak, action=shifted)


def footprints(scenario: Scenario, chunks: Iterable[Chunk]) -> dict[int, Footprint]:
    """What every chunk holds for one micro-batch, by its index."""
    recompute = scenario.memory.recompute
    return {chunk.index: footprint(chunk.layers, recompute) for chunk in chunks}


def moment(action: Action) -> str:
    """A pass in words, as the ledger names the moment of a peak."""
    return f"{PASS_NAMES[action.kind]} of micro-batch {action.microbatch}, chunk {action.chunk}"


def _stage(stage: int, standing: dict[str, float], peak: Peak) -> StageMemory:
    categories = standing | peak.held.categories()
    return StageMemory(
        stage=stage,
        categories=categories,
        peak_bytes=sum(categories.values()),
        peak_moment=moment(peak.action),
        in_flight=peak.in_flight,
    )


def states(scenario: Scenario, mesh: Mesh, chunks: Sequence[Chunk]) -> dict[str, float]:
    """Bytes of weights, gradients and optimizer states on one rank of a stage: (2 + 4 + K) for each
    weight. ZeRO shards K from stage 1 on, gradients from stage 2, parameters at stage 3, over the
    ranks that hold the same weights: data and context ranks for dense weights, the replicas of each
    expert for experts (Rajbhandari et al. 2020, section 5 and figure 1; with gradients in fp32)."""
    weights = sum((chunk.weights for chunk in chunks), Weights())
    owned = [scenario.train.optimizer.state_bytes(chunk.weights) for chunk in chunks]
    cut = [shards(scenario, mesh, stage) for stage in range(4)]
    dense = weights.replicated + weights.tensor
    learned = dense - weights.buffers
    return {
        "parameters": PARAMETER_BYTES * (dense / cut[3][0] + weights.expert / cut[3][1]),
        "gradients": GRADIENT_BYTES * (learned / cut[2][0] + weights.expert / cut[2][1]),
        "optimizer_dense": sum(dense for dense, _ in owned) / cut[1][0],
        "optimizer_expert": sum(expert for _, expert in owned) / cut[1][1],
    }


def shards(scenario: Scenario, mesh: Mesh, stage: int) -> tuple[int, int]:
    """Over how many ranks that is cut which ZeRO cuts from this stage on: of dense weights, and of
    experts."""
    return (
        (mesh.dense_replicas, mesh.expert_replicas) if scenario.parallel.zero >= stage else (1, 1)
    )


def boundary_bytes(scenario: Scenario) -> float:
    """Bytes of the hidden state that one rank sends to the next stage per micro-batch. With tensor
    parallelism each rank sends its share and the receivers gather (Narayanan et al. 2021, section
    4.1, scatter/gather); with sequence parallelism the state is already cut."""
    parallel = scenario.parallel
    tokens = parallel.micro_batch * scenario.train.sequence / parallel.context
    return tokens * scenario.model.hidden * ELEMENT / parallel.tensor


def unsharded(scenario: Scenario, mesh: Mesh, chunks: Sequence[Chunk]) -> float:
    """Bytes of what ZeRO has whole for a while in a pass on one rank of a stage. Gradients (from
    stage 2 on): of the layer that is computed, and of the one that is being reduced. Parameters
    (stage 3): of the layer that runs and the next one, or of every layer if they stay after the
    forward pass. Two of the largest layer is what these take at most."""
    found = 0.0
    for bucket in (0, 1):
        sizes = [_learned(layer)[bucket] for chunk in chunks for layer in chunk.layers]
        largest = 2 * max(sizes, default=0)
        if shards(scenario, mesh, 2)[bucket] > 1:
            found += GRADIENT_BYTES * min(largest, sum(sizes))
        if shards(scenario, mesh, 3)[bucket] > 1:
            kept = not scenario.parallel.reshard_after_forward
            found += PARAMETER_BYTES * (sum(sizes) if kept else largest)
    return found


def _learned(layer: Layer) -> tuple[int, int]:
    """Dense and expert weights that a layer uses, tied ones included."""
    used = layer.weights + layer.tied
    return used.replicated + used.tensor, used.expert


def buffers(chunks: Sequence[Chunk], total_chunks: int, message: float) -> dict[str, float]:
    """Bytes of communication buffers on one rank of a stage: one message between stages received
    ahead and one on its way, in each direction in which the stage has a neighbour; what the largest
    all-to-all receives, since it cannot work in place (what it sends is the output of an op), and
    what expert-tensor ranks gather; the largest gathered tensor of sequence parallelism
    (Megatron-LM's global buffer); keys and values of the whole sequence, and in backward their
    gradients beside them."""
    layers = [layer for chunk in chunks for layer in chunk.layers]
    exchanges = [item for layer in layers for item in layer.items if isinstance(item, Exchange)]
    before = any(chunk.index > 0 for chunk in chunks)
    after = any(chunk.index < total_chunks - 1 for chunk in chunks)
    whole = {"all_gather", "reduce_scatter", "all_to_all"}
    largest = {
        group: max(
            (
                item.bytes
                for item in exchanges
                if item.group == group and {item.forward, item.backward} & whole
            ),
            default=0.0,
        )
        for group in get_args(Group)
    }
    return {
        "pipeline_buffers": 2 * message * (before + after),
        "expert_buffers": largest["expert"] + largest["expert_tensor"],
        "tensor_buffers": largest["tensor"],
        "context_buffers": 2 * largest["context"],
    }
