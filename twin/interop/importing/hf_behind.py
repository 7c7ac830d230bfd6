"""Families of Hugging Face configurations that have norms behind both halves of a layer too."""

from __future__ import annotations

from typing import Final

from twin.interop.importing.hf_parts import Fields, dense, grouped, windows
from twin.interop.importing.keys import Keys

GEMMA: Final = ("gemma2", "gemma3_text")
"""Families with GeGLU, which multiplies and moves what SwiGLU does, and tied embeddings."""


def gemma2(keys: Keys) -> Fields:
    """Gemma 2: windows in every second layer."""
    return _gemma(keys, every=2)


def gemma3(keys: Keys) -> Fields:
    """Gemma 3 without its encoder: windows in five of six layers, norms of queries and keys."""
    keys.taken |= {"rope_local_base_freq", "_sliding_window_pattern"}
    return _gemma(keys, every=keys.count("sliding_window_pattern", 6), qk_norm=True)


def _gemma(keys: Keys, every: int, **more: bool) -> Fields:
    """Without a list of layers, each n-th has no window."""
    keys.taken |= {"query_pre_attn_scalar", "cache_implementation", "sliding_window_size"}
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if keys.get(key):
            keys.left_out.append(f"caps of logits (`{key}`)")
    keys.must_be("use_bidirectional_attention", False, why="attention is to tokens before")
    window = keys.count("sliding_window", 4096)
    limits = windows(keys) if keys.get("layer_types") else {"window": window, "full_every": every}
    own = grouped(keys, bias=keys.flag("attention_bias"), **limits, **more)
    return {"attention": own, "ffn": dense(keys), "norms_behind": True}


def glm4(keys: Keys) -> Fields:
    """GLM-4 of April 2025, dense: biases of queries, keys and values as configured."""
    bias = keys.flag("attention_bias")
    return {
        "attention": grouped(keys, qkv_bias=bias),
        "ffn": dense(keys),
        "norms_behind": True,
    }
