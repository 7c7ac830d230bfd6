"""Families of Hugging Face configurations with experts in most layers and words of their own.
Defaults are those of the configuration classes in `transformers`, or of the released code."""

from __future__ import annotations

from twin.interop.importing.hf_parts import Fields, dense, grouped, latent
from twin.interop.importing.keys import Keys

_MODULE = "the module of the released files that predicts further tokens"


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
