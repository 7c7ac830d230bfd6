"""Parameters of a released configuration, counted tensor by tensor from its own keys; shares no
code with the product."""

from __future__ import annotations

from typing import Any


def counted(config: dict[str, Any]) -> int:
    """All parameters of the released language model, without prediction layers."""
    width, vocab = config["hidden_size"], config["vocab_size"]
    tables = vocab * width * (1 if config.get("tie_word_embeddings") else 2)
    layers = sum(
        attention(config) + feed_forward(config, layer) + 2 * width
        for layer in range(config["num_hidden_layers"])
    )
    return tables + layers + width


def attention(config: dict[str, Any]) -> int:
    width, heads = config["hidden_size"], config["num_attention_heads"]
    if "kv_lora_rank" in config:
        return latent(config, width, heads)
    size = config.get("head_dim") or width // heads
    shared = config.get("num_key_value_heads", heads)
    q, k, v, o = (width * n * size for n in (heads, shared, shared, heads))
    own = config["model_type"]
    biases = (heads + 2 * shared) * size if own in ("qwen2", "qwen2_moe") else 0
    norms = 2 * size if own in ("qwen3", "qwen3_moe") else 0
    return q + k + v + o + biases + norms


def latent(config: dict[str, Any], width: int, heads: int) -> int:
    nope, rope, value = (config[f"{k}_head_dim"] for k in ("qk_nope", "qk_rope", "v"))
    rank, query = config["kv_lora_rank"], config.get("q_lora_rank")
    out = heads * (nope + rope)
    queries = width * out if query is None else width * query + query + query * out
    keys = width * (rank + rope) + rank + rank * heads * (nope + value)
    return queries + keys + heads * value * width


def feed_forward(config: dict[str, Any], layer: int) -> int:
    width = config["hidden_size"]
    experts = next(
        (
            config[k]
            for k in ("n_routed_experts", "num_local_experts", "num_experts")
            if k in config
        ),
        0,
    )
    if not experts or layer < config.get("first_k_dense_replace", 0):
        return 3 * width * config["intermediate_size"]
    inner = config.get("moe_intermediate_size", config["intermediate_size"])
    routed = experts * 3 * width * inner + experts * width
    if config.get("topk_method") == "noaux_tc":
        routed += experts
    if "shared_expert_intermediate_size" in config:
        return routed + 3 * width * config["shared_expert_intermediate_size"] + width
    return routed + (config.get("n_shared_experts") or 0) * 3 * width * inner
