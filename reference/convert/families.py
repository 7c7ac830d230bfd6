"""What the keys of a `config.json` mean, by architecture: tables from keys to fields of
`ModelSpec`, keys whose value the reference takes for granted, and what the name alone implies.

Defaults and meanings are those of the configuration classes in `transformers`
(src/transformers/models/*/configuration_*.py) and of DeepSeek-V3's released code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from twin.spec.model import GroupedAttention, ModelSpec


@dataclass(frozen=True, slots=True)
class Family:
    """One architecture's keys."""

    architecture: str
    model_type: str
    keys: Mapping[str, str]
    """Key -> dotted field of the model."""
    fixed: Mapping[str, Any]
    """Keys with the only value that the reference computes with; absent is as good."""
    implied: Mapping[str, Any]
    """Fields that the name alone says."""
    ignored: frozenset[str]
    """Keys that repeat others, or are looked at apart."""


_COMMON: Final = {
    "vocab_size": "vocab",
    "hidden_size": "hidden",
    "num_hidden_layers": "layers",
    "intermediate_size": "ffn.width",
    "num_attention_heads": "attention.heads",
    "rms_norm_eps": "norm_eps",
    "tie_word_embeddings": "tied_embeddings",
}
_LATENT: Final = {
    "q_lora_rank": "attention.q_lora_rank",
    "kv_lora_rank": "attention.kv_lora_rank",
    "qk_nope_head_dim": "attention.qk_nope_head_dim",
    "qk_rope_head_dim": "attention.qk_rope_head_dim",
    "v_head_dim": "attention.v_head_dim",
}
_GROUPED: Final = {
    "num_key_value_heads": "attention.kv_heads",
    "head_dim": "attention.head_dim",
}
_EXPERTS: Final = {
    "n_routed_experts": "moe.experts",
    "num_experts_per_tok": "moe.top_k",
    "n_group": "moe.groups",
    "topk_group": "moe.top_groups",
    "moe_intermediate_size": "moe.width",
    "n_shared_experts": "moe.shared_experts",
    "first_k_dense_replace": "moe.first_dense_layers",
    "norm_topk_prob": "moe.normalize_weights",
    "routed_scaling_factor": "moe.routed_scale",
}
_PLAIN: Final = {"attention_bias": False, "attention_dropout": 0.0, "hidden_act": "silu"}
_ROUTER: Final = {
    "moe_layer_freq": 1,
    "rope_interleave": True,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
}
_ROPE: Final = frozenset({"rope_theta", "rope_scaling", "rope_parameters"})

DEEPSEEK: Final = Family(
    "DeepseekV3ForCausalLM",
    "deepseek_v3",
    _COMMON | _LATENT | _EXPERTS,
    _PLAIN | _ROUTER,
    {"attention.kind": "mla", "moe.correction_bias": True, "moe.scores": "sigmoid"},
    _ROPE | {"head_dim", "num_key_value_heads", "qk_head_dim"},
)
LLAMA: Final = Family(
    "LlamaForCausalLM",
    "llama",
    _COMMON | _GROUPED,
    _PLAIN | {"mlp_bias": False},
    {"attention.kind": "gqa"},
    _ROPE,
)
QWEN3: Final = Family(
    "Qwen3ForCausalLM",
    "qwen3",
    _COMMON | _GROUPED,
    _PLAIN | {"use_sliding_window": False},
    {"attention.kind": "gqa", "attention.qk_norm": True},
    _ROPE | {"layer_types", "sliding_window"},
)
FAMILIES: Final[Mapping[str, Family]] = {
    "deepseek_v3": DEEPSEEK,
    "kimi_k2": DEEPSEEK,
    "llama": LLAMA,
    "qwen3": QWEN3,
}
"""What can be converted, by `model_type`; Kimi K2 is DeepSeek-V3 by another name."""

YARN: Final = {
    "factor": "factor",
    "original_max_position_embeddings": "original_context",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "mscale": "mscale",
    "mscale_all_dim": "mscale_all_dim",
}
"""Keys of YaRN and fields of `Yarn`."""
YARN_DEFAULTS: Final = {"beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 0.0}
"""Where a configuration is silent."""
KEPT: Final = frozenset(
    {
        "aux_loss_alpha", "bos_token_id", "eos_token_id", "ep_size", "initializer_range",
        "max_position_embeddings", "max_window_layers", "output_router_logits", "pad_token_id",
        "pretraining_tp", "router_aux_loss_coef", "seq_aux", "use_cache",
    }
)  # fmt: skip
"""Keys that change nothing that a forward pass computes: kept as they are beside the model."""
STORAGE: Final = frozenset(
    {
        "_name_or_path", "architectures", "auto_map", "dtype", "model_type", "quantization_config",
        "torch_dtype", "transformers_version",
    }
)  # fmt: skip
"""Keys about files and versions, written anew."""
PREDICTIONS: Final = ("num_nextn_predict_layers", "num_mtp_layers")
"""How many layers predict further tokens (DeepSeek-V3, section 2.2); the reference has none."""


def family_of(model: ModelSpec) -> Family:
    """The architecture nearest to a model."""
    if not isinstance(model.attention, GroupedAttention):
        return DEEPSEEK
    return QWEN3 if model.attention.qk_norm else LLAMA
