"""What travels to which inference ranks, and in which buckets.

The layout of the inference ranks: instances, each cut by pipeline stages, experts and matrices.

The ranks of a stage share its experts, all of them; each dense matrix is shared by `tensor` of them
(`twin.spec.weight_update.ReplicaSpec`). Norms, routers and low-rank projections are whole on each.

How an update is done; the words are those of a scenario's `weight_update`.

The full set: every tensor of a model as it travels, and which of them a rank holds.

A stack of experts travels as one tensor per expert, so that no layout of the trainer cuts a
travelling tensor: whoever holds a part of the model holds whole tensors of the full set.

Who owns which tensors, and the buckets in which they travel; the words and rules of
`twin.kinds.weight_update.checkpoint`, which simulates this.

A bucket holds whole tensors of one owner. Its size is the limit, or the largest tensor where that
is larger, and at most a third of the free memory: one buffer takes the copy from the host, the
halves of another are filled and reloaded in turn. Where a third does not hold the largest tensor,
the first buffer is left out, and the other two take half of the memory each
(MoonshotAI/checkpoint-engine, `ps.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import torch
from pydantic import Field
from torch import Tensor

from reference.convert.config import ReleasedPart as Rows
from reference.convert.config import tensors
from reference.ending import section_of
from reference.model import Transformer
from reference.optim.blocks import is_expert
from reference.parallel.mesh import Mesh
from reference.parallel.world import cut
from twin.errors import Problem, UsageError
from twin.spec.base import Bytes, BytesPerSecond, Count, Duration, Spec
from twin.spec.model import LatentAttention, ModelSpec
from twin.units import format_quantity

_BIAS = "router.bias"
"""fp32 whatever the run's precision is (`reference.model.moe`)."""


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
    """The released tensors that follow one another in it (`reference.convert.config`)."""

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


Names = Literal["fused", "split"]
"""`fused`: the reference's, gate over up in one tensor and experts in stacks; `split`: the released
ones, one tensor each."""


class LayoutSpec(Spec):
    """How the inference engines are laid out over ranks."""

    replicas: Count = 1
    """instances of the engine, each a whole model"""
    pipeline: Count = 1
    """pipeline stages of an instance"""
    expert: Count = 1
    """ranks of a stage: they share its experts"""
    tensor: Count = 1
    """ranks of a stage that share each dense matrix"""
    names: Names = "fused"
    """fused: the reference's tensors; split: the released ones"""

    @property
    def ranks(self) -> int:
        """Of all instances."""
        return self.replicas * self.pipeline * self.expert


@dataclass(frozen=True, slots=True)
class RankLayout:
    """What one inference rank holds: a part of the model, and which slice of its dense matrices."""

    held: HeldPart
    slice: int
    slices: int
    names: Names


def read_layout(text: str) -> LayoutSpec:
    """The layout that `replicas=2,expert=4` says. Raises UsageError TW620."""
    fields: dict[str, object] = {}
    for word in filter(None, text.split(",")):
        name, _, value = word.partition("=")
        fields[name.strip()] = int(value) if value.strip().isdigit() else value.strip()
    known = ", ".join(LayoutSpec.model_fields)
    return section_of(LayoutSpec, fields, "TW620", "--to ", f"known: {known}")


def seats(layout: LayoutSpec, model: ModelSpec) -> tuple[RankLayout, ...]:
    """What each inference rank holds; ranks of a stage are neighbours, then stages, then instances.

    Raises UsageError TW621 with all that the model cannot be cut into.
    """
    if problems := _problems(layout, model):
        raise UsageError(problems)
    own = model.moe.experts // layout.expert if model.moe else 0
    found: list[RankLayout] = []
    for rank in range(layout.ranks):
        stage, place = rank // layout.expert % layout.pipeline, rank % layout.expert
        held = HeldPart(
            *_layers(model.layers, layout.pipeline, stage),
            embedding=stage == 0,
            head=stage == layout.pipeline - 1,
            experts=range(place * own, (place + 1) * own),
        )
        found.append(RankLayout(held, place % layout.tensor, layout.tensor, layout.names))
    return tuple(found)


def _layers(layers: int, stages: int, stage: int) -> tuple[int, int]:
    """First layer and the one behind the last: as even as can be, the first ones one more."""
    each, more = divmod(layers, stages)
    first = stage * each + min(stage, more)
    return first, first + each + (stage < more)


def _problems(layout: LayoutSpec, model: ModelSpec) -> list[Problem]:
    counts = {
        "expert": (model.moe.experts if model.moe else layout.expert, "experts"),
        "tensor": (layout.expert, "ranks of a stage"),
    }
    found = [
        _divides(field, getattr(layout, field), whole, what)
        for field, (whole, what) in counts.items()
        if whole % getattr(layout, field)
    ]
    if layout.pipeline > model.layers:
        message = f"{model.layers} layers cannot be cut into {layout.pipeline} stages"
        found.append(Problem("TW621", "--to pipeline", message, f"at most {model.layers}"))
    attention = model.attention
    dense = {"attention heads": attention.heads, "words": model.vocab, "FFN rows": model.ffn.width}
    if not isinstance(attention, LatentAttention):
        dense["key-value heads"] = attention.kv_heads
    if model.moe and model.moe.shared_experts:
        moe = model.moe
        dense["shared experts' rows"] = moe.shared_width or moe.width * moe.shared_experts
    found += [
        _divides("tensor", layout.tensor, whole, what)
        for what, whole in dense.items()
        if whole % layout.tensor
    ]
    return found


