"""Does it fit: the device bytes of every stage by name, at the fullest moment of the step, and what
its ranks keep in host memory.

Weights, gradients and optimizer states stand for the whole step. Activations come and go: the
stage's ordered actions are walked (`twin.planning.walk`), each forward keeps what its backward
needs (less what the memory policy computes again), each backward frees it, and the fullest moment
is kept with its name. Sources: mixed-precision bytes from Rajbhandari et al. 2020 (ZeRO), section
3.1; host memory for optimizer states from Ren et al. 2021 (ZeRO-Offload, arXiv:2101.06840).

Host memory is pinned, so what is offloaded is there for good: a node needs the sum of what its
ranks have at their fullest, whenever that is.

Left out: other transient buffers of the optimizer step, which runs when no activation is alive;
alignment and fragmentation, which are entries of the GPU's reserve; what data loading, checkpoints
and the system need of the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, get_args

import numpy as np

from twin.arch import fp4
from twin.arch.count import adapter_parameters, parameters
from twin.arch.kernels import ELEMENT
from twin.arch.ops import Exchange, Group, Layer, Weights
from twin.arch.recompute import TRANSFORMER
from twin.optimizers.base import dense_weights
from twin.planning.columns import alike, columns_of
from twin.planning.footprint import PARAMETER_BYTES, Footprint, footprints
from twin.planning.mesh import ranks_of_stages
from twin.planning.offload import host_phases, share_of, staged_bytes
from twin.planning.types import Chunk, Memory, Mesh, StageMemory
from twin.planning.walk import Peak, Walk, enough_microbatches, walk_columns
from twin.scenario import Scenario
from twin.schedules.base import Action, Pass

MASTER_BYTES: Final = 4
"""FP32 weights: the optimizer's, or under `fully_shard` all that is sharded."""

PASS_NAMES: Final[dict[Pass, str]] = {
    "F": "forward",
    "B": "backward",
    "I": "input backward",
    "W": "weight backward",
}


def ledger(scenario: Scenario, mesh: Mesh, chunks: Sequence[Chunk], microbatches: int) -> Memory:
    """The memory ledger of every stage, in bytes on one rank."""
    return StageLedgers(scenario, mesh, microbatches).of(chunks)


class StageLedgers:
    """Ledgers of a layout under several splits and policies: stages that hold the same layers are
    counted once."""

    def __init__(self, scenario: Scenario, mesh: Mesh, microbatches: int) -> None:
        """Of a layout that is possible."""
        self.scenario, self.mesh, self.microbatches = scenario, mesh, microbatches
        parallel = scenario.parallel
        schedule, shape = parallel.schedule, (mesh.pipeline, parallel.virtual)
        self.orders = columns_of(
            schedule, *shape, enough_microbatches(schedule, *shape, microbatches)
        )
        self._standing: dict[object, tuple[dict[str, float], dict[str, float]]] = {}
        self._footprints: dict[object, Footprint] = {}
        self._stages: dict[object, tuple[StageMemory, Sequence[Chunk]]] = {}

    @property
    def budget(self) -> float:
        """Bytes of a device for tensors."""
        gpu = self.scenario.cluster.node.gpu
        return gpu.memory - sum(entry.bytes for entry in gpu.reserve)

    def of(self, chunks: Sequence[Chunk]) -> Memory:
        """The ledger of every stage."""
        own: list[list[Chunk]] = [[] for _ in self.orders]
        for chunk in chunks:
            own[chunk.stage].append(chunk)
        stages = [self.stage(stage, held, len(chunks)) for stage, held in enumerate(own)]
        gpu = self.scenario.cluster.node.gpu
        reserve: dict[str, float] = {}
        for entry in gpu.reserve:
            reserve[entry.name] = reserve.get(entry.name, 0.0) + entry.bytes
        return Memory(
            stages=tuple(stages),
            capacity=gpu.memory,
            reserve=reserve,
            host=on_fullest_node(stages, self.mesh),
            host_capacity=self.scenario.cluster.node.host.memory,
            unique_bytes=unique_bytes(self.scenario),
        )

    def _needs(self, own: Sequence[Chunk]) -> dict[int, Footprint]:
        """What chunks hold; those of the same layers are counted once."""
        keys = {chunk.index: tuple(map(id, chunk.layers)) for chunk in own}
        new = [chunk for chunk in own if keys[chunk.index] not in self._footprints]
        self._footprints |= {keys[index]: need for index, need in footprints(new).items()}
        return {index: self._footprints[key] for index, key in keys.items()}

    def stage(self, stage: int, own: Sequence[Chunk], total: int) -> StageMemory:
        """The ledger of one stage that holds these of so many chunks."""
        # Layers of one kind are one shared object.
        held = tuple((tuple(map(id, chunk.layers)), chunk.weights, chunk.frozen) for chunk in own)
        if (stage, held) not in self._stages:
            paired = bool(self.orders[stage].paired.any())
            ends = own[0].index == 0, own[-1].index == total - 1
            if (key := (held, ends, paired)) not in self._standing:
                self._standing[key] = _standing(self.scenario, self.mesh, own, total, paired)
            walked = walk_columns(self.orders[stage], self._needs(own))
            peak = in_whole_step(walked, stage, self.scenario, self.microbatches)
            # With the chunks, so that no other layer gets their identity.
            self._stages[stage, held] = _stage(stage, self._standing[key], peak, walked), own
        return self._stages[stage, held][0]


