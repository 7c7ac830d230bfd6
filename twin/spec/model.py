"""What a model is: the architecture numbers from which parameters, FLOP, bytes and activations are
counted.

The reference trainer reads the same file, so the fields follow the names of the released
configurations.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from twin.spec.base import Count, Flag, Spec, Whole


class LatentAttention(Spec):
    """Multi-head latent attention (DeepSeek-V2, section 2.1): low-rank queries and keys-values,
    split rotary part."""

    kind: Literal["mla"]
    heads: Count
    q_lora_rank: Count | None = Field(default=None, description="null: queries at full rank")
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: Whole
    v_head_dim: Count


class GroupedAttention(Spec):
    """Multi-head attention; grouped-query when `kv_heads` is smaller than `heads`."""

    kind: Literal["gqa"]
    heads: Count
    kv_heads: Count
    head_dim: Count
    bias: Flag = False


class DenseFfn(Spec):
    """A dense feed-forward block: `swiglu` has three matrices, `gelu` two."""

    kind: Literal["swiglu", "gelu"]
    width: Count
    bias: Flag = False


class Moe(Spec):
    """Routed experts (SwiGLU) with optional shared experts; the first layers may stay dense."""

    experts: Count
    top_k: Count = Field(description="experts that each token visits")
    width: Count = Field(description="hidden width of one expert")
    shared_experts: Whole = 0
    first_dense_layers: Whole = 0
    correction_bias: Flag = False


class ModelSpec(Spec):
    """A decoder-only transformer."""

    name: str
    layers: Annotated[Count, Field(le=10_000)]
    hidden: Annotated[Count, Field(le=1_000_000)]
    vocab: Count
    attention: Annotated[LatentAttention | GroupedAttention, Field(discriminator="kind")]
    ffn: DenseFfn
    moe: Moe | None = None
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    learned_positions: Whole = 0
    dropout: Flag = False
    tied_embeddings: Flag = False
    mtp_layers: Annotated[Whole, Field(le=10_000)] = 0
