"""Families of Hugging Face configurations that are no plain decoders: their layers differ in how
tokens mix (linear attention or state-space blocks beside attention, windows in turns), or their
experts have words of their own. Defaults are those of the configuration classes in `transformers`,
or of the released code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, cast

from twin.interop.importing.hf_decoder import (
    Family,
    Fields,
    decoder,
    dense,
    feeds_of,
    grouped,
    latent,
    layer_types,
    routed,
    shortest,
)
from twin.interop.importing.keys import MOST, Keys

_MODULE: Final = "the module of the released files that predicts further tokens"


def kimi_linear(keys: Keys) -> Fields:
    """Kimi Linear: latent attention in the layers that `linear_attn_config` lists, from 1, Kimi
    delta attention in the others."""
    heads = keys.count("num_attention_heads")
    keys.must_be("num_key_value_heads", heads, why="latent attention has as many as query heads")
    keys.must_be("attention_bias", False, why="latent attention here has no biases")
    keys.must_be("mla_use_nope", True, why="its latent attention has no positions")
    keys.taken |= {"head_dim", "use_grouped_topk"}
    linear = keys.section("linear_attn_config")
    full: list[int] = linear.get("full_attn_layers", [])
    words = {"linear_attention": "kda", "full_attention": "attention"}
    feeds = feeds_of(keys)
    mixers = layer_types(keys, words) or [
        "attention" if at + 1 in full else "kda" for at in range(len(feeds))
    ]
    return {
        "attention": latent(keys, heads),
        "mixer": {
            "kind": "kda",
            "num_heads": linear.get("num_heads", keys.get("linear_num_heads")),
            "head_dim": linear.get("head_dim", keys.get("linear_head_dim")),
            "conv": linear.get("short_conv_kernel_size", keys.count("linear_conv_kernel_dim", 4)),
        },
        "ffn": dense(keys),
        "moe": {
            "experts": keys.count("num_experts"),
            "top_k": keys.count("num_experts_per_token"),
            "width": keys.count("moe_intermediate_size"),
            "shared_experts": keys.count("num_shared_experts", 0, least=0),
            "groups": keys.count("num_expert_group", 1),
            "top_groups": keys.count("topk_group", 1),
            "correction_bias": True,
            "scores": keys.get("moe_router_activation_func", "sigmoid"),
            "normalize_weights": keys.flag("moe_renormalize", default=True),
            "routed_scale": keys.number("routed_scaling_factor", 1.0),
        },
        "pattern": shortest([f"{a}+{b}" for a, b in zip(mixers, feeds, strict=True)]),
        "rotary": False,
        "mtp_layers": keys.count("num_nextn_predict_layers", 0, least=0),
    }


def qwen3_next(keys: Keys) -> Fields:
    """Qwen3-Next and 3.5: gated delta nets, and gated attention in each n-th layer."""
    layers, every = keys.count("num_hidden_layers"), keys.count("full_attention_interval", 4)
    words = {"linear_attention": "gated_delta", "full_attention": "attention"}
    mixers = layer_types(keys, words) or tuple(
        "gated_delta" if (at + 1) % every else "attention" for at in range(layers)
    )
    feeds = feeds_of(keys)
    keys.must_be("use_sliding_window", False, why="its attention has no windows")
    keys.left_out.append(_MODULE)
    shared = keys.count("shared_expert_intermediate_size", 0, least=0)
    moe = {
        "experts": keys.count("num_experts", 1),
        "top_k": keys.count("num_experts_per_tok", 1),
        "width": keys.count("moe_intermediate_size", 1),
        "normalize_weights": keys.flag("norm_topk_prob", default=True),
        **({"shared_experts": 1, "shared_width": shared, "shared_gate": True} if shared else {}),
    }
    return {
        "attention": grouped(keys, bias=keys.flag("attention_bias"), qk_norm=True, gated=True),
        "mixer": {
            "kind": "gated_delta",
            "key_heads": keys.count("linear_num_key_heads"),
            "value_heads": keys.count("linear_num_value_heads"),
            "key_dim": keys.count("linear_key_head_dim"),
            "value_dim": keys.count("linear_value_head_dim"),
            "conv": keys.count("linear_conv_kernel_dim", 4),
        },
        "ffn": {"kind": "swiglu", "width": keys.count("intermediate_size", 1)},
        **({"moe": moe} if "moe" in feeds else {}),
        "pattern": shortest([f"{mixer}+{feed}" for mixer, feed in zip(mixers, feeds, strict=True)]),
    }


def minimax(keys: Keys) -> Fields:
    """MiniMax-Text-01 and M1: lightning attention, and softmax attention in the layers of which
    `attn_type_list` says 1; experts everywhere."""
    keys.must_be("shared_intermediate_size", 0, why="it has no shared experts")
    keys.must_be("sliding_window", None, why="its attention has no windows")
    found: list[Any] = keys.get("attn_type_list", [])
    kinds = layer_types(keys, {"linear_attention": "lightning", "full_attention": "attention"})
    kinds = kinds or tuple("attention" if one else "lightning" for one in found)
    layers = keys.count("num_hidden_layers")
    if len(kinds) != layers:
        keys.refuse("attn_type_list", f"it has {len(kinds)} layers, and the model {layers}")
    keys.taken |= {
        "postnorm", "rotary_dim", "shared_moe_mode", "layernorm_mlp_alpha", "layernorm_mlp_beta",
        "layernorm_linear_attention_alpha", "layernorm_linear_attention_beta",
        "layernorm_full_attention_alpha", "layernorm_full_attention_beta", "mlp_alpha_factor",
        "linear_attn_alpha_factor", "linear_attn_beta_factor", "full_attn_alpha_factor",
        "full_attn_beta_factor", "mlp_beta_factor",
    }  # fmt: skip
    own = grouped(keys)
    return {
        "attention": own,
        "mixer": {
            "kind": "lightning",
            "num_heads": own["heads"],
            "head_dim": own["head_dim"],
            "chunk": keys.count("block_size", 256),
        },
        "ffn": dense(keys),
        "moe": {
            "experts": keys.count("num_local_experts"),
            "top_k": keys.count("num_experts_per_tok"),
            "width": keys.count("intermediate_size"),
        },
        "pattern": shortest([f"{one}+moe" for one in kinds]),
    }


_LFM2: Final = Family(
    norms="heads",
    tied=True,
    correction=True,
    scores="sigmoid",
    words=MappingProxyType({"conv": "short_conv"}),
)


def lfm2(keys: Keys) -> Fields:
    """LFM2 and LFM2-MoE: short convolutions between gates, and attention in some layers."""
    keys.must_be("conv_bias", False, why="convolutions and their products here have no biases")
    keys.must_be("use_expert_bias", True, why="its router has a correction")
    keys.taken |= {"full_attn_idxs", "block_dim", "conv_dim", "conv_dim_out", "block_ff_dim"}
    found = decoder(keys, _LFM2)
    unit, times = keys.count("block_multiple_of", 256), keys.number("block_ffn_dim_multiplier", 1.0)
    if keys.flag("block_auto_adjust_ff_dim"):
        width = int(times * int(2 * found["ffn"]["width"] / 3))
        found["ffn"]["width"] = -(-width // unit) * unit
    conv = {"width": keys.count("hidden_size"), "conv": keys.count("conv_L_cache", 3)}
    return found | {"mixer": {"kind": "short_conv", **conv}}


_MAMBA: Final = Family(
    words=MappingProxyType(
        {"mamba": "mamba2", "linear_attention": "mamba2", "attention": "attention"}
    ),
)


def mamba_hybrid(keys: Keys) -> Fields:
    """Granite 4 and Bamba: Mamba-2, and attention in some layers, each before a feed-forward block
    or experts. Without experts Granite's shared block is the dense one."""
    keys.must_be("mamba_conv_bias", True, why="the convolution here has a bias")
    keys.must_be("mamba_proj_bias", False, why="projections of Mamba-2 here have no biases")
    keys.taken |= {"mamba_expand", "z_loss_coefficient", "attention_multiplier", "logits_scaling"}
    keys.taken |= {"embedding_multiplier", "residual_multiplier"}
    full, positions = keys.texts("attn_layer_indices"), keys.get("position_embedding_type", "rope")
    found = decoder(keys, _MAMBA)
    if "layer_types" not in keys.tree.children:
        layers = range(keys.count("num_hidden_layers"))
        mixers = ["attention" if str(at) in full else "mamba2" for at in layers]
        found["pattern"] = shortest([f"{one}+dense" for one in mixers])
    if "moe" not in found and (width := keys.get("shared_intermediate_size")):
        found["ffn"]["width"] = width
    mixer = {
        "num_heads": keys.count("mamba_n_heads"),
        "head_dim": keys.count("mamba_d_head"),
        "groups": keys.count("mamba_n_groups", 1),
        "state_dim": keys.count("mamba_d_state"),
        "conv": keys.count("mamba_d_conv", 4),
        "chunk": keys.count("mamba_chunk_size", 256),
    }
    return found | {"mixer": {"kind": "mamba2", **mixer}, "rotary": positions == "rope"}


