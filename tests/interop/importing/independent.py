"""Parameters of a released configuration, counted tensor by tensor from its own keys; shares no
code with the product."""

from __future__ import annotations

from typing import Any

BIASED = (
    "qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "gpt_oss", "glm4_moe", "seed_oss",
    "glm4",
)  # fmt: skip
"""Families whose queries, keys and values have biases."""
NORMED = (
    "qwen3", "qwen3_moe", "qwen3_next", "glm4_moe", "dots1", "bailing_moe", "hunyuan_v1_moe",
    "gemma3_text",
)  # fmt: skip
"""Families with a norm over each head's query and key."""
CORRECTED = (
    "kimi_linear", "glm4_moe", "dots1", "bailing_moe", "minimax_m2", "ernie4_5_moe",
)  # fmt: skip
"""Families whose router has a correction of each expert, whatever the configuration says."""


def counted(config: dict[str, Any]) -> int:
    """All parameters of the released language model, without prediction layers."""
    if config["model_type"] == "openelm":
        return growing(config)
    width, vocab = config["hidden_size"], config["vocab_size"]
    tables = vocab * width * (1 if config.get("tie_word_embeddings") else 2)
    if "hybrid_override_pattern" in config:
        block = {"M": mamba, "*": attention, "E": squared_experts}
        letters = config["hybrid_override_pattern"]
        return tables + sum(block[one](config) + width for one in letters) + width
    if config["model_type"].startswith("gemma"):
        tables = vocab * width
    if config["model_type"] == "longcat_flash":
        return tables + config["num_layers"] * double_layer(config) + width
    if "block_configs" in config:
        return tables + sum(searched(config, **block) for block in config["block_configs"]) + width
    norms = 4 if config["model_type"] in ("gemma2", "gemma3_text", "glm4") else 2
    layers = sum(
        mixing(config, layer) + feed_forward(config, layer) + norms * width
        for layer in range(config["num_hidden_layers"])
    )
    return tables + layers + width + encoder(config)


def encoder(config: dict[str, Any]) -> int:
    """Patches; norms, attention and block of each layer; the merger of four patches."""
    if "vision_config" not in config:
        return 0
    given, older = config["vision_config"], config["model_type"] == "qwen2_vl"
    wide, depth = given["embed_dim" if older else "hidden_size"], given.get("depth", 32)
    inner = wide * given["mlp_ratio"] if older else given.get("intermediate_size", 3420)
    gain = 2 * wide if older else wide
    block = (2 if older else 3) * wide * inner + (1 if older else 2) * inner + wide
    layer = 2 * gain + 4 * (wide * wide + wide) + block
    merged = gain + 4 * wide * (4 * wide + 1) + config["hidden_size"] * (4 * wide + 1)
    return 3 * 2 * 14 * 14 * wide + depth * layer + merged