def unique_bytes(scenario: Scenario) -> float:
    """Bytes of the model's parameters and gradients, each once. Expert biases have no gradient, a
    tied head no table of its own; layers that predict further tokens are left out. Beside frozen
    weights, adapters have parameters and gradients."""
    counted, lora = parameters(scenario.model), scenario.train.lora
    width = scenario.train.gradient_bytes
    if lora is None:
        learned = counted.total - counted.buffers
        return PARAMETER_BYTES * counted.total + width * learned
    own = adapter_parameters(scenario.model, lora.rank)
    return PARAMETER_BYTES * (counted.total + lora.adapters * own) + width * own


def on_fullest_node(stages: Sequence[StageMemory], mesh: Mesh) -> dict[str, float]:
    """Host bytes of all ranks of the node that has most, by category."""
    if not any(stage.host for stage in stages):
        return {}
    stage_of = np.empty(mesh.ranks, np.int64)
    for stage, ranks in enumerate(ranks_of_stages(mesh)):
        stage_of[ranks] = stage
    nodes = np.arange(mesh.ranks) // mesh.gpus_per_node
    sizes = np.array([stage.host_bytes for stage in stages])
    fullest = int(np.bincount(nodes, sizes[stage_of]).argmax())
    total: dict[str, float] = {}
    there = np.bincount(stage_of[nodes == fullest], minlength=len(stages))
    for ranks, stage in zip(there.tolist(), stages, strict=True):
        for name, size in stage.host.items():
            total[name] = total.get(name, 0.0) + ranks * size
    return {name: size for name, size in total.items() if size > 0}


def in_whole_step(walked: Walk, stage: int, scenario: Scenario, microbatches: int) -> Peak:
    """The peak of a shortened walk with the micro-batch that it falls on in the whole step: behind
    the periods that were left out, its number is larger by them."""
    parallel, peak = scenario.parallel, walked.peak()
    schedule, shape = parallel.schedule, (parallel.pipeline, parallel.virtual)
    done = 1 + int(walked.columns.microbatch.max())
    period = schedule.period(*shape, microbatches)
    if done == microbatches or period is None:
        return peak
    if peak.at <= walked.columns.forwards_for_all:
        return peak
    if peak.at < alike(schedule, shape, stage, (done, done + period)):
        return peak
    shifted = replace(peak.action, microbatch=peak.action.microbatch + microbatches - done)
    return replace(peak, action=shifted)


def moment(action: Action) -> str:
    """A pass in words, as the ledger names the moment of a peak."""
    return f"{PASS_NAMES[action.kind]} of micro-batch {action.microbatch}, chunk {action.chunk}"


def _standing(
    scenario: Scenario, mesh: Mesh, own: Sequence[Chunk], total: int, paired: bool
) -> tuple[dict[str, float], dict[str, float]]:
    """What stands all the time on one rank of a stage, on the device and on the host. `own`: its
    chunks, of so many in `total`; `paired`: whether it runs two passes at once."""
    message = boundary_bytes(scenario) if mesh.pipeline > 1 else 0.0
    device, host = states(scenario, mesh, own)
    device |= buffers(own, total, message)
    # PyTorch's own pieces go through one workspace, which its allocator does not count.
    if scenario.parallel.overlap_tensor == "pieces" and not scenario.memory.fully_shard:
        device["user_buffers"] = registered(own)
    device["data_buffers"] = unsharded(scenario, mesh, own, 4 if paired else 2)
    if scenario.software is not None and scenario.software.gradient_stand_ins:
        device["gradient_stand_ins"] = stand_ins(own)
    return device, host


def _stage(
    stage: int, standing: tuple[dict[str, float], dict[str, float]], peak: Peak, walked: Walk
) -> StageMemory:
    """What stands all the time, on the device and on the host, with what passes hold."""
    device, host = standing
    categories = device | peak.held.categories()
    on_host = {"activations": float(walked.host.max())} | host
    return StageMemory(
        stage=stage,
        categories=categories,
        peak_bytes=sum(categories.values()),
        peak_moment=moment(peak.action),
        in_flight=peak.in_flight,
        kept_bytes=float(walked.kept.max()),
        host={name: size for name, size in on_host.items() if size > 0},
    )


