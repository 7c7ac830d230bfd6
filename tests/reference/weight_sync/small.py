"""Models small enough to be cut into every layout, and the trainers that hold them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from reference.model import Transformer
from reference.model.part import ModelPart
from reference.model.transformer import initialize
from reference.parallel.mesh import Mesh, ParallelSpec, mesh_of
from reference.parallel.world import stage_of
from twin.spec.model import ModelSpec

LATENT: dict[str, Any] = {
    "name": "latent",
    "layers": 4,
    "hidden": 16,
    "vocab": 24,
    "attention": {
        "kind": "mla",
        "heads": 4,
        "q_lora_rank": 8,
        "kv_lora_rank": 8,
        "qk_nope_head_dim": 4,
        "qk_rope_head_dim": 4,
        "v_head_dim": 4,
    },
    "ffn": {"kind": "swiglu", "width": 12},
    "moe": {
        "experts": 4,
        "top_k": 2,
        "width": 8,
        "shared_experts": 1,
        "first_dense_layers": 1,
        "correction_bias": True,
        "scores": "sigmoid",
    },
}
GROUPED: dict[str, Any] = {
    "name": "grouped",
    "layers": 3,
    "hidden": 16,
    "vocab": 24,
    "attention": {"kind": "gqa", "heads": 4, "kv_heads": 2, "head_dim": 4},
    "ffn": {"kind": "swiglu", "width": 12},
    "tied_embeddings": True,
}


@cache
def model(name: str = "latent") -> ModelSpec:
    return ModelSpec.model_validate({"latent": LATENT, "grouped": GROUPED}[name])


@dataclass(frozen=True)
class Neighbours:
    """So many ranks share the experts; nothing is sent between them here."""

    size: int


def mesh(ranks: int = 1, **parallel: Any) -> Mesh:
    return mesh_of(ParallelSpec.model_validate(parallel), ranks, microbatches=48)


def parts_of(
    spec: ModelSpec, on: Mesh, rank: int, *, seed: int = 0, dtype: torch.dtype = torch.float32
) -> list[Transformer]:
    """What a rank of the trainer holds."""
    exchange: Any = Neighbours(on.spec.expert) if on.spec.expert > 1 else None
    held = stage_of(spec, on, rank, exchange, device=torch.device("cpu"), dtype=dtype)
    for part in held.values():
        fill(part, seed)
    return list(held.values())


def served_part(spec: ModelSpec, part: ModelPart, *, seed: int = 0) -> dict[str, Tensor]:
    """What a rank of that part of the model has to hold in the end."""
    made = Transformer(spec, part=part)
    fill(made, seed)
    return made.state_dict()


def fill(part: Transformer, seed: int) -> None:
    """Values that follow from a tensor's name and the number of its expert; biases and gains, too,
    which begin as zeros and ones."""
    initialize(part, seed, part.part.first_expert(part.spec))
    for name, tensor in part.state_dict().items():
        if tensor.dim() == 1:
            bits = torch.Generator().manual_seed(seed * 1000 + sum(name.encode()) * len(name))
            tensor.copy_(torch.randn(tensor.shape, generator=bits))