def growing(config: dict[str, Any]) -> int:
    """OpenELM: one table; in each layer two norms, queries, keys and values in one matrix, two
    norms of heads, a gated block of multiples of 256."""
    width, size, total = config["model_dim"], config["head_dim"], 0
    names = ("num_query_heads", "num_kv_heads", "ffn_multipliers")
    for heads, shared, times in zip(*(config[name] for name in names), strict=True):
        inner = 256 * max(1, int(times * width + 128) // 256)
        inner += 256 if inner < 0.9 * times * width else 0
        total += width * size * (2 * heads + 2 * shared) + 3 * width * inner + 2 * width + 2 * size
    return total + config["vocab_size"] * width + width


def searched(config: dict[str, Any], attention: dict[str, Any], ffn: dict[str, Any]) -> int:
    """A layer of a searched Llama: each half with its norm, if it is there."""
    width, heads, total = config["hidden_size"], config["num_attention_heads"], 0
    if not attention["no_op"]:
        total += 2 * width * (width + width // attention["n_heads_in_group"]) + width
    if not ffn["no_op"]:
        inner = int(2 * ffn["ffn_mult"] * width / 3)
        total += 3 * width * (inner + -inner % 256) + width
    assert width % heads == 0
    return total


def mixing(config: dict[str, Any], layer: int) -> int:
    linear = config.get("linear_attn_config", {})
    if layer + 1 in linear.get("kda_layers", ()):
        return delta_attention(config, linear)
    if config["model_type"] == "minimax_m1" and not config["attn_type_list"][layer]:
        wide = config["num_attention_heads"] * config["head_dim"]
        return 5 * config["hidden_size"] * wide + wide  # q, k, v, gate, out, norm
    if config["model_type"] == "qwen3_next" and (layer + 1) % config["full_attention_interval"]:
        return delta_net(config)
    return attention(config)


def double_layer(config: dict[str, Any]) -> int:
    """LongCat-Flash: two latent attentions, two dense blocks, experts with a router that also
    scores those without matrices, four norms."""
    width, experts = config["hidden_size"], config["n_routed_experts"]
    chosen = experts + config["zero_expert_num"]
    routed = experts * 3 * width * config["expert_ffn_hidden_size"] + chosen * (width + 1)
    half = attention(config) + 3 * width * config["ffn_hidden_size"] + 2 * width
    return 2 * half + routed


def delta_attention(config: dict[str, Any], linear: dict[str, int]) -> int:
    """q, k, v and their convolutions; decay and gate through a head's width; beta; A_log, dt_bias,
    the norm; out."""
    hidden, heads, size = config["hidden_size"], linear["num_heads"], linear["head_dim"]
    wide = heads * size
    thin = 2 * (hidden * size + size * wide)
    convolved = 3 * wide * (hidden + linear["short_conv_kernel_size"])
    return convolved + thin + hidden * heads + heads + wide + size + wide * hidden


def delta_net(config: dict[str, Any]) -> int:
    """in_proj_qkvz, in_proj_ba, conv1d, A_log, dt_bias, norm, out_proj."""
    hidden, heads = config["hidden_size"], config["linear_num_value_heads"]
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    values = heads * config["linear_value_head_dim"]
    convolved = (2 * keys + values) * config["linear_conv_kernel_dim"]
    made = hidden * (2 * keys + 2 * values + 2 * heads)
    return made + convolved + 2 * heads + config["linear_value_head_dim"] + values * hidden


def mamba(config: dict[str, Any]) -> int:
    """in_proj, conv1d and its bias, A_log, D, dt_bias, norm, out_proj."""
    hidden, heads = config["hidden_size"], config["mamba_num_heads"]
    inner, shared = heads * config["mamba_head_dim"], config["n_groups"] * config["ssm_state_size"]
    convolved = (inner + 2 * shared) * (config["conv_kernel"] + 1)
    made = hidden * (2 * inner + 2 * shared + heads)
    return made + convolved + 3 * heads + inner + inner * hidden


def squared_experts(config: dict[str, Any]) -> int:
    """Two matrices per expert, a router with its correction, one shared expert."""
    hidden, experts = config["hidden_size"], config["n_routed_experts"]
    routed = experts * 2 * hidden * config["moe_intermediate_size"]
    shared = 2 * hidden * config["moe_shared_expert_intermediate_size"]
    return routed + shared + experts * (hidden + 1)


def attention(config: dict[str, Any]) -> int:
    width, heads = config["hidden_size"], config["num_attention_heads"]
    if "kv_lora_rank" in config:
        return latent(config, width, heads)
    size = config.get("head_dim") or width // heads
    shared = config.get("num_key_value_heads", heads)
    q, k, v, o = (width * n * size for n in (heads, shared, shared, heads))
    own = config["model_type"]
    biases = (heads + 2 * shared) * size if own in BIASED else 0
    norms = 2 * size if own in NORMED else 0
    if own in ("minimax_m2", "olmo2", "olmo3"):
        norms = (heads + shared) * size
    gate = q if own == "qwen3_next" else 0
    sinks = width + heads if own == "gpt_oss" else 0  # and the bias of the output
    return q + k + v + o + biases + norms + gate + sinks


def latent(config: dict[str, Any], width: int, heads: int) -> int:
    nope, rope, value = (config[f"{k}_head_dim"] for k in ("qk_nope", "qk_rope", "v"))
    rank, query = config["kv_lora_rank"], config.get("q_lora_rank")
    out = heads * (nope + rope)
    queries = width * out if query is None else width * query + query + query * out
    keys = width * (rank + rope) + rank + rank * heads * (nope + value)
    return queries + keys + heads * value * width + indexer(config, query)


def indexer(config: dict[str, Any], query: int | None) -> int:
    """wq_b, wk, k_norm (gain and bias), weights_proj."""
    if "index_n_heads" not in config or query is None:
        return 0
    heads, size, width = config["index_n_heads"], config["index_head_dim"], config["hidden_size"]
    return query * heads * size + width * size + 2 * size + width * heads


def feed_forward(config: dict[str, Any], layer: int) -> int:
    width = config["hidden_size"]
    experts = next(
        (
            config[k]
            for k in ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
            if k in config
        ),
        0,
    )
    first = config.get("first_k_dense_replace", config.get("moe_layer_start_index", 0))
    if not experts or layer < first:
        return 3 * width * config["intermediate_size"]
    inner = of_layer(config.get("moe_intermediate_size", config["intermediate_size"]), layer)
    routed = experts * 3 * width * inner + experts * width
    if config["model_type"] == "gpt_oss":
        routed += experts + experts * (2 * inner + width)
    if config.get("topk_method") == "noaux_tc" or config["model_type"] in CORRECTED:
        routed += experts
    if "shared_expert_intermediate_size" in config:
        return routed + 3 * width * config["shared_expert_intermediate_size"] + width
    names = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
    shared = next((config[name] for name in names if config.get(name)), 0)
    shared = shared or of_layer(config.get("num_shared_expert", 0), layer)
    return routed + shared * 3 * width * inner


def of_layer(value: int | list[int], layer: int) -> int:
    return value[layer] if isinstance(value, list) else value
