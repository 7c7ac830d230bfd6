"""Scenario to Plan, the one entry point: ranks, chunks with layers, placements, micro-batches,
memory, warnings.

Layers are split over chunks as written in `parallel.layers`, or balanced by the time of their
kernels (forward, backward and what the memory policy runs again) at the calibrated efficiencies.
Communication is left out of that weight, because what is exposed of it follows from the split; all
transformer layers of one kind send the same, so it shifts the balance only between kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from twin.arch import again, layers
from twin.arch.fp8_store import packing
from twin.arch.ops import Layer, Op, Shape, Weights
from twin.collectives.spread import spread
from twin.errors import Problem, ScenarioError
from twin.hardware import seconds
from twin.network.placement import Placement
from twin.plan.caveats import caveats
from twin.plan.feasibility import microbatches, problems
from twin.plan.memory import ledger
from twin.plan.memory_caveats import memory_caveats
from twin.plan.mesh import lay_out, placements
from twin.plan.stages import balance, split
from twin.plan.types import Chunk, Plan
from twin.routing import load
from twin.scenario import Scenario
from twin.schedules import ChunkMap

T = TypeVar("T")

LEAST_SECONDS = 1e-6
"""What the kernels of a micro-batch take at least, over all layers: a thousand times the engine's
nanosecond, and less than one launch of a kernel takes on any GPU."""


def plan(scenario: Scenario) -> Plan:
    """The resolved run of a scenario.

    Raises:
        ScenarioError: the layout is impossible; carries every problem, each with its nearest fix.
    """
    if found := problems(scenario):
        raise ScenarioError(scenario.locate(found))
    mesh = lay_out(scenario)
    model_layers = layers_of(scenario)
    if found := kernels_take_time(scenario, model_layers):
        raise ScenarioError(scenario.locate(found))
    chunks = cut(scenario, model_layers)
    count = microbatches(scenario)
    memory = ledger(scenario, mesh, chunks, count)
    return Plan(
        scenario=scenario,
        mesh=mesh,
        chunks=chunks,
        microbatches=count,
        placements=placements(mesh, scenario.cluster.fabric.nodes_per_leaf),
        memory=memory,
        warnings=(
            *caveats(scenario, mesh, chunks),
            *memory_caveats(scenario, chunks, memory),
        ),
    )


def layers_of(scenario: Scenario) -> tuple[Layer, ...]:
    """Every layer of the model under the memory policy; those of one kind are one shared object."""
    plain = layers(scenario.model, shape_of(scenario))
    kinds = {id(one): one for one in plain}
    made = {key: packing(one, scenario.memory) for key, one in kinds.items()}
    return tuple(made[id(one)] for one in plain)


def shape_of(scenario: Scenario) -> Shape:
    """The micro-batch and the sharding that a layer sees on one rank."""
    parallel, train, moe = scenario.parallel, scenario.train, scenario.model.moe
    fullest = load(train.routing, moe.experts, parallel.expert, moe.top_k) if moe else 1.0
    return Shape(
        sequences=parallel.micro_batch,
        sequence=train.sequence,
        tensor=parallel.tensor,
        expert=parallel.expert,
        sequence_parallel=parallel.sequence_parallel,
        context=parallel.context,
        expert_tensor=parallel.expert_tensor,
        flash=train.attention_kernel == "flash",
        expert_load=fullest,
        kept_load=train.routing.over_layers(fullest, _expert_layers(scenario)),
        arriving=_arriving(scenario),
        precision=train.precision,
        overlap_shared=parallel.overlap_shared_experts,
        scaling=train.fp8_scaling,
        cross_entropy=train.cross_entropy,
        lora=train.lora,
        weigh_outputs=train.expert_weights == "outputs",
        separate="alternate_products" in scenario.memory.recompute,
    )


def _expert_layers(scenario: Scenario) -> float:
    """Layers with experts on a rank, mean over the stages."""
    model, parallel = scenario.model, scenario.parallel
    layers = sum(map(model.has_experts, range(model.layers)))
    return layers * chunk_map_of(scenario).copies / parallel.pipeline


def _arriving(scenario: Scenario) -> float | None:
    """Rows that reach the fullest expert rank per token, where the dispatcher merges copies."""
    moe, parallel, routing = scenario.model.moe, scenario.parallel, scenario.train.routing
    if moe is None or parallel.expert == 1 or parallel.dispatcher != "deepep":
        return None
    # On how many ranks experts lie does not depend on the nodes that these are in.
    ranks = Placement(parallel.expert, parallel.expert)
    uneven = None if routing.kind == "balanced" else routing.shares(moe.experts)
    found = spread(moe.experts, moe.top_k, ranks, moe.groups, moe.top_groups, uneven)
    return found.ranks * found.fullest_rank


def kernels_take_time(scenario: Scenario, model_layers: Sequence[Layer]) -> list[Problem]:
    """Time is counted in whole nanoseconds, so there has to be enough of it."""
    total = sum(weigh(model_layers, scenario))
    if total >= LEAST_SECONDS:
        return []
    message = (
        f"the kernels of a micro-batch take {total * 1e9:.3g} ns in all: too little, since time is "
        "counted in whole nanoseconds"
    )
    hint = "write the rates and the launch time of a real GPU, or a larger model"
    return [Problem("TW123", "cluster.node.gpu.bf16_dense", message, hint)]


def cut(scenario: Scenario, model_layers: Sequence[Layer]) -> tuple[Chunk, ...]:
    """The chunks of the run, as the schedule maps parts of the model to stages. The embedding joins
    the first part, the head the last, with the modules that predict further tokens, whatever the
    split of transformer layers says."""
    embedding, blocks, heads = ends(model_layers, scenario.model.layers)
    parts = split(scenario.parallel.layers or balanced(scenario, model_layers))
    chunk_map = chunk_map_of(scenario)
    held = [
        (
            *([embedding] if part == 0 else ()),
            *blocks[parts[part].start : parts[part].stop],
            *(heads if part == len(parts) - 1 else ()),
        )
        for part in chunk_map.part_of
    ]
    embedded = {
        s for s, part in zip(chunk_map.stage_of, chunk_map.part_of, strict=True) if not part
    }
    return tuple(
        Chunk(
            index,
            stage,
            own,
            weights_of(own, stage in embedded),
            parts[part].start,
            frozen_of(own, stage in embedded),
        )
        for index, (stage, part, own) in enumerate(
            zip(chunk_map.stage_of, chunk_map.part_of, held, strict=True)
        )
    )


def chunk_map_of(scenario: Scenario) -> ChunkMap:
    """Where the scenario's schedule puts its chunks."""
    parallel = scenario.parallel
    return parallel.schedule.chunk_map(parallel.pipeline, parallel.virtual)


