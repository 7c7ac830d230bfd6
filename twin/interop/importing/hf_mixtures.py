"""Families of Hugging Face configurations with experts in most layers and one kind of attention.
Defaults are those of the configuration classes in `transformers`, or of the released code."""

from __future__ import annotations

from typing import Any, cast

from twin.interop.importing.hf_parts import Fields, dense, grouped, latent
from twin.interop.importing.keys import Keys

_MODULE = "the module of the released files that predicts further tokens"


def glm4_moe(keys: Keys) -> Fields:
    """GLM-4.5 to 4.7: grouped attention with biases, DeepSeek-V3's router."""
    bias = keys.flag("attention_bias")
    keys.must_be("moe_layer_freq", 1, why="after the first, every layer has experts")
    own = grouped(keys, qkv_bias=bias, qk_norm=keys.flag("use_qk_norm"))
    return {
        "attention": own,
        "ffn": dense(keys),
        "moe": _chosen_by_sigmoid(keys, "n_routed_experts", "n_shared_experts"),
        "mtp_layers": keys.count("num_nextn_predict_layers", 0, least=0),
    }


def dots1(keys: Keys) -> Fields:
    """dots.llm1: grouped attention with norms over heads, DeepSeek-V3's router."""
    keys.must_be("moe_layer_freq", 1, why="after the first, every layer has experts")
    own = grouped(keys, bias=keys.flag("attention_bias"), qk_norm=True)
    return {
        "attention": own,
        "ffn": dense(keys),
        "moe": _chosen_by_sigmoid(keys, "n_routed_experts", "n_shared_experts"),
    }


def bailing_moe(keys: Keys) -> Fields:
    """Ling and Ring 1.5 and 2.0: queries, keys and values from one matrix, norms over heads."""
    keys.must_be("use_bias", False, why="Ling's blocks here have no biases")
    keys.must_be("norm_head", False, why="the head here has no norm of its rows")
    keys.must_be("moe_router_enable_shared_expert", True, why="shared experts are always there")
    for key in ("embedding_dropout", "output_dropout"):
        keys.must_be(key, 0.0, why="embedding and residuals here have no dropout")
    own = grouped(keys, qkv_bias=keys.flag("use_qkv_bias"), qk_norm=keys.flag("use_qk_norm"))
    moe = _chosen_by_sigmoid(keys, "num_experts", "num_shared_experts")
    width = keys.get("moe_shared_expert_intermediate_size", moe["width"])
    moe |= {
        "shared_width": None if not moe["shared_experts"] else width * moe["shared_experts"],
        "correction_bias": keys.flag("moe_router_enable_expert_bias"),
        "scores": keys.get("score_function", "softmax"),
    }
    modules = keys.count("num_nextn_predict_layers", 0, least=0)
    return {"attention": own, "ffn": dense(keys), "moe": moe, "mtp_layers": modules}


def minimax_m2(keys: Keys) -> Fields:
    """MiniMax-M2: full attention with one norm over the queries of all heads, and one over keys."""
    keys.must_be("use_qk_norm", True, why="its queries and keys are normed")
    keys.must_be("qk_norm_type", "per_layer", why="its norms are over all heads")
    keys.must_be("shared_intermediate_size", 0, why="it has no shared experts")
    if set(keys.texts("attn_type_list")) - {"1"}:
        keys.refuse("attn_type_list", "layers of linear attention cannot be expressed")
    if keys.flag("use_mtp") and keys.get("num_mtp_modules", 0):
        keys.left_out.append("modules that predict further tokens, which no released file holds")
    keys.taken |= {"mtp_transformer_layers", "rotary_dim", "mlp_intermediate_size"}
    keys.taken |= {"layernorm_full_attention_beta", "layernorm_linear_attention_beta"}
    keys.taken.add("layernorm_mlp_beta")
    return {
        "attention": grouped(keys, qk_norm_whole=True),
        "ffn": dense(keys),
        "moe": {
            "experts": keys.count("num_local_experts"),
            "top_k": keys.count("num_experts_per_tok"),
            "width": keys.count("intermediate_size"),
            "correction_bias": keys.flag("use_routing_bias", default=True),
            "scores": keys.get("scoring_func", "sigmoid"),
            "routed_scale": keys.number("routed_scaling_factor", 1.0),
        },
    }