def openelm(keys: Keys) -> Fields:
    """OpenELM: heads and feed-forward blocks that grow from layer to layer."""
    keys.must_be("activation_fn_name", "swish", why="the gated block is SwiGLU")
    keys.must_be("ffn_with_glu", True, why="the gated block is SwiGLU")
    keys.must_be("normalization_layer_name", "rms_norm", why="its norms here are RMSNorms")
    keys.taken |= {"qkv_multipliers", "num_gqa_groups"}  # what its lists were made from
    layers, hidden = keys.count("num_hidden_layers"), keys.count("hidden_size")
    unit, heads = keys.count("ffn_dim_divisor", 256), keys.numbers("num_query_heads", layers)
    shared, times = keys.numbers("num_kv_heads", layers), keys.numbers("ffn_multipliers", layers)
    widths = [_multiple(one * hidden, unit) for one in times]
    own = {"kind": "gqa", "head_dim": keys.count("head_dim", 128)}
    own["qk_norm"] = keys.flag("normalize_qk_projections")
    tied = keys.flag("share_input_output_layers")
    return _of_sizes(list(zip(heads, shared, widths, strict=True)), own) | {"tied_embeddings": tied}


def _of_sizes(layers: list[tuple[int, int, int]], attention: Fields, bias: bool = False) -> Fields:
    """Layers by heads, key-value heads and feed-forward width; 0 where they have no such half. The
    model's own sizes are the largest, and a pattern gives the others."""
    pairs, most = [one[:2] for one in layers], max(one[2] for one in layers) or 1
    own = max(pairs)
    words = [
        (
            "attention" + f"@{heads}x{shared}" * ((heads, shared) != own) if heads else "",
            "dense" + f"@{width}" * (width != most) if width else "",
        )
        for heads, shared, width in layers
    ]
    return {
        "attention": attention | {"heads": own[0] or 1, "kv_heads": own[1] or 1},
        "ffn": {"kind": "swiglu", "width": most, "bias": bias},
        "pattern": shortest(["+".join(filter(None, one)) for one in words]),
    }


