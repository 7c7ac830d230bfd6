"""The full set: every tensor of a model as it travels, and which of them a rank holds.

A stack of experts travels as one tensor per expert, so that no layout of the trainer cuts a
travelling tensor: whoever holds a part of the model holds whole tensors of the full set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from reference.convert.names import ReleasedPart as Rows
from reference.convert.names import tensors
from reference.model import Transformer
from reference.optim.blocks import is_expert
from reference.parallel.mesh import Mesh
from reference.parallel.stage import cut
from twin.spec.model import ModelSpec

_BIAS = "router.bias"
"""fp32 whatever the run's precision is (`reference.model.router`)."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A tensor of the full set."""

    name: str
    """`layers.1.ffn.experts.up[3]`: expert 3 of the stack; else the parameter's own name."""
    ours: str
    """The parameter that it is, or is a part of."""
    expert: int | None
    shape: tuple[int, ...]
    dtype: torch.dtype
    rows: tuple[Rows, ...]
    """The released tensors that follow one another in it (`reference.convert.names`)."""

    @property
    def bytes(self) -> int:
        """Of its numbers."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize

    @property
    def layer(self) -> int | None:
        """The layer that it belongs to; None of embedding, last norm and head."""
        first, number, *_ = f"{self.ours}..".split(".")
        return int(number) if first == "layers" else None


@dataclass(frozen=True, slots=True)
class HeldPart:
    """A part of the model: layers `first` up to `end`, with some experts of each."""

    first: int
    end: int
    embedding: bool
    head: bool
    experts: range

    def holds(self, unit: Unit, *, tied: bool) -> bool:
        """Whether a tensor of the full set is in it. A head that is the embedding holds that."""
        if unit.layer is not None:
            here = self.first <= unit.layer < self.end
            return here and (unit.expert is None or unit.expert in self.experts)
        if unit.ours.startswith("embedding"):
            return self.embedding or (self.head and tied)
        return self.head


def full_set(model: ModelSpec, dtype: torch.dtype) -> tuple[Unit, ...]:
    """Every tensor of a model in the order of its layers; parameters have this type."""
    found: list[Unit] = []
    for whole in tensors(model):
        own = torch.float32 if whole.name.endswith(_BIAS) else dtype
        by_expert: dict[int | None, list[Rows]] = {}
        for rows in whole.parts:
            by_expert.setdefault(rows.expert, []).append(rows)
        for expert, parts in by_expert.items():
            shape = whole.shape if expert is None else whole.shape[1:]
            name = unit_name(whole.name, expert)
            found.append(Unit(name, whole.name, expert, shape, own, tuple(parts)))
    return tuple(found)


def unit_name(ours: str, expert: int | None) -> str:
    """What a parameter, or one expert of it, is called on its way."""
    return ours if expert is None else f"{ours}[{expert}]"


def values(parts: Iterable[Transformer]) -> dict[str, Tensor]:
    """The tensors of the full set that parts of a model hold, as views and by name."""
    found: dict[str, Tensor] = {}
    for model in parts:
        first = model.part.first_expert(model.spec)
        for ours, tensor in model.state_dict().items():
            if not is_expert(ours):
                found[ours] = tensor
                continue
            for index, matrix in enumerate(tensor):
                found[unit_name(ours, first + index)] = matrix
    return found


def held_by(model: ModelSpec, mesh: Mesh, rank: int) -> tuple[HeldPart, ...]:
    """The parts of the model that a rank of the trainer holds, one per chunk."""
    parts, chunks = cut(model, mesh.spec), mesh.chunk_map
    experts = _experts(model, mesh.expert_index(rank), mesh.spec.expert)
    return tuple(
        HeldPart(
            *parts[chunks.part_of[chunk]],
            embedding=chunks.before[chunk] is None,
            head=chunks.after[chunk] is None,
            experts=experts,
        )
        for chunk, stage in enumerate(chunks.stage_of)
        if stage == mesh.stage(rank)
    )


def holders(units: Sequence[Unit], model: ModelSpec, mesh: Mesh) -> Mapping[str, tuple[int, ...]]:
    """For every tensor the ranks of the trainer that hold it: replicas hold the same."""
    every = [held_by(model, mesh, rank) for rank in range(mesh.ranks)]
    tied = model.tied_embeddings
    return {
        unit.name: tuple(
            rank
            for rank, parts in enumerate(every)
            if any(part.holds(unit, tied=tied) for part in parts)
        )
        for unit in units
    }


def _experts(model: ModelSpec, index: int, ranks: int) -> range:
    own = model.moe.experts // ranks if model.moe else 0
    return range(index * own, (index + 1) * own)
