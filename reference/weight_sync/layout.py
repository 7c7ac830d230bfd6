"""The layout of the inference ranks: instances, each cut by pipeline stages, experts and matrices.

The ranks of a stage share its experts, all of them; each dense matrix is shared by `tensor` of them
(`twin.spec.weight_update.ReplicaSpec`). Norms, routers and low-rank projections are whole on each.

How an update is done; the words are those of a scenario's `weight_update`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field

from reference.ending import section_of
from reference.weight_sync.units import HeldPart
from twin.errors import Problem, UsageError
from twin.spec.base import Bytes, BytesPerSecond, Count, Duration, Spec
from twin.spec.model import LatentAttention, ModelSpec

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
