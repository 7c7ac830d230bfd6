"""Does it fit: the device bytes of every stage by name, at the fullest moment of the step.

Weights, gradients and optimizer states stand for the whole step. Activations come and go: the
stage's ordered actions are walked, each forward keeps what its backward needs (less what the memory
policy computes again), each backward frees it, and the fullest moment is kept with its name.
Sources: mixed-precision bytes from Rajbhandari et al. 2020 (ZeRO), section 3.1; activations and
recomputation from Korthikanti et al. 2022, sections 4 and 5.

Left out: the transient buffers of the optimizer step, which runs when no activation is alive;
alignment and fragmentation, which are entries of the GPU's reserve. A split backward (`I`, `W`)
keeps its activations until `W`, which is an upper bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from twin.arch import again, wholly
from twin.arch.kernels import ELEMENT
from twin.arch.ops import Exchange, Layer, Op
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

    def times(self, count: int) -> Held:
        """This many of it."""
        return Held(self.activations * count, self.logits * count, self.working * count)


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one chunk holds for one micro-batch: between its passes, and at the fullest instant of
    each pass."""

    kept: Held
    forward: Held
    backward: Held


@dataclass(frozen=True, slots=True)
class Peak:
    """The fullest moment of a walk: the action, what passes hold then, and how many chunk forwards
    are alive."""

    action: Action
    held: Held
    in_flight: int


def kept_bytes(layer: Layer, recompute: Sequence[str]) -> float:
    """Bytes of one layer that stay between its forward and its backward pass. `full` keeps the
    inputs of transformer layers; `attention_core` drops what the attention core saves; embedding
    and head are never recomputed."""
    if wholly(layer, recompute):
        return layer.input_bytes
    repeated = again(layer, recompute)
    return sum(item.saved for item in layer.items if item.name not in repeated)


def saved_bytes(layer: Layer) -> float:
    """Bytes that one layer keeps when nothing is recomputed."""
    return sum(item.saved for item in layer.items)


def footprint(layers: Sequence[Layer], recompute: Sequence[str]) -> Footprint:
    """What a chunk of these layers holds for one micro-batch. Layers fill one by one in the forward
    pass and empty one by one in the backward pass, so each pass is fullest at one of its layers."""
    kept = Held()
    forward = backward = Held()
    for layer in layers:
        kept += _held(layer, kept_bytes(layer, recompute))
        forward = max(
            forward, kept + _working(layer, _widest_pair(layer)), key=lambda held: held.total
        )
        again = saved_bytes(layer) - kept_bytes(layer, recompute)
        gradients = layer.input_bytes + _widest_pair(layer)
        backward = max(
            backward,
            kept + _working(layer, max(again, 0.0) + gradients),
            key=lambda held: held.total,
        )
    return Footprint(kept, forward, backward)


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
    alive: Counter[int] = Counter()
    base, highest = 0.0, -1.0
    found: tuple[Action, Counter[int]] | None = None
    for action in actions:
        need = footprints[action.chunk]
        if action.kind == "F":
            total = base + need.forward.total
            base += need.kept.total
            alive[action.chunk] += 1
        else:
            total = base - need.kept.total + need.backward.total
        if total > highest:
            highest, found = total, (action, alive.copy())
        if action.kind in ("B", "W"):
            base -= need.kept.total
            alive[action.chunk] -= 1
    if found is None:
        raise ValueError("a stage without actions has no peak")
    return _at(*found, footprints)


def _at(action: Action, alive: Counter[int], footprints: Mapping[int, Footprint]) -> Peak:
    running = footprints[action.chunk]
    held = running.forward if action.kind == "F" else running.backward
    for chunk, count in alive.items():
        others = count - 1 if chunk == action.chunk else count
        held += footprints[chunk].kept.times(others)
    return Peak(action, held, alive.total())


def enough_microbatches(schedule: Schedule, stages: int, chunks: int, microbatches: int) -> int:
    """Micro-batches whose walk passes the same peak as the whole step: the warm-up and one whole
    period of the steady state, after which a repeating order holds what it held a period before,
    and the cool-down only frees."""
    period = schedule.period(stages, chunks, microbatches)
    if period is None:
        return microbatches
    least = schedule.warmup_microbatches(stages, chunks, microbatches) + period
    return microbatches if microbatches <= least else least + (microbatches - least) % period


