"""Memory policy: what is kept on the device, computed again, kept in fewer bytes, or sent to host
memory."""

from __future__ import annotations

from typing import Literal, get_args

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

    fully_shard: Flag = False
    """zero 3 as PyTorch's fully_shard (FSDP2) does it: sharded parameters are fp32 and the
    optimizer's own, with no bf16 copy beside them; what is gathered arrives in one tensor and is
    copied into parameters, and gradients are bf16 until they are reduced"""

    @property
    def activations_on_host(self) -> tuple[OffloadedActivations, ...]:
        """Names of the activations that wait in host memory."""
        return tuple(name for name in _ACTIVATIONS if name in self.offload)

    @property
    def states_on_host(self) -> frozenset[Literal["dense", "expert"]]:
        """Whose optimizer states are in host memory: of dense weights, of experts."""
        kinds: tuple[Literal["dense", "expert"], ...] = ("dense", "expert")
        named = self.offload
        return frozenset(
            kind for kind in kinds if "optimizer" in named or f"optimizer_{kind}" in named
        )
