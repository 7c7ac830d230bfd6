"""The layers of a scenario under its memory policies, and how they are cut into chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeVar

from twin.arch.fp8 import packing
from twin.arch.kernels import ELEMENT
from twin.arch.ops import Layer, Shape, Weights
from twin.arch.recompute import ALTERNATE
from twin.arch.remembered import remembered
from twin.arch.stack import layers
from twin.planning.experts import arriving, expert_load, kept_load, layer_loads, places
from twin.planning.mesh import lay_out
from twin.planning.stages import split
from twin.planning.types import Chunk
from twin.scenario import Scenario
from twin.schedules.base import ChunkMap
from twin.spec.memory import MemorySpec
from twin.spec.model import ModelSpec
from twin.spec.software import SoftwareSpec
from twin.spec.vision import ImagesSpec

T = TypeVar("T")

_NO_SOFTWARE: Final = SoftwareSpec(name="none", framework="none", release="none", calibrations={})


def layers_of(scenario: Scenario, policy: MemorySpec | None = None) -> tuple[Layer, ...]:
    """Every layer of the model under a memory policy, or under that which all stages share; those
    of one kind are one shared object."""
    policy = policy or scenario.memory.as_everywhere
    return _packed(scenario.model, shape_of(scenario, policy), policy)


def mean_layers(scenario: Scenario, policy: MemorySpec | None = None) -> tuple[Layer, ...]:
    """The layers as trainers balance them over stages: nobody knows which layer is how uneven."""
    policy = policy or scenario.memory.as_everywhere
    return _packed(scenario.model, replace(shape_of(scenario, policy), layer_loads=()), policy)


@remembered(256)
def _packed(model: ModelSpec, shape: Shape, memory: MemorySpec) -> tuple[Layer, ...]:
    """The layers of the last models, shapes and policies, which layouts of a search share; 0.1 MB
    each."""
    plain = layers(model, shape)
    kinds = {id(one): one for one in plain}
    made = {key: replace(packing(one, memory), policy=memory) for key, one in kinds.items()}
    return tuple(made[id(one)] for one in plain)


def shape_of(scenario: Scenario, policy: MemorySpec | None = None) -> Shape:
    """The micro-batch and the sharding that a layer sees on one rank, under a memory policy."""
    parallel, train, recipe = scenario.parallel, scenario.train, scenario.train.recipe
    fullest, loads = expert_load(scenario), layer_loads(scenario)
    software = scenario.software or _NO_SOFTWARE
    return Shape(
        sequences=parallel.micro_batch,
        sequence=train.sequence,
        tensor=parallel.tensor,
        expert=parallel.expert,
        sequence_parallel=parallel.sequence_parallel,
        context=parallel.context,
        context_heads=parallel.context_heads,
        context_ring=parallel.context_ring,
        expert_tensor=parallel.expert_tensor,
        flash=train.attention_kernel == "flash",
        expert_load=fullest,
        layer_loads=loads,
        kept_load=kept_load(scenario, _expert_layers(scenario)),
        arriving=arriving(scenario),
        precision=train.precision,
        overlap_shared=parallel.overlap_shared_experts,
        scaling=train.fp8_scaling,
        numbers=recipe.numbers if recipe else (),
        bf16_ends=(recipe.bf16_first, recipe.bf16_last) if recipe else (0, 0),
        without=recipe.without if recipe else (),
        any_layout=scenario.cluster.node.gpu.fp8_any_layout,
        cross_entropy=train.cross_entropy,
        images=_images(scenario),
        lora=train.lora,
        weigh_outputs=train.expert_weights == "outputs",
        separate=ALTERNATE in (policy or scenario.memory).recompute or software.separate_products,
        weights_apart=software.weights_apart,
        unfused=software.unfused,
        accumulate=ELEMENT if scenario.memory.fully_shard else 2 * train.gradient_bytes,
        ordering="gather" if parallel.dispatcher == "hybridep" else "permute",
        dispatcher=parallel.dispatcher,
        capacity=places(scenario),
        permute=software.permute,
        pads=_pads(scenario),
    )


def _images(scenario: Scenario) -> ImagesSpec | None:
    """Images of a rank; on GPUs of their own those of all replicas, dealt out over them."""
    images = scenario.train.images
    if images is None or images.gpus is None:
        return images
    group = scenario.parallel.tensor if images.tensor == "cut" else 1
    patches = -(-images.patches * lay_out(scenario).data * group // images.gpus)
    return images.model_copy(update={"patches": patches})


def _pads(scenario: Scenario) -> bool:
    """Whether kernels of their own pad the rows of experts. HybridEP pads on the way, and places
    of a fixed number need no padding."""
    by_itself = scenario.software is not None and scenario.software.pads_experts
    short, apart = scenario.train.precision != "bf16", scenario.parallel.dispatcher != "hybridep"
    return by_itself and short and apart and scenario.train.expert_capacity is None


def _expert_layers(scenario: Scenario) -> float:
    """Layers with experts on a rank, mean over the stages."""
    model, parallel = scenario.model, scenario.parallel
    layers = sum(map(model.has_experts, range(model.layers)))
    return layers * chunk_map_of(scenario).copies / parallel.pipeline


def cut(
    scenario: Scenario, stacks: Sequence[Sequence[Layer]], layers_per_part: Sequence[int]
) -> tuple[Chunk, ...]:
    """The chunks of the run, each with layers of its own of `stacks`, as the schedule maps
    parts of the model to stages. The embedding joins the first part, the head the last, with the
    modules that predict further tokens, whatever the split of transformer layers says."""
    parts = split(layers_per_part)
    chunk_map = chunk_map_of(scenario)
    held = [
        (
            *([embedding] if part == 0 else ()),
            *blocks[parts[part].start : parts[part].stop],
            *(heads if part == len(parts) - 1 else ()),
        )
        for part, stack in zip(chunk_map.part_of, stacks, strict=True)
        for embedding, blocks, heads in [ends(stack, scenario.model.layers)]
    ]
    embedded = {
        s for s, part in zip(chunk_map.stage_of, chunk_map.part_of, strict=True) if not part
    }
    # Layers of one kind are one shared object: as many chunks as hold the same weigh the same.
    keys = [
        (tuple(map(id, own)), s in embedded)
        for own, s in zip(held, chunk_map.stage_of, strict=True)
    ]
    kinds = {key: (own, key[1]) for key, own in zip(keys, held, strict=True)}
    weights = {key: (weights_of(*kind), frozen_of(*kind)) for key, kind in kinds.items()}
    return tuple(
        Chunk(index, stage, own, weights[key][0], parts[part].start, weights[key][1])
        for index, (stage, part, own, key) in enumerate(
            zip(chunk_map.stage_of, chunk_map.part_of, held, keys, strict=True)
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


def ends(stack: Sequence[T], layers: int) -> tuple[T, Sequence[T], Sequence[T]]:
    """What belongs to the embedding, to the transformer layers, and to what comes behind them."""
    return stack[0], stack[1 : layers + 1], stack[layers + 1 :]