def states(
    scenario: Scenario, mesh: Mesh, chunks: Sequence[Chunk]
) -> tuple[dict[str, float], dict[str, float]]:
    """Bytes of weights, gradients and optimizer states of one rank of a stage, on the device and on
    the host: (2 + 4 + K) for each weight. ZeRO shards K from stage 1 on, gradients from stage 2,
    parameters at stage 3, over the ranks that hold the same weights: data and context ranks for
    dense weights, the replicas of each expert for experts (Rajbhandari et al. 2020, section 5 and
    figure 1; with gradients in fp32, or 2 bytes instead of 4). Offload moves the rank's shard of
    K. Under `fully_shard` the parameters are the fp32 weights of K. Of frozen weights there are
    parameters only."""
    weights = sum((chunk.weights for chunk in chunks), Weights())
    owned = [scenario.train.optimizer.state_bytes(chunk.weights) for chunk in chunks]
    cut = [shards(scenario, mesh, stage) for stage in range(4)]
    whole = sum((chunk.frozen for chunk in chunks), weights)
    dense, learned = whole.replicated + whole.tensor, dense_weights(weights)
    merged = scenario.memory.fully_shard
    width, master = (MASTER_BYTES, MASTER_BYTES) if merged else (PARAMETER_BYTES, 0)
    states = (
        sum(dense for dense, _ in owned) - master * learned,
        sum(expert for _, expert in owned) - master * weights.expert,
    )
    device = {
        "parameters": width * (dense / cut[3][0] + whole.expert / cut[3][1]),
        "gradients": scenario.train.gradient_bytes
        * (learned / cut[2][0] + weights.expert / cut[2][1]),
        "optimizer_dense": states[0] / cut[1][0],
        "optimizer_expert": states[1] / cut[1][1],
    }
    device["parameters"] += _in_fp4(scenario, chunks)
    away = scenario.memory.states_on_host
    if not away:
        return device, {}
    host = {f"optimizer_{holders}": device[f"optimizer_{holders}"] for holders in away}
    device |= dict.fromkeys(host, 0.0)
    staged = staged_bytes(host_phases(scenario, share_of(scenario, mesh, chunks)))
    device["optimizer_buffers"] = staged
    if scenario.memory.optimizer_update == "host":
        host["optimizer_buffers"] = staged
    return device, dict(sorted(host.items()))


def _in_fp4(scenario: Scenario, chunks: Sequence[Chunk]) -> float:
    """Bytes of weights in FP4 on one rank, whole and turned, beside those in bf16; or, where ranks
    gather them so, instead of these. Under ZeRO-3 they are made with each gathered layer."""
    train = scenario.train
    if train.precision not in ("nvfp4", "mxfp4") or scenario.parallel.zero == 3:
        return 0.0
    layers = tuple(layer for chunk in chunks for layer in chunk.layers)
    alone = train.recipe is not None and train.recipe.fp4_param_gather
    return fp4.quantised(layers) - alone * PARAMETER_BYTES * fp4.multiplied(layers)


def shards(scenario: Scenario, mesh: Mesh, stage: int) -> tuple[int, int]:
    """Over how many ranks that is cut which ZeRO cuts from this stage on: of dense weights, and of
    experts."""
    if scenario.parallel.zero < stage:
        return 1, 1
    copies = scenario.parallel.shard_copies
    return mesh.dense_replicas // copies, mesh.expert_replicas // copies


def boundary_bytes(scenario: Scenario) -> float:
    """Bytes of the hidden state that one rank sends to the next stage per micro-batch. With tensor
    parallelism each rank sends its share and the receivers gather (Narayanan et al. 2021, section
    4.1, scatter/gather); with sequence parallelism the state is already cut."""
    parallel = scenario.parallel
    tokens = parallel.micro_batch * scenario.train.sequence / parallel.context
    return tokens * scenario.model.hidden * ELEMENT / parallel.tensor


