"""Memory policy: what is kept on the device, computed again, kept in fewer bytes, or sent to host
memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from twin.errors import Problem
from twin.spec.base import Flag, Spec

Recompute = Literal[
    "full",
    "attention_core",
    "norms",
    "swiglu",
    "mla_up",
    "moe_down",
    "moe",
    "alternate_products",
    "all_but_qkv",
]
Fp8Store = Literal["moe_up_input", "swiglu_input"]
OffloadedActivations = Literal[
    "activations",
    "attention_norm_input",
    "qkv_input",
    "attention_core",
    "attention_out_input",
    "ffn_norm_input",
    "moe_up_input",
    "moe_swiglu_input",
]
_ACTIVATIONS: tuple[OffloadedActivations, ...] = get_args(OffloadedActivations)
Offload = Literal[OffloadedActivations, "optimizer", "optimizer_dense", "optimizer_expert"]


class StagePolicySpec(Spec):
    """How one stage, or one of its chunks, keeps activations; null: as `memory` says for all."""

    recompute: tuple[Recompute, ...] | None = None
    """what its backward pass computes again"""
    fp8_store: tuple[Fp8Store, ...] | None = None
    """what it keeps in FP8"""
    offload: tuple[OffloadedActivations, ...] | None = None
    """which of its activations wait in host memory"""


class MemorySpec(Spec):
    """Choices that combine. `recompute` and `fp8_store` follow Kimi K2's report
    (arXiv:2507.20534, section 2.4): norms, SwiGLU, MLA up-projections and MoE down-projections run
    again; inputs of MoE up-projections and of SwiGLU wait in FP8-E4M3 with an fp32 scale per 128
    numbers. `attention_core` is the part of attention between the projections (Korthikanti et al.
    2022, section 4.2), `full` every layer, `moe` the experts' part of it with its exchanges, and
    `alternate_products` all but the attention core and every first of two matrix products, as
    torchtitan's selective checkpointing per op; `all_but_qkv` all but the projections to queries,
    keys and values (MaxText)."""

    recompute: tuple[Recompute, ...] = ()
    """what the backward pass computes again; empty: all is kept"""
    fp8_store: tuple[Fp8Store, ...] = ()
    """kept in FP8 with block scales instead of bf16 until the backward"""
    offload: tuple[Offload, ...] = ()
    """kept in host memory: activations between forward and backward (all, or those that the named
    part of a layer keeps), optimizer states (all, or those of dense weights or of experts) between
    steps"""
    optimizer_update: Literal["device", "host"] = "device"
    """where offloaded states are updated: device streams them through the GPU and back; host sends
    gradients down and new weights up"""

    by_stage: Literal["auto", "auto_by_chunk"] | tuple[StagePolicySpec, ...] | None = None
    """policies of activations that differ: one per pipeline stage, or one per chunk in the order of
    `parallel.layers`; auto: each stage does no more of the above than its own memory asks for, and
    each chunk where the software can; auto_by_chunk: each chunk, whatever the software can; null:
    all stages do the same"""
    fully_shard: Flag = False
    """zero 3 as PyTorch's fully_shard (FSDP2) does it: sharded parameters are fp32 and the
    optimizer's own, with no bf16 copy beside them; what is gathered arrives in one tensor and is
    copied into parameters, and gradients are bf16 until they are reduced"""

    @property
    def activations_on_host(self) -> tuple[OffloadedActivations, ...]:
        """Names of the activations that wait in host memory."""
        return tuple(name for name in _ACTIVATIONS if name in self.offload)

    @property
    def written(self) -> tuple[StagePolicySpec, ...] | None:
        """The policies of stages, where somebody wrote them."""
        return None if isinstance(self.by_stage, str) else self.by_stage

    @property
    def as_everywhere(self) -> MemorySpec:
        """The policy of stages that do nothing differently."""
        return self.model_copy(update={"by_stage": None})

    def obstacles(self, stages: int, chunks: int) -> list[Problem]:
        """What is wrong with `by_stage` for a pipeline of so many stages and chunks."""
        if self.written is None or len(self.written) in (stages, chunks):
            return []
        message = f"by_stage has {len(self.written)} entries for {stages} stages, {chunks} chunks"
        hint = f"write one policy per stage ({stages}) or per chunk ({chunks})"
        return [Problem("TW129", "memory.by_stage", message, hint)]

    def of_chunks(self, stage_of: Sequence[int]) -> tuple[MemorySpec, ...]:
        """The policy of every chunk, from the stage of each; the same policy is one object."""
        plain = self.as_everywhere
        if self.written is None:
            return (plain,) * len(stage_of)
        per_chunk = len(self.written) == len(stage_of)
        own = [plain.as_stage(one) for one in self.written]
        return tuple(own[chunk if per_chunk else stage] for chunk, stage in enumerate(stage_of))

    def as_stage(self, stage: StagePolicySpec) -> MemorySpec:
        """This policy with what a stage does differently."""
        states = tuple(one for one in self.offload if one not in self.activations_on_host)
        changed = stage.model_dump(exclude_none=True)
        if stage.offload is not None:
            changed["offload"] = (*stage.offload, *states)
        return self.model_copy(update=changed)

    @property
    def states_on_host(self) -> frozenset[Literal["dense", "expert"]]:
        """Whose optimizer states are in host memory: of dense weights, of experts."""
        kinds: tuple[Literal["dense", "expert"], ...] = ("dense", "expert")
        named = self.offload
        return frozenset(
            kind for kind in kinds if "optimizer" in named or f"optimizer_{kind}" in named
        )
