"""Buckets: how replicas reduce gradients and gather new weights while passes run.

Layers are grouped from the last one on, since their gradients come first; a bucket is full when it
has `parallel.bucket_size` dense parameters of a rank, or as many of experts. In the last backward
each bucket is reduced behind the kernels of its layers. In the first forward each is gathered one
bucket ahead: its gather is launched when the one before it is waited for. PyTorch's DDP reduces so
(Li et al. 2020, arXiv:2006.15704, section 3.2), Megatron-LM does both
(`core/distributed/param_and_grad_buffer.py` at d98e8a64d).

Only a first stage of one chunk has buckets. Megatron-LM turns them off on later stages, which
reduce in the bubble behind their last backward (`distributed_data_parallel.py`), and reduces the
chunks of an interleaved stage as a whole (`pipeline_parallel/schedules.py`, `grad_sync_func`).
OURS: a bucket holds whole layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from twin.arch.ops import Layer, Weights
from twin.arch.recompute import TRANSFORMER
from twin.engine.program import Group
from twin.optimizers.base import dense_weights
from twin.planning.memory import PARAMETER_BYTES
from twin.planning.types import Chunk, Plan

Buckets: TypeAlias = Mapping[int, Mapping[Group, float]]
"""Bytes that a bucket sends in each group, by the place of its first layer in the chunk."""
NO_BUCKETS: Final[Buckets] = {}

LEAST: Final = 40_000_000
"""Parameters of a bucket (Megatron-LM)."""
PER_RANK: Final = 1_000_000
"""Parameters of a bucket for each data rank, where these are more (Megatron-LM)."""


def reduced(plan: Plan, chunk: Chunk) -> Buckets:
    """The gradients of a chunk that its last backward reduces; none where the step's closing does
    so."""
    parallel, width = plan.scenario.parallel, plan.scenario.train.sent_bytes
    if parallel.zero > 1 or not parallel.overlap_grad_reduce:
        return {}
    return {
        place: {
            "data": float(width * sum(dense_weights(layer.weights) for layer in layers)),
            "expert_data": float(width * sum(layer.weights.expert for layer in layers)),
        }
        for place, layers in _buckets(plan, chunk).items()
    }


def gathered(plan: Plan, chunk: Chunk) -> Buckets:
    """The new weights of a chunk that its first forward gathers; none where opening or closing do
    so."""
    parallel = plan.scenario.parallel
    if parallel.zero not in (1, 2) or not parallel.overlap_param_gather:
        return {}
    return {
        place: new_weights(plan, layers, sum((layer.weights for layer in layers), Weights()))
        for place, layers in _buckets(plan, chunk).items()
    }


def new_weights(plan: Plan, layers: Iterable[Layer], weights: Weights) -> dict[Group, float]:
    """Bytes of new weights that ranks gather, of layers with so many weights: of linear layers
    fewer each where they travel in FP8 or FP4; those of embedding and head stay in bf16."""
    width = plan.scenario.train.gathered_bytes
    short = width < PARAMETER_BYTES
    ends = (layer.weights for layer in layers if layer.kind not in TRANSFORMER)
    plain = sum(map(dense_weights, ends)) if short else 0
    dense = width * dense_weights(weights) + (PARAMETER_BYTES - width) * plain
    return {"data": float(dense), "expert_data": float(width * weights.expert)}


def _buckets(plan: Plan, chunk: Chunk) -> dict[int, Sequence[Layer]]:
    """The layers of each bucket, by the place of its first; nothing where there is only one."""
    alone = [one.index for one in plan.chunks if one.stage == 0] == [chunk.index]
    replicas = max(plan.placements[group].size for group in ("data", "expert_data"))
    if not alone or replicas == 1:
        return {}
    size = plan.scenario.parallel.bucket_size or max(LEAST, PER_RANK * plan.mesh.data)
    found: dict[int, Sequence[Layer]] = {}
    held, end = Weights(), len(chunk.layers)
    for place in reversed(range(end)):
        held += chunk.layers[place].weights
        if place == 0 or max(dense_weights(held), held.expert) >= size:
            found[place] = chunk.layers[place:end]
            held, end = Weights(), place
    return found if len(found) > 1 else {}
