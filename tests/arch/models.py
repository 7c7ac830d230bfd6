"""Models that the tests of the arithmetic use: the catalog's, and small ones of every block."""

from twin.loading import catalog_parts, load_part
from twin.spec.model import DenseFfn, GroupedAttention, Indexer, LatentAttention, ModelSpec, Moe

NAMES = sorted(catalog_parts("models"))


def catalog(name: str) -> ModelSpec:
    """A catalog model."""
    return load_part("models", name).spec


def gpt(layers: int, hidden: int, heads: int, vocab: int = 51200, positions: int = 2048):
    """A GPT as Megatron-LM trains it: LayerNorm, GeLU, biases, dropout, tied embeddings."""
    head_dim = hidden // heads
    return ModelSpec(
        name="gpt",
        layers=layers,
        hidden=hidden,
        vocab=vocab,
        attention=GroupedAttention(
            kind="gqa", heads=heads, kv_heads=heads, head_dim=head_dim, bias=True
        ),
        ffn=DenseFfn(kind="gelu", width=4 * hidden, bias=True),
        norm="layernorm",
        learned_positions=positions,
        dropout=True,
        tied_embeddings=True,
    )


TINY_GPT = gpt(layers=2, hidden=32, heads=4, vocab=96, positions=16)

TINY_MOE = ModelSpec(
    name="tiny-moe",
    layers=3,
    hidden=48,
    vocab=96,
    attention=LatentAttention(
        kind="mla",
        heads=4,
        q_lora_rank=24,
        kv_lora_rank=16,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
        v_head_dim=12,
    ),
    ffn=DenseFfn(kind="swiglu", width=80),
    moe=Moe(
        experts=8,
        top_k=2,
        width=20,
        shared_experts=1,
        first_dense_layers=1,
        correction_bias=True,
    ),
)

TINY_GROUPED = ModelSpec(
    name="tiny-grouped",
    layers=2,
    hidden=32,
    vocab=96,
    attention=GroupedAttention(kind="gqa", heads=8, kv_heads=4, head_dim=8),
    ffn=DenseFfn(kind="swiglu", width=64),
)

TINY_SHARED = ModelSpec(
    name="tiny-shared",
    layers=4,
    hidden=32,
    vocab=96,
    attention=GroupedAttention(
        kind="gqa", heads=8, kv_heads=4, head_dim=12, qkv_bias=True, qk_norm=True
    ),
    ffn=DenseFfn(kind="squared_relu", width=64),
    moe=Moe(
        experts=8,
        top_k=2,
        width=20,
        shared_experts=1,
        shared_width=28,
        shared_gate=True,
        every=2,
        clamp=7.0,
    ),
    norm="layernorm",
    rotary=False,
    embedding_norm=True,
)

TINY_SINKS = ModelSpec(
    name="tiny-sinks",
    layers=2,
    hidden=32,
    vocab=96,
    attention=GroupedAttention(kind="gqa", heads=8, kv_heads=4, head_dim=8, bias=True, sinks=True),
    ffn=DenseFfn(kind="swiglu", width=64),
    moe=Moe(experts=8, top_k=2, width=20, bias=True),
)

TINY_GATED = TINY_GROUPED.model_copy(
    update={
        "name": "tiny-gated",
        "attention": TINY_GROUPED.attention.model_copy(update={"gated": True, "qk_norm": True}),
    }
)

TINY_SPARSE = TINY_MOE.model_copy(
    update={
        "name": "tiny-sparse",
        "attention": TINY_MOE.attention.model_copy(
            update={"indexer": Indexer(heads=2, head_dim=8, top_k=4)}
        ),
    }
)
"""With a module of its own in its test."""

TINY_MTP = TINY_MOE.model_copy(update={"name": "tiny-mtp", "mtp_layers": 2})

TINY_BEHIND = TINY_GPT.model_copy(update={"name": "tiny-behind", "norms_behind": True})

TINY = {
    model.name: model
    for model in (
        TINY_GPT,
        TINY_MOE,
        TINY_GROUPED,
        TINY_SHARED,
        TINY_SINKS,
        TINY_GATED,
        TINY_MTP,
        TINY_BEHIND,
    )
}
