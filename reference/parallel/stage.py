"""What one rank holds of the model: the parts of its chunks, with its share of their experts."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

import torch

from reference.model import Transformer
from reference.model.part import ModelPart
from reference.parallel.mesh import Mesh, ParallelSpec
from reference.parallel.overlap import ExpertExchange
from twin.errors import Problem, UsageError
from twin.spec.model import ModelSpec


def stage_of(
    spec: ModelSpec,
    mesh: Mesh,
    rank: int,
    exchange: ExpertExchange | None,
    *,
    device: torch.device,
    dtype: torch.dtype,
) -> Mapping[int, Transformer]:
    """The parts of a rank by global chunk, in the order of the model's parts, without values.

    Raises UsageError where layers or experts cannot be cut like that.
    """
    parts = cut(spec, mesh.spec)
    expert = mesh.expert_index(rank) if exchange else 0
    chunk_map, stage = mesh.chunk_map, mesh.stage(rank)
    own = [chunk for chunk, place in enumerate(chunk_map.stage_of) if place == stage]
    found: dict[int, Transformer] = {}
    for chunk in sorted(own, key=lambda one: chunk_map.part_of[one]):
        first, end = parts[chunk_map.part_of[chunk]]
        part = ModelPart(
            first,
            end,
            embedding=chunk_map.before[chunk] is None,
            head=chunk_map.after[chunk] is None,
            expert_rank=expert,
            exchange=exchange,
        )
        found[chunk] = Transformer(spec, device=device, dtype=dtype, part=part)
    return found


def cut(spec: ModelSpec, parallel: ParallelSpec) -> tuple[tuple[int, int], ...]:
    """First layer and the one behind the last, of each part of the model. Raises UsageError where
    the layers that were written do not add up, or experts do not divide."""
    if spec.moe is not None and spec.moe.experts % parallel.expert:
        message = f"{spec.moe.experts} experts cannot be shared by {parallel.expert} ranks"
        raise UsageError([Problem("TW293", "parallel.expert", message, "choose a divisor")])
    parts = parallel.schedule.chunk_map(parallel.pipeline, parallel.virtual).parts
    if spec.tied_embeddings and parts > 1:
        message = f"{spec.name} uses its embedding as its head, on the first and on the last chunk"
        fix = "set `parallel.pipeline` and `parallel.virtual` to 1, or untie them"
        raise UsageError([Problem("TW295", "model.tied_embeddings", message, fix)])
    layers = parallel.layers
    if layers is None:
        each, more = divmod(spec.layers, parts)
        layers = tuple(each + (part < more) for part in range(parts))
    if len(layers) != parts or sum(layers) != spec.layers:
        message = f"{list(layers)} are {sum(layers)} layers in {len(layers)} chunks"
        fix = f"write {parts} numbers that add up to {spec.layers}, or null"
        raise UsageError([Problem("TW293", "parallel.layers", message, fix)])
    ends = list(accumulate(layers))
    return tuple(zip([0, *ends[:-1]], ends, strict=True))