def unsharded(scenario: Scenario, mesh: Mesh, chunks: Sequence[Chunk], most: int) -> float:
    """Bytes of what ZeRO has whole for a while in a pass on one rank of a stage, beside its shards.
    Gradients (from stage 2 on): of the layer that is computed, and of the one that is being
    reduced. Parameters (stage 3): of the layer that runs and the next one, or of every layer if
    they stay after the forward pass. `most` of the largest layer is what these take at most: two,
    or four where two passes run at once; and no more than all layers, of which the shards are a
    part, because reduce-scatter and all-gather work in place. Under torch's `fully_shard` these are
    the tensors in which parameters arrive, which have a stream and so memory of their own; the rest
    is beside each layer (`twin.planning.footprint`)."""
    layers = [layer for chunk in chunks for layer in chunk.layers]
    if scenario.memory.fully_shard:
        sizes = [layer.used.total for layer in layers]
        return PARAMETER_BYTES * min(float(most * max(sizes, default=0)), float(sum(sizes)))
    learned, used = [one.learned for one in layers], [one.used for one in layers]
    # Layers that share a matrix use it twice, and a rank has it once.
    trained = sum((one.weights for one in chunks), Weights())
    once = sum((one.frozen for one in chunks), trained)
    found = 0.0
    for bucket in (0, 1):
        cut = shards(scenario, mesh, 2)[bucket]
        sizes = [(dense_weights(own), own.expert)[bucket] for own in learned]
        every = (dense_weights(trained), trained.expert)[bucket]
        found += scenario.train.gradient_bytes * _beside_shards(sizes, every, cut, most)
        cut = shards(scenario, mesh, 3)[bucket]
        sizes = [(own.replicated + own.tensor, own.expert)[bucket] for own in used]
        every = (once.replicated + once.tensor, once.expert)[bucket]
        kept = not scenario.parallel.reshard_after_forward
        count = len(sizes) if kept else most
        found += PARAMETER_BYTES * _beside_shards(sizes, every, cut, count)
    return found


def _beside_shards(sizes: Sequence[int], every: int, ranks: int, most: int) -> float:
    """Of layers of these sizes, so many of the largest, but no more than the other ranks have of
    every weight."""
    return min(most * max(sizes, default=0), every * (1 - 1 / ranks)) if ranks > 1 else 0.0


def stand_ins(chunks: Sequence[Chunk]) -> float:
    """Bytes of the empty gradients that autograd gets where kernels add to the buffers: a bf16
    tensor for each shape of a matrix, kept for good (Transformer Engine, `get_dummy_wgrad`). A
    projection to several outputs is one matrix; experts are alike."""
    layers = [layer for chunk in chunks for layer in chunk.layers]
    shapes: set[tuple[int, int, int]] = set()
    for layer in layers:
        experts = min((one.count for one in layer.matrices if one.bucket == "expert"), default=1)
        for one in layer.matrices:
            count = one.count // experts if one.bucket == "expert" else one.count
            shapes.add((one.rows, one.cols, count))
    head = max((layer.used.total for layer in layers if layer.kind == "head"), default=0)
    return float(PARAMETER_BYTES * (head + sum(rows * cols * n for rows, cols, n in shapes)))


def buffers(chunks: Sequence[Chunk], total_chunks: int, message: float) -> dict[str, float]:
    """Bytes of communication buffers on one rank of a stage: one message between stages received
    ahead and one on its way, in each direction in which the stage has a neighbour; what the largest
    all-to-all receives, since it cannot work in place (what it sends is the output of an op), and
    what expert-tensor ranks gather; the largest gathered tensor of sequence parallelism
    (Megatron-LM's global buffer); what context ranks exchange (`_buffered`)."""
    layers = [layer for chunk in chunks for layer in chunk.layers]
    exchanges = [item for layer in layers for item in layer.items if isinstance(item, Exchange)]
    before = any(chunk.index > 0 for chunk in chunks)
    after = any(chunk.index < total_chunks - 1 for chunk in chunks)
    whole = {"all_gather", "reduce_scatter", "all_to_all"}
    largest = {
        group: max(
            (
                _buffered(item)
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
        "context_buffers": largest["context"],
    }


def _buffered(item: Exchange) -> float:
    """Bytes of the buffers of an exchange. Context ranks have gradients beside what they gather,
    and of a ring two ranks' parts at a time."""
    most = max(item.payload(), item.payload(backward=True))
    if item.circle:
        return 2 * most / item.circle
    gathers = item.group == "context" and "all_to_all" not in (item.forward, item.backward)
    return 2 * most if gathers else most


def registered(chunks: Sequence[Chunk]) -> float:
    """Bytes of the buffers in which tensor ranks exchange pieces, on one rank of a stage: one for
    each collective of a layer, of the whole tensor, which all layers share (Transformer Engine,
    `initialize_ub`; PyTorch's async tensor parallelism needs fewer)."""
    layers = (layer for chunk in chunks for layer in chunk.layers if layer.kind in TRANSFORMER)
    return max((_whole_tensors(layer) for layer in layers), default=0.0)


def _whole_tensors(layer: Layer) -> float:
    """Bytes of what tensor ranks gather and reduce in a layer, both ways."""
    items = (item for item in layer.items if isinstance(item, Exchange) and item.group == "tensor")
    return sum(
        (item.payload() if item.forward else 0.0)
        + (item.payload(backward=True) if item.backward else 0.0)
        for item in items
    )
