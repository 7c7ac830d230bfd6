"""A model as Megatron-LM's arguments; `twin.interop.export.megatron.arguments` says of which
version."""

from __future__ import annotations

from collections.abc import Iterator

from twin.interop.importing.megatron import Argument
from twin.interop.importing.megatron.patterns import pattern_of
from twin.spec.model import GroupedAttention, LatentAttention, ModelSpec, Moe

_DROPOUT = "0.1"
"""Megatron-LM's default probability."""


def model_arguments(model: ModelSpec, sequence: int) -> tuple[Argument, ...]:
    """The arguments of the architecture; positions reach at least over a sequence."""
    return (
        *_sizes(model),
        *_attention(model),
        *_positions(model, sequence),
        *(_experts(model.moe, model.layers) if model.moe else ()),
    )


def _sizes(model: ModelSpec) -> Iterator[Argument]:
    yield _say("num-layers", model.layers)
    yield _say("hidden-size", model.hidden)
    yield _say("ffn-hidden-size", model.ffn.width)
    if model.ffn.kind != "gelu":
        yield _say("squared-relu" if model.ffn.kind == "squared_relu" else "swiglu")
    yield _say("padded-vocab-size", model.vocab)
    if not model.tied_embeddings:
        yield _say("untie-embeddings-and-output-weights")
    yield _say("normalization", "RMSNorm" if model.norm == "rmsnorm" else "LayerNorm")
    yield _say("norm-epsilon", repr(model.norm_eps))
    if not _biased(model):
        yield _say("disable-bias-linear")
    for where in ("attention", "hidden"):
        yield _say(f"{where}-dropout", _DROPOUT if model.dropout else "0.0")
    if model.mtp_layers:
        yield _say("mtp-num-layers", model.mtp_layers)


def _biased(model: ModelSpec) -> bool:
    """Whether all linear layers have biases: Megatron-LM has one switch for them."""
    attention = model.attention
    whole = isinstance(attention, GroupedAttention) and attention.bias and model.ffn.bias
    return whole and (model.moe is None or model.moe.bias)


def _attention(model: ModelSpec) -> Iterator[Argument]:
    attention = model.attention
    yield _say("num-attention-heads", attention.heads)
    if isinstance(attention, LatentAttention):
        yield from _latent(attention)
        return
    if attention.kv_heads != attention.heads:
        yield _say("group-query-attention")
        yield _say("num-query-groups", attention.kv_heads)
    yield _say("kv-channels", attention.head_dim)
    if attention.qkv_bias and not _biased(model):
        yield _say("add-qkv-bias")
    if attention.qk_norm:
        yield _say("qk-layernorm")
    if attention.sinks:
        yield _say("softmax-type", "learnable")


def _latent(attention: LatentAttention) -> Iterator[Argument]:
    yield _say("multi-latent-attention")
    if attention.q_lora_rank is not None:
        yield _say("q-lora-rank", attention.q_lora_rank)
    yield _say("kv-lora-rank", attention.kv_lora_rank)
    yield _say("qk-head-dim", attention.qk_nope_head_dim)
    yield _say("qk-pos-emb-head-dim", attention.qk_rope_head_dim)
    yield _say("v-head-dim", attention.v_head_dim)
    yield _say("kv-channels", attention.qk_nope_head_dim)
    yield _say("qk-layernorm")  # compressed queries and keys are normed


def _positions(model: ModelSpec, sequence: int) -> Iterator[Argument]:
    if model.learned_positions:
        yield _say("position-embedding-type", "learned_absolute")
        yield _say("max-position-embeddings", model.learned_positions)
        return
    yield _say("position-embedding-type", "rope" if model.rotary else "none")
    yield _say("max-position-embeddings", sequence)
    yield _say("rotary-base", round(model.rope.theta))
    if not isinstance(model.attention, LatentAttention):
        return
    yarn = model.rope.yarn
    yield _say("rope-type", "rope" if yarn is None else "yarn")
    if yarn is not None:
        yield _say("rotary-scaling-factor", repr(yarn.factor))
        yield _say("mscale", repr(yarn.mscale))
        yield _say("mscale-all-dim", repr(yarn.mscale_all_dim))


def _experts(moe: Moe, layers: int) -> Iterator[Argument]:
    yield _say("num-experts", moe.experts)
    yield _say("moe-ffn-hidden-size", moe.width)
    yield _say("moe-router-topk", moe.top_k)
    pattern = pattern_of(moe.first_dense_layers, moe.every, layers)
    if pattern is not None:
        yield _say("moe-layer-freq", pattern)
    if moe.groups > 1:
        yield _say("moe-router-num-groups", moe.groups)
        yield _say("moe-router-group-topk", moe.top_groups)
    if moe.shared_experts:
        width = moe.shared_width or moe.shared_experts * moe.width
        yield _say("moe-shared-expert-intermediate-size", width)
    if moe.shared_gate:
        yield _say("moe-shared-expert-gate")
    yield from _router(moe)


def _router(moe: Moe) -> Iterator[Argument]:
    yield _say("moe-router-score-function", moe.scores)
    if moe.scores == "softmax" and not moe.normalize_weights:
        # The softmax of all logits, of which the chosen do not add up to 1.
        yield _say("moe-router-pre-softmax")
    if moe.correction_bias:
        yield _say("moe-router-enable-expert-bias")
    if moe.routed_scale != 1:
        yield _say("moe-router-topk-scaling-factor", repr(moe.routed_scale))


def _say(name: str, *values: object) -> Argument:
    return Argument(name, tuple(str(value) for value in values))