def _multiple(size: float, unit: int) -> int:
    """The multiple of a unit next to a size, not a tenth below it."""
    found = max(unit, int(size + unit / 2) // unit * unit)
    return found if found >= 0.9 * size else found + unit


def nemotron_nas(keys: Keys) -> Fields:
    """What NVIDIA's search made of Llama: layers with attention or without, with feed-forward
    blocks of several widths or none. A layer that has neither is no layer here."""
    heads, hidden = keys.count("num_attention_heads"), keys.count("hidden_size")
    layers, blocks = keys.count("num_hidden_layers"), _blocks(keys)
    if len(blocks) != layers:
        keys.refuse("block_configs", f"it has {len(blocks)} layers, and the model {layers}")
    sizes = [_searched(keys, one, heads, hidden) for one in blocks]
    found = [one for one in sizes if any(one)] or [(0, 0, 1)]
    if empty := len(sizes) - len(found):
        keys.warnings.append(f"{empty} of {layers} layers have no blocks and are not counted.")
    own = grouped(keys, bias=keys.flag("attention_bias"))
    return _of_sizes(found, own, keys.flag("mlp_bias")) | {"layers": len(found)}


def _blocks(keys: Keys) -> list[dict[str, Fields]]:
    """The halves of every searched layer; none, after a problem, where that is not what stands
    there."""
    listed: Any = keys.get("block_configs", [])
    if isinstance(listed, list) and all(map(_is_block, cast("list[Any]", listed))):
        return cast("list[dict[str, Fields]]", listed)
    keys.refuse("block_configs", "it has to be a list of layers with their halves", code="TW014")
    return []


def _is_block(value: Any) -> bool:
    """Whether a value is a layer of halves, whose counts are numbers."""
    halves = list(cast("dict[str, Any]", value).values()) if isinstance(value, dict) else [None]
    counts = [
        cast("dict[str, Any]", half).get(key) or 1.0
        for half in halves
        if isinstance(half, dict)
        for key in ("n_heads_in_group", "ffn_mult")
    ]
    whole = all(isinstance(half, dict) for half in halves)
    return whole and all(isinstance(one, int | float) and 0 < one < MOST for one in counts)


def _searched(keys: Keys, block: Fields, heads: int, hidden: int) -> tuple[int, int, int]:
    """Heads, key-value heads and feed-forward width of a searched layer; 0 where it has no such
    half."""
    for name, half in block.items():
        if odd := [key for key in _OTHERWISE if half.get(key)]:
            keys.refuse("block_configs", f"`{name}.{odd[0]}` of a layer cannot be expressed")
    attention, ffn = block.get("attention", {}), block.get("ffn", {})
    shared = int(heads // (attention.get("n_heads_in_group") or heads))
    width = -(-int(2 * (ffn.get("ffn_mult") or 0) * hidden / 3) // 256) * 256
    there = not attention.get("no_op")
    return heads * there, shared * there, width * (not ffn.get("no_op"))


_OTHERWISE: Final = ("replace_with_linear", "sparsify", "num_sink_tokens", "window_length")
"""What half a searched layer may be instead."""
_NEMOTRON: Final = MappingProxyType({"M": "mamba2", "*": "attention", "-": "dense", "E": "moe"})
"""Letters of `hybrid_override_pattern`, each a layer of one block."""
_NEMOTRON_WORDS: Final = MappingProxyType({
    "mamba": "mamba2", "linear_attention": "mamba2", "attention": "attention",
    "full_attention": "attention", "mlp": "dense", "moe": "moe",
})  # fmt: skip
"""The same in `layers_block_type`, of either major of transformers."""


def nemotron_h(keys: Keys) -> Fields:
    """Nemotron-H and Nemotron 3: Mamba-2, attention without positions, and feed-forward blocks of
    a squared ReLU, one block in each layer."""
    letters = str(keys.get("hybrid_override_pattern", ""))
    if other := sorted(set(letters) - _NEMOTRON.keys()):
        keys.refuse("hybrid_override_pattern", f"layers of {', '.join(other)} cannot be expressed")
    listed: list[Any] = keys.get("layers_block_type", [])
    pattern = [_NEMOTRON[one] for one in letters if one in _NEMOTRON]
    pattern = pattern or [_NEMOTRON_WORDS.get(str(one), str(one)) for one in listed]
    keys.must_be("num_hidden_layers", len(pattern), why="the pattern has another number of layers")
    keys.must_be("mlp_hidden_act", "relu2", why="its feed-forward blocks are squared ReLUs")
    keys.must_be("mamba_hidden_act", "silu", why="the convolution here ends in SiLU")
    keys.must_be("use_conv_bias", True, why="the convolution here has a bias")
    for key in ("use_bias", "mamba_proj_bias", "attention_bias", "mlp_bias"):
        keys.must_be(key, False, why="Nemotron's blocks here have no biases")
    modules = keys.count("num_nextn_predict_layers", 0, least=0)
    ahead = [_NEMOTRON[one] for one in str(keys.get("mtp_hybrid_override_pattern", ""))]
    listed_ahead: list[Any] = keys.get("mtp_layers_block_type", [])
    ahead = ahead or [_NEMOTRON_WORDS.get(str(one), str(one)) for one in listed_ahead]
    if modules and not ahead:
        keys.left_out.append("modules that predict further tokens, of layers that nobody names")
    keys.must_be("sliding_window", None, why="its attention has no windows")
    if keys.get("hidden_dropout", 0.0):
        keys.left_out.append("dropout of hidden states")
    keys.taken |= {"expand", "norm_eps"}
    shared = keys.flag("mtp_use_repeated_layer", default=True)
    experts = _nemotron_experts(keys) if "moe" in pattern else None
    return {
        "layers": len(pattern),
        "attention": grouped(keys),
        "mixer": {
            "kind": "mamba2",
            "num_heads": keys.count("mamba_num_heads"),
            "head_dim": keys.count("mamba_head_dim"),
            "groups": keys.count("n_groups"),
            "state_dim": keys.count("ssm_state_size"),
            "conv": keys.count("conv_kernel", 4),
            "chunk": keys.count("chunk_size", 128),
        },
        "ffn": {"kind": "squared_relu", "width": keys.count("intermediate_size")},
        **({"moe": experts} if experts else {}),
        "pattern": pattern,
        "norm_eps": keys.number("layer_norm_epsilon", 1e-5),
        "rotary": False,
        **({"mtp_layers": modules, "mtp_pattern": ahead} if modules and ahead else {}),
        **({"mtp_shared": shared} if modules > 1 and ahead else {}),
    }


def _nemotron_experts(keys: Keys) -> Fields:
    latent = keys.get("moe_latent_size")
    return {
        "experts": keys.count("n_routed_experts"),
        "top_k": keys.count("num_experts_per_tok"),
        "width": keys.count("moe_intermediate_size"),
        "ungated": True,
        **({"latent": latent} if latent else {}),
        "shared_experts": keys.count("n_shared_experts", 0, least=0),
        "shared_width": keys.get("moe_shared_expert_intermediate_size"),
        "groups": keys.count("n_group", 1),
        "top_groups": keys.count("topk_group", 1),
        "correction_bias": True,
        "scores": "sigmoid",
        "normalize_weights": keys.flag("norm_topk_prob", default=True),
        "routed_scale": keys.number("routed_scaling_factor", 1.0),
    }


def gpt_oss(keys: Keys) -> Fields:
    """gpt-oss: sinks, biases everywhere, windows in every second layer."""
    words = {"sliding_attention": "window", "full_attention": "attention"}
    layers = shortest(layer_types(keys, words) or ("window", "attention"))
    if layers != ["window", "attention"]:
        keys.refuse("layer_types", "layers have to be in turns of a window and of none")
    bias = keys.flag("attention_bias", default=True)
    keys.taken |= {"experts_per_token", "initial_context_length"}
    return {
        "attention": grouped(
            keys, bias=bias, sinks=True, window=keys.count("sliding_window", 128), full_every=2
        ),
        "ffn": dense(keys),
        "moe": {
            "experts": keys.count("num_local_experts"),
            "top_k": keys.count("num_experts_per_tok"),
            "width": keys.count("intermediate_size"),
            "bias": True,
            "clamp": keys.number("swiglu_limit", 7.0),
        },
    }


def bailing_moe(keys: Keys) -> Fields:
    """Ling and Ring 1.5 and 2.0: queries, keys and values from one matrix, norms over heads."""
    keys.must_be("use_bias", False, why="Ling's blocks here have no biases")
    keys.must_be("norm_head", False, why="the head here has no norm of its rows")
    keys.must_be("moe_router_enable_shared_expert", True, why="shared experts are always there")
    for key in ("embedding_dropout", "output_dropout"):
        keys.must_be(key, 0.0, why="embedding and residuals here have no dropout")
    own = grouped(keys, qkv_bias=keys.flag("use_qkv_bias"), qk_norm=keys.flag("use_qk_norm"))
    width = keys.count("moe_intermediate_size")
    shared = keys.count("num_shared_experts", 0, least=0)
    wide = keys.get("moe_shared_expert_intermediate_size", width)
    moe = routed(keys, "sigmoid") | {
        "width": width,
        "shared_experts": shared,
        "shared_width": wide * shared if shared else None,
        "first_dense_layers": keys.count("first_k_dense_replace", 0, least=0),
        "correction_bias": keys.flag("moe_router_enable_expert_bias"),
        "scores": keys.get("score_function", "softmax"),
    }
    modules = keys.count("num_nextn_predict_layers", 0, least=0)
    return {"attention": own, "ffn": dense(keys), "moe": moe, "mtp_layers": modules}


def longcat_flash(keys: Keys) -> Fields:
    """LongCat-Flash: layers of two halves, each latent attention and a dense block. Experts read
    what the first dense block reads, so that this block counts as one that every token visits."""
    heads, halves = keys.count("num_attention_heads"), 2 * keys.count("num_layers")
    keys.taken.add("num_hidden_layers")
    keys.must_be("num_key_value_heads", heads, why="latent attention has as many as query heads")
    keys.must_be("attention_bias", False, why="latent attention here has no biases")
    keys.must_be("zero_expert_type", "identity", why="experts without matrices return the token")
    keys.must_be("router_bias", False, why="the router here has a correction only")
    keys.taken |= {"head_dim", "attention_method", "mla_scale_q_lora", "mla_scale_kv_lora"}
    experts, none = keys.count("n_routed_experts"), keys.count("zero_expert_num", 0, least=0)
    chosen = keys.count("moe_topk")
    computing = max(1, round(chosen * experts / (experts + none)))
    if none:
        keys.warnings.append(
            f"Of {chosen} chosen experts {computing} compute on average: {none} of "
            f"{experts + none} give a token back as it came."
        )
    keys.left_out.append(_MODULE)
    width = keys.count("ffn_hidden_size")
    return {
        "layers": halves,
        "attention": latent(keys, heads),
        "ffn": {"kind": "swiglu", "width": width},
        "moe": {
            "experts": experts,
            "zero_experts": none,
            "top_k": computing,
            "width": keys.count("expert_ffn_hidden_size"),
            "shared_experts": 1,
            "shared_width": width,
            "correction_bias": True,
            "normalize_weights": False,
            "routed_scale": keys.number("routed_scaling_factor", 1.0),
        },
        "pattern": ["attention+moe", "attention+dense"],
    }


HYBRIDS: Final[Mapping[str, Callable[[Keys], Fields]]] = MappingProxyType(
    {
        "bailing_moe": bailing_moe,
        "longcat_flash": longcat_flash,
        "minimax": minimax,
        "minimax_m1": minimax,
        "kimi_linear": kimi_linear,
        "granitemoehybrid": mamba_hybrid,
        "bamba": mamba_hybrid,
        "lfm2": lfm2,
        "lfm2_moe": lfm2,
        "qwen3_next": qwen3_next,
        "qwen3_5_text": qwen3_next,
        "qwen3_5_moe_text": qwen3_next,
        "nemotron_h": nemotron_h,
        "nemotron-nas": nemotron_nas,
        "openelm": openelm,
        "gpt_oss": gpt_oss,
    }
)
"""The readers, by `model_type`."""
