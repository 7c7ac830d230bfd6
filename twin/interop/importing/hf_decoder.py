"""Families of Hugging Face configurations that are plain decoders: one kind of attention, dense
blocks or experts, windows in some layers.

One reader takes them all by their keys, whatever word a family has for one (`synonyms` of
`harmless_keys.yaml`). What a family's code has and no key says is its row of `hf_families.yaml`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

from twin.interop.importing.keys import Keys
from twin.loading.files import read_data


@dataclass(frozen=True, slots=True)
class Family:
    """What a family's code has that its configurations do not say, as the table's head says."""

    act: str = "swiglu"
    attention_bias: str = "all"
    biased: bool = False
    norms: str = ""
    normed: bool = True
    behind: bool = False
    gated: bool = False
    layernorm: bool = False
    tied: bool = False
    correction: bool = False
    scores: str = "softmax"
    normalize: bool = True
    shared_gate: bool = False
    first: int = 0
    every: int = 0
    words: Mapping[str, str] = field(default_factory=dict[str, str])
    eps: float = 1e-6
    theta: float = 1e4
    fixed: Mapping[str, tuple[Any, str]] = field(default_factory=dict[str, tuple[Any, str]])
    ignored: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])


ACTIVATIONS: Final = MappingProxyType(
    {
        "swiglu": ("silu", "swish"),
        "geglu": ("gelu_pytorch_tanh",),
        "gelu": ("gelu_pytorch_tanh", "gelu"),
        "squared_relu": ("relu2",),
    }
)
"""Names in configurations. GeGLU multiplies and moves what SwiGLU does."""
_NAMES: Final = MappingProxyType({"swiglu": "SwiGLU", "geglu": "GeGLU", "gelu": "GeLU"})


@cache
def families() -> Mapping[str, Family]:
    """The table, by `model_type`."""
    rows = read_data(Path(__file__).with_name("hf_families.yaml"))
    return {name: Family(**row) for name, row in rows.items()}


def activation(keys: Keys, own: Family) -> None:
    """Refuse another feed-forward block than the family's."""
    why = f"the feed-forward block is {_NAMES.get(own.act, 'a squared ReLU')}"
    for key in ("hidden_act", "hidden_activation"):
        keys.must_be(key, *ACTIVATIONS[own.act], why=why)


def decoder(keys: Keys, own: Family) -> Fields:
    """The model of a plain decoder."""
    keys.taken |= {*own.ignored}
    for key, (value, why) in own.fixed.items():
        keys.must_be(key, value, why=why)
    told = (what for key, what in own.left_out.items() if keys.get(key))
    keys.left_out += dict.fromkeys(told)
    mixers, feeds = _mixers(keys, own), feeds_of(keys, own.first)
    attention = _attention(keys, own)
    moe = _experts(keys, own) if "moe" in feeds else None
    found = shortest(mixers)
    turns = found in (["attention"], ["window"] * (len(found) - 1) + ["attention"], ["window"])
    leading = feeds.index("moe") if moe else 0
    steady = not moe or set(feeds[leading:]) == {"moe"}
    more: Fields = {}
    if "window" in mixers:
        attention["window"] = keys.count("sliding_window", 4096)
    if turns and steady:
        attention |= {"full_every": len(found)} if len(found) > 1 else {}
        more = {"moe": (moe or {}) | {"first_dense_layers": leading}} if moe else {}
    else:
        more = {"pattern": shortest([f"{a}+{b}" for a, b in zip(mixers, feeds, strict=True)])}
        more |= {"moe": moe} if moe else {}
    kind = "swiglu" if own.act == "geglu" else own.act
    width = keys.count("intermediate_size", None if "dense" in feeds else 1)
    return {
        "attention": attention,
        "ffn": {"kind": kind, "width": width, "bias": keys.flag("mlp_bias")},
        **more,
        "norm": "layernorm" if own.layernorm else "rmsnorm",
        "norms_behind": own.behind,
        "mtp_layers": keys.count("num_nextn_predict_layers", 0, least=0),
    }


def _attention(keys: Keys, own: Family) -> Fields:
    if keys.get("kv_lora_rank"):
        heads = keys.count("num_attention_heads")
        keys.must_be("num_key_value_heads", heads, why="latent attention has as many as queries")
        keys.must_be("attention_bias", False, why="latent attention here has no biases")
        return latent(keys, heads)
    bias = keys.flag("attention_bias", default=own.biased)
    normed = bool(own.norms) and keys.flag("use_qk_norm", default=own.normed)
    return grouped(
        keys,
        **{"qkv_bias" if own.attention_bias == "qkv" else "bias": bias},
        **{"qk_norm_whole" if own.norms == "whole" else "qk_norm": normed},
        gated=own.gated,
    )