def ernie4_5_moe(keys: Keys) -> Fields:
    """ERNIE 4.5: experts from a layer on, a correction of each, embeddings tied or not."""
    layers = keys.count("num_hidden_layers")
    last = keys.get("moe_layer_end_index", -1)
    if last not in (-1, layers - 1):
        keys.refuse("moe_layer_end_index", "experts have to be in all layers to the last")
    keys.must_be("moe_layer_interval", 1, why="after the first, every layer has experts")
    keys.taken |= {"moe_use_aux_free", "moe_norm_min", "moe_capacity", "moe_gate"}
    return {
        "attention": grouped(keys, bias=keys.flag("use_bias")),
        "ffn": dense(keys, keys.flag("use_bias")),
        "moe": {
            "experts": keys.count("moe_num_experts"),
            "top_k": keys.count("moe_k"),
            "width": keys.count("moe_intermediate_size"),
            "shared_experts": keys.count("moe_num_shared_experts", 0, least=0),
            "first_dense_layers": keys.count("moe_layer_start_index", 1, least=0),
            "correction_bias": True,
        },
        "tied_embeddings": keys.flag("tie_word_embeddings", default=True),
    }


def hunyuan_moe(keys: Keys) -> Fields:
    """Hunyuan-A13B: one shared expert, norms over heads, embeddings tied or not."""
    shared = _each(keys, "num_shared_expert", 1)
    own = grouped(keys, bias=keys.flag("attention_bias"), qk_norm=keys.flag("use_qk_norm", True))
    keys.must_be("use_cla", False, why="layers here do not share keys and values")
    keys.must_be("use_mixed_mlp_moe", True, why="it has shared experts")
    keys.must_be("mlp_bias", False, why="its matrices have no biases")
    keys.taken |= {"attention_head_dim", "cla_share_factor", "moe_layer_num_skipped"}
    return {
        "attention": own,
        "ffn": dense(keys),
        "moe": {
            "experts": keys.count("num_experts"),
            "top_k": _each(keys, "moe_topk", 1),
            "width": _each(keys, "moe_intermediate_size", keys.count("intermediate_size")),
            "shared_experts": shared,
        },
    }


def longcat_flash(keys: Keys) -> Fields:
    """LongCat-Flash: layers of two halves, each latent attention and a dense block. Experts read
    what the first dense block reads, so that this block counts as one that every token visits."""
    heads, halves = keys.count("num_attention_heads"), 2 * keys.count("num_layers")
    keys.must_be("num_hidden_layers", halves, why="a layer has two halves")
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


def _chosen_by_sigmoid(keys: Keys, experts: str, shared: str) -> Fields:
    """Experts under DeepSeek-V3's router; names of keys differ."""
    return {
        "experts": keys.count(experts),
        "top_k": keys.count("num_experts_per_tok"),
        "width": keys.count("moe_intermediate_size"),
        "shared_experts": keys.count(shared, 0, least=0),
        "first_dense_layers": keys.count("first_k_dense_replace", 0, least=0),
        "correction_bias": True,
        "groups": keys.count("n_group", 1),
        "top_groups": keys.count("topk_group", 1),
        "scores": keys.get("scoring_func", "sigmoid"),
        "normalize_weights": keys.flag("norm_topk_prob", default=True),
        "routed_scale": keys.number("routed_scaling_factor", 1.0),
    }


def _each(keys: Keys, key: str, default: int) -> int:
    """A number that may be written for each layer, alike in all."""
    value: Any = keys.get(key, default)
    if not isinstance(value, list):
        return keys.count(key, default)
    found = set(cast("list[int]", value))
    if len(found) != 1:
        keys.refuse(key, f"`{key}` differs between layers, and has to be alike")
    return max(found, default=default)