def weights_of(own: Sequence[Layer], embedded: bool) -> Weights:
    """Weights that a chunk's layers bring to one rank of its stage. Tied weights are a second copy,
    unless the embedding, which counts them, is on the same stage."""
    total = Weights()
    for layer in own:
        total += layer.weights if embedded else layer.learned
    return total


def frozen_of(own: Sequence[Layer], embedded: bool) -> Weights:
    """The same of weights that are not trained."""
    total = Weights()
    for layer in own:
        total += layer.frozen
        if layer.frozen.total and not embedded:
            total += layer.tied
    return total


def balanced(scenario: Scenario, model_layers: Sequence[Layer]) -> tuple[int, ...]:
    """Transformer layers per chunk, balanced by the time of their kernels."""
    parallel = scenario.parallel
    embedding, blocks, heads = ends(weigh(model_layers, scenario), scenario.model.layers)
    return balance(blocks, embedding, sum(heads), parallel.pipeline, parallel.virtual)


def ends(stack: Sequence[T], layers: int) -> tuple[T, Sequence[T], Sequence[T]]:
    """What belongs to the embedding, to the transformer layers, and to what comes behind them."""
    return stack[0], stack[1 : layers + 1], stack[layers + 1 :]


def weigh(model_layers: Sequence[Layer], scenario: Scenario) -> list[float]:
    """Seconds of every layer's kernels for one micro-batch."""
    # Layers of one kind are one shared object: each is weighed once.
    kinds = {id(layer): layer for layer in model_layers}
    weighed = {key: layer_seconds(layer, scenario) for key, layer in kinds.items()}
    return [weighed[id(layer)] for layer in model_layers]


def layer_seconds(layer: Layer, scenario: Scenario) -> float:
    """Seconds of a layer's kernels for one micro-batch: forward, backward, and what the memory
    policy runs again."""
    gpu, calibration = scenario.cluster.node.gpu, scenario.calibration
    repeated = again(layer, scenario.memory.recompute)
    total = 0.0
    for op in layer.items:
        if not isinstance(op, Op):
            continue
        forward = seconds(op.kind, op.forward, gpu, calibration)
        total += forward * (2 if op.name in repeated else 1)
        total += seconds(op.kind, op.backward, gpu, calibration, backward=True)
        total += seconds(op.kind, op.weight, gpu, calibration, backward=True)
    return total