def _mixers(keys: Keys, own: Family) -> Sequence[str]:
    """Attention to all before, or to a window, layer by layer."""
    layers, window = keys.count("num_hidden_layers"), keys.get("sliding_window")
    every = keys.count("sliding_window_pattern", own.every) if own.every else 0
    words = {"full_attention": "attention", "sliding_attention": "window", **own.words}
    order = layer_types(keys, words)
    used = keys.get("use_sliding_window", True) and window
    if not order and every:
        return ["window" if (at + 1) % every else "attention" for at in range(layers)]
    if not order and not used:
        return ["attention"] * layers
    if not order:
        first = min(keys.count("max_window_layers", 0, least=0), layers)
        return ["attention"] * first + ["window"] * (layers - first)
    near = "window" if used else "attention"
    return [
        near if one == "window" else one for at in range(layers) for one in [order[at % len(order)]]
    ]


def feeds_of(keys: Keys, first: int = 0) -> Sequence[str]:
    """Dense blocks or experts, layer by layer."""
    layers = keys.count("num_hidden_layers")
    if not keys.get("num_experts"):
        keys.get("num_experts_per_tok")
        return ["dense"] * layers
    first = keys.count("first_k_dense_replace", first, least=0)
    last, step = keys.get("moe_layer_end_index", -1), keys.count("decoder_sparse_step", 1)
    without = keys.texts("mlp_only_layers")
    last = layers - 1 if last == -1 else last
    keys.must_be("moe_layer_freq", 1, why="after the first, every layer has experts")
    listed = layer_types(keys, {"dense": "dense", "sparse": "moe"}, "mlp_layer_types")
    return listed or [
        "dense" if at < first or at > last or (at + 1) % step or str(at) in without else "moe"
        for at in range(layers)
    ]


def _experts(keys: Keys, own: Family) -> Fields:
    shared = keys.count("n_shared_experts", 0, least=0)
    width = keys.count("moe_intermediate_size", keys.get("intermediate_size"))
    wide = keys.count("shared_expert_intermediate_size", 0, least=0)
    together = {"shared_experts": 1, "shared_width": wide} if wide else {"shared_experts": shared}
    return {
        **routed(keys, own.scores, normalize=own.normalize),
        "width": width,
        **together,
        "shared_gate": own.shared_gate and bool(wide),
        "correction_bias": own.correction,
    }


def routed(
    keys: Keys,
    scores: str,
    *,
    normalize: bool = True,
    groups: tuple[int, int] = (1, 1),
    scale: float = 1.0,
) -> Fields:
    """How many experts there are, and how a token's are chosen; where the configuration is silent,
    as given: scores, groups of experts and those that count, the scale of what experts give."""
    return {
        "experts": keys.count("num_experts"),
        "top_k": keys.count("num_experts_per_tok"),
        "groups": keys.count("n_group", groups[0]),
        "top_groups": keys.count("topk_group", groups[1]),
        "scores": keys.get("scoring_func", scores),
        "normalize_weights": keys.flag("norm_topk_prob", default=normalize),
        "routed_scale": keys.number("routed_scaling_factor", scale),
    }


Fields: TypeAlias = dict[str, Any]
"""Fields of a part of a model."""


def grouped(keys: Keys, **more: Any) -> Fields:
    """Grouped-query attention; without a head width the heads share the hidden width out."""
    heads = keys.count("num_attention_heads")
    hidden, width = keys.get("hidden_size", 0), keys.get("head_dim")
    if width is None and isinstance(hidden, int) and heads and hidden % heads:
        keys.refuse("num_attention_heads", f"{heads} heads do not share {hidden} evenly")
    share = hidden // max(heads, 1) if isinstance(hidden, int) else 1
    return {
        "kind": "gqa",
        "heads": heads,
        "kv_heads": keys.count("num_key_value_heads", heads),
        "head_dim": keys.count("head_dim", max(share, 1)),
        **more,
    }


def latent(keys: Keys, heads: int) -> Fields:
    """Latent attention of so many heads."""
    return {
        "kind": "mla",
        "heads": heads,
        "q_lora_rank": keys.get("q_lora_rank"),
        "kv_lora_rank": keys.count("kv_lora_rank"),
        "qk_nope_head_dim": keys.count("qk_nope_head_dim"),
        "qk_rope_head_dim": keys.count("qk_rope_head_dim"),
        "v_head_dim": keys.count("v_head_dim"),
    }


def dense(keys: Keys, bias: bool = False) -> Fields:
    """SwiGLU."""
    return {"kind": "swiglu", "width": keys.count("intermediate_size"), "bias": bias}


def layer_types(keys: Keys, words: Mapping[str, str], key: str = "layer_types") -> tuple[str, ...]:
    """A list of layers in the words of a pattern; empty where the configuration has none."""
    found = keys.get(key, [])
    if not isinstance(found, list):
        keys.refuse(key, f"`{key}` must be a list", code="TW014")
        return ()
    listed = [str(one) for one in cast("list[object]", found)]
    if other := sorted(set(listed) - words.keys()):
        keys.refuse(key, f"layers of {', '.join(other)} cannot be expressed")
        return ()
    return tuple(words[one] for one in listed)


def shortest(pattern: Sequence[str]) -> list[str]:
    """The shortest part of a pattern that repeats to all of it."""
    size = len(pattern)
    lengths = (n for n in range(1, size) if all(pattern[i] == pattern[i % n] for i in range(size)))
    return list(pattern[: next(lengths, size)])
