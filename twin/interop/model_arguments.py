"""A model as Megatron-LM's arguments: when a plan goes out, and where a file leaves its model to a
recipe or a tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from twin.interop.importing.megatron.hybrid import hybrid_options
from twin.interop.importing.megatron.launch_file import Argument
from twin.interop.importing.megatron.model import pattern_of
from twin.spec.model import GroupedAttention, LatentAttention, ModelSpec, Moe

_DROPOUT = "0.1"
"""Megatron-LM's default probability."""

Value: TypeAlias = int | float | str | tuple[str, ...] | None
Options: TypeAlias = dict[str, Value]
"""Values by option: False and None are left out, True is a switch, tuples are several values."""


def model_arguments(model: ModelSpec) -> tuple[Argument, ...]:
    """The arguments of a model alone; no sequence says how far positions reach."""
    found = tuple(arguments(model_options(model, 1)))
    if model.learned_positions:
        return found
    return tuple(one for one in found if one.name != "max-position-embeddings")


def arguments(options: Options) -> Iterator[Argument]:
    """The options as arguments; those that are off or unsaid are left out."""
    for name, value in options.items():
        if value is None or value is False:
            continue
        values = value if isinstance(value, tuple) else () if value is True else (str(value),)
        yield Argument(name, values)


def model_options(model: ModelSpec, sequence: int) -> Options:
    """The architecture; positions reach at least over a sequence."""
    dropout = _DROPOUT if model.dropout else "0.0"
    return {
        "num-layers": model.layers,
        "hidden-size": model.hidden,
        "ffn-hidden-size": model.ffn.width,
        "squared-relu": model.ffn.kind == "squared_relu",
        "swiglu": model.ffn.kind == "swiglu",
        "padded-vocab-size": model.vocab,
        "untie-embeddings-and-output-weights": not model.tied_embeddings,
        "normalization": "RMSNorm" if model.norm == "rmsnorm" else "LayerNorm",
        "norm-epsilon": model.norm_eps,
        "disable-bias-linear": not _biased(model),
        "attention-dropout": dropout,
        "hidden-dropout": dropout,
        "mtp-num-layers": model.mtp_layers or None,
        "num-attention-heads": model.attention.heads,
        **_attention(model),
        **_positions(model, sequence),
        **(_experts(model.moe, model.layers) if model.moe else {}),
        **(hybrid_options(model) if model.pattern else {}),
    }


def _biased(model: ModelSpec) -> bool:
    """Whether all linear layers have biases: Megatron-LM has one switch for them."""
    attention = model.attention
    whole = isinstance(attention, GroupedAttention) and attention.bias and model.ffn.bias
    return whole and (model.moe is None or model.moe.bias)


def _attention(model: ModelSpec) -> Options:
    attention = model.attention
    if isinstance(attention, LatentAttention):
        return {
            "multi-latent-attention": True,
            "q-lora-rank": attention.q_lora_rank,
            "kv-lora-rank": attention.kv_lora_rank,
            "qk-head-dim": attention.qk_nope_head_dim,
            "qk-pos-emb-head-dim": attention.qk_rope_head_dim,
            "v-head-dim": attention.v_head_dim,
            "kv-channels": attention.qk_nope_head_dim,
            "qk-layernorm": True,  # compressed queries and keys are normed
        }
    shared = attention.kv_heads != attention.heads
    return {
        "group-query-attention": shared,
        "num-query-groups": attention.kv_heads if shared else None,
        "kv-channels": attention.head_dim,
        "add-qkv-bias": attention.qkv_bias and not _biased(model),
        "qk-layernorm": attention.qk_norm,
        "softmax-type": "learnable" if attention.sinks else None,
        "window-size": f"{attention.window - 1},0" if attention.window else None,
        "window-attn-skip-freq": attention.full_every if attention.window else None,
    }


def _positions(model: ModelSpec, sequence: int) -> Options:
    if model.learned_positions:
        return {
            "position-embedding-type": "learned_absolute",
            "max-position-embeddings": model.learned_positions,
        }
    found: Options = {
        "position-embedding-type": "rope" if model.rotary else "none",
        "max-position-embeddings": sequence,
        "rotary-base": round(model.rope.theta),
    }
    yarn = model.rope.yarn
    if not isinstance(model.attention, LatentAttention):
        return found
    if yarn is None:
        return found | {"rope-type": "rope"}
    return found | {
        "rope-type": "yarn",
        "rotary-scaling-factor": yarn.factor,
        "mscale": yarn.mscale,
        "mscale-all-dim": repr(yarn.mscale_all_dim),
    }


def _experts(moe: Moe, layers: int) -> Options:
    grouped = moe.groups > 1
    shared = moe.shared_width or moe.shared_experts * moe.width
    return {
        "num-experts": moe.experts,
        "moe-ffn-hidden-size": moe.width,
        "moe-router-topk": moe.top_k,
        "moe-layer-freq": pattern_of(moe.first_dense_layers, moe.every, layers),
        "moe-latent-size": moe.latent,
        "moe-router-num-groups": moe.groups if grouped else None,
        "moe-router-group-topk": moe.top_groups if grouped else None,
        "moe-shared-expert-intermediate-size": shared if moe.shared_experts else None,
        "moe-shared-expert-gate": moe.shared_gate,
        "moe-router-score-function": moe.scores,
        # The softmax of all logits, of which the chosen do not add up to 1.
        "moe-router-pre-softmax": moe.scores == "softmax" and not moe.normalize_weights,
        "moe-router-enable-expert-bias": moe.correction_bias,
        "activation-func-clamp-value": moe.clamp,
        "moe-router-topk-scaling-factor": None if moe.routed_scale == 1 else moe.routed_scale,
    }
