"""What families of Hugging Face configurations say alike: attention, dense blocks, and the order of
layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from twin.interop.importing.keys import Keys

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
