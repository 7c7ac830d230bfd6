"""What a model is: the architecture numbers from which parameters, FLOP, bytes and activations are counted.

The reference trainer reads the same file, so the fields follow the names of the released configurations.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from twin.spec.base import Spec


class LatentAttention(Spec):
    """Multi-head latent attention (DeepSeek-V2, section 2.1): low-rank queries and keys-values, split rotary part."""

    kind: Literal["mla"]
    heads: int = Field(gt=0)
    q_lora_rank: int | None = Field(default=None, gt=0)
    kv_lora_rank: int = Field(gt=0)
    qk_nope_head_dim: int = Field(gt=0)
    qk_rope_head_dim: int = Field(ge=0)
    v_head_dim: int = Field(gt=0)


class GroupedAttention(Spec):
    """Multi-head attention; grouped-query when `kv_heads` is smaller than `heads`."""

    kind: Literal["gqa"]
    heads: int = Field(gt=0)
    kv_heads: int = Field(gt=0)
    head_dim: int = Field(gt=0)
    bias: bool = False


class DenseFfn(Spec):
    """A dense feed-forward block: `swiglu` has three matrices, `gelu` two."""

    kind: Literal["swiglu", "gelu"]
    width: int = Field(gt=0)
    bias: bool = False


class Moe(Spec):
    """Routed experts (SwiGLU) with optional shared experts; the first layers may stay dense."""

    experts: int = Field(gt=0)
    top_k: int = Field(gt=0)
    width: int = Field(gt=0)
    shared_experts: int = Field(default=0, ge=0)
    first_dense_layers: int = Field(default=0, ge=0)
    correction_bias: bool = False


class ModelSpec(Spec):
    """A decoder-only transformer."""

    name: str
    layers: int = Field(gt=0)
    hidden: int = Field(gt=0)
    vocab: int = Field(gt=0)
    attention: Annotated[LatentAttention | GroupedAttention, Field(discriminator="kind")]
    ffn: DenseFfn
    moe: Moe | None = None
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    learned_positions: int = Field(default=0, ge=0)
    dropout: bool = False
    tied_embeddings: bool = False
    mtp_layers: int = Field(default=0, ge=0)