def _divides(field: str, ranks: int, whole: int, what: str) -> Problem:
    message = f"{whole} {what} cannot be shared by {ranks} ranks"
    below = max(count for count in range(1, ranks + 1) if whole % count == 0)
    return Problem("TW621", f"--to {field}", message, f"{field}={below} divides them")


class SyncSpec(Spec):
    """One update's pipeline. Sizes are OURS, for small models on a CPU: checkpoint-engine's buckets
    are 8 GiB."""

    stages: Literal["two", "three"] = "two"
    """two: all owners copy a bucket from the host, then broadcasts run beside reloads; three:
    copies from the host run beside both"""
    wire: Literal["direct", "collective"] = "direct"
    """direct: an owner sends to each receiver; collective: a broadcast of all ranks"""
    bucket: Annotated[Bytes, Field(gt=0)] = 8e6
    """limit the bytes of one bucket, unless a tensor is larger"""
    free_memory: Annotated[Bytes, Field(gt=0)] = 96e6
    """limit the memory for the buffers of an update, on each rank"""
    patience: Annotated[Duration, Field(gt=0)] = 60.0
    """count a rank as gone after this time without a word"""
    rate: BytesPerSecond | None = None
    """run ranks in network namespaces with links of this rate (needs root); null: loopback"""


SYNC_OPTIONS: Final = ("wire", "bucket", "free_memory", "patience", "rate")
"""Fields that are options of the command."""


ALIGNED: Final = 64
"""Bytes; tensors begin at multiples of them, so that any type may be viewed in place."""


@dataclass(frozen=True, slots=True)
class Buffers:
    """Bytes of one buffer, and how many there are: three, or two without one for host copies."""

    bytes: int
    count: int


@dataclass(frozen=True, slots=True)
class WeightBucket:
    """Whole tensors of one owner that travel together."""

    owner: int
    round: int
    start: int
    """Where it begins in its owner's host memory (bytes)."""
    bytes: int
    """With the gaps between its tensors."""
    units: tuple[tuple[Unit, int], ...]
    """Each with its place in the bucket (bytes)."""


def padded(unit: Unit) -> int:
    """Bytes that a tensor takes, up to where the next one may begin."""
    return -(-unit.bytes // ALIGNED) * ALIGNED


def shares(
    units: Sequence[Unit], holders: Mapping[str, Sequence[int]], owners: int
) -> tuple[tuple[Unit, ...], ...]:
    """The tensors of each owner, one of those that hold them: the fullest owner has as few bytes as
    dealing the largest tensors first makes it. OURS: checkpoint-engine leaves it to the trainer."""
    filled = [0] * owners
    dealt: dict[str, int] = {}
    for unit in sorted(units, key=lambda each: -padded(each)):  # stable: equal ones in order
        owner = min(holders[unit.name], key=lambda rank: (filled[rank], rank))
        filled[owner] += padded(unit)
        dealt[unit.name] = owner
    return tuple(
        tuple(unit for unit in units if dealt[unit.name] == owner) for owner in range(owners)
    )


def buffers(free: float, limit: float, largest: int) -> Buffers:
    """The buffers that fit in `free` bytes. Raises UsageError TW622 where they do not hold the
    largest tensor."""
    count = 3 if largest <= free // 3 else 2
    found = Buffers(int(min(max(limit, largest), free // count)), count)
    if found.bytes < largest:
        shown = format_quantity(largest, "bytes", digits=4)
        message = f"the largest tensor has {shown}, and two buffers do not fit in "
        message += format_quantity(free, "bytes", digits=4)
        least = format_quantity(2 * largest, "bytes", digits=4)
        raise UsageError([Problem("TW622", "free_memory", message, f"free {least} or more")])
    return found


def buckets(owned: Sequence[Sequence[Unit]], limit: int) -> tuple[WeightBucket, ...]:
    """All buckets in the order in which they travel: the first one of every owner, then the second
    ones, and so on. `limit` holds every tensor."""
    found = [bucket for owner, own in enumerate(owned) for bucket in _packed(owner, own, limit)]
    return tuple(sorted(found, key=lambda bucket: (bucket.round, bucket.owner)))


def _packed(owner: int, own: Iterable[Unit], limit: int) -> list[WeightBucket]:
    found: list[WeightBucket] = []
    units: list[tuple[Unit, int]] = []
    start = size = 0
    for unit in own:
        if units and size + padded(unit) > limit:
            found.append(WeightBucket(owner, len(found), start, size, tuple(units)))
            start, size, units = start + size, 0, []
        units.append((unit, size))
        size += padded(unit)
    if units:
        found.append(WeightBucket(owner, len(found), start, size, tuple(units)))
    return found


def largest(units: Iterable[Unit]) -> int:
    """Bytes of the largest tensor, with its gap."""
    return max(padded(unit) for unit in units)