def ledger(scenario: Scenario, mesh: Mesh, chunks: Sequence[Chunk], microbatches: int) -> Memory:
    """The memory ledger of every stage, in bytes on one rank."""
    per_stage = len(chunks) // mesh.pipeline
    schedule = scenario.parallel.schedule
    walked = enough_microbatches(schedule, mesh.pipeline, per_stage, microbatches)
    orders = schedule.order(mesh.pipeline, per_stage, walked)
    footprints = {
        chunk.index: footprint(chunk.layers, scenario.memory.recompute) for chunk in chunks
    }
    stages: list[StageMemory] = []
    for stage, actions in enumerate(orders):
        own = [chunk for chunk in chunks if chunk.stage == stage]
        standing = states(scenario, mesh, own)
        standing |= buffers(own, len(chunks), boundary_bytes(scenario))
        stages.append(_stage(stage, standing, walk(actions, footprints)))
    gpu = scenario.cluster.node.gpu
    reserve: dict[str, float] = {}
    for entry in gpu.reserve:
        reserve[entry.name] = reserve.get(entry.name, 0.0) + entry.bytes
    return Memory(stages=tuple(stages), capacity=gpu.memory, reserve=reserve)


def _stage(stage: int, standing: dict[str, float], peak: Peak) -> StageMemory:
    categories = standing | {
        "activations": peak.held.activations,
        "logits": peak.held.logits,
        "working_set": peak.held.working,
    }
    action = peak.action
    moment = f"{PASS_NAMES[action.kind]} of micro-batch {action.microbatch}, chunk {action.chunk}"
    return StageMemory(
        stage=stage,
        categories=categories,
        peak_bytes=sum(categories.values()),
        peak_moment=moment,
        in_flight=peak.in_flight,
    )


def states(scenario: Scenario, mesh: Mesh, chunks: Sequence[Chunk]) -> dict[str, float]:
    """Bytes of weights, gradients and optimizer states on one rank of a stage. ZeRO stage 1 shards
    the optimizer states over the ranks that hold the same weights: all data ranks for dense
    weights, the replicas of each expert for experts (Rajbhandari et al. 2020, section 5.1)."""
    weights = sum(chunk.weights.total for chunk in chunks)
    unlearned = sum(chunk.weights.buffers for chunk in chunks)
    owned = [scenario.train.optimizer.state_bytes(chunk.weights) for chunk in chunks]
    dense_shards, expert_shards = (
        (mesh.data, mesh.expert_replicas) if scenario.parallel.zero == 1 else (1, 1)
    )
    return {
        "parameters": float(PARAMETER_BYTES * weights),
        "gradients": float(GRADIENT_BYTES * (weights - unlearned)),
        "optimizer_dense": sum(dense for dense, _ in owned) / dense_shards,
        "optimizer_expert": sum(expert for _, expert in owned) / expert_shards,
    }


def boundary_bytes(scenario: Scenario) -> float:
    """Bytes of the hidden state that one rank sends to the next stage per micro-batch. With tensor
    parallelism each rank sends its share and the receivers gather (Narayanan et al. 2021, section
    4.1, scatter/gather); with sequence parallelism the state is already cut."""
    tokens = scenario.parallel.micro_batch * scenario.train.sequence
    return tokens * scenario.model.hidden * ELEMENT / scenario.parallel.tensor


def buffers(chunks: Sequence[Chunk], total_chunks: int, message: float) -> dict[str, float]:
    """Bytes of communication buffers on one rank of a stage: one message between stages received
    ahead and one on its way, in each direction in which the stage has a neighbour; what the largest
    all-to-all receives, since it cannot work in place (what it sends is the output of an op); the
    largest gathered tensor of sequence parallelism (Megatron-LM's global buffer)."""
    layers = [layer for chunk in chunks for layer in chunk.layers]
    exchanges = [item for layer in layers for item in layer.items if isinstance(item, Exchange)]
    before = any(chunk.index > 0 for chunk in chunks)
    after = any(chunk.index < total_chunks - 1 for chunk in chunks)
    all_to_all = [item.bytes for item in exchanges if item.forward == "all_to_all"]
    gathered = [
        item.bytes
        for item in exchanges
        if {item.forward, item.backward} & {"all_gather", "reduce_scatter"}
    ]
    return {
        "pipeline_buffers": 2 * message * (before + after),
        "expert_buffers": max(all_to_all, default=0.0),
        "tensor_buffers": max(gathered, default=0.0),
    }
