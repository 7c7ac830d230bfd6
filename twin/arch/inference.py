"""FLOP and cache of inference, by the same tables as training: one pass forward, 2 FLOP per weight.

A prefill runs keys and values whole, as training does. A decode step of multi-head latent attention
keeps the latent only: the up-projections of keys and values are absorbed, so that every head reads
one shared key of latent and rotary part, and one shared value, which is that latent (DeepSeek-V2,
arXiv:2405.04434, section 2.1.2). Their weights then multiply queries and outputs, as often as they
multiplied keys and values, so the linear part stays what it is. A window's cache is as long as the
window. Linear attention and state-space blocks keep a state of fixed size, which a step reads,
corrects and reads again: three multiply-adds for each of its numbers. Left out: sampling, norms,
routing, and modules that predict further tokens.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Literal

from twin.arch.attention import Heads
from twin.arch.blocks.attention_mla import read_heads
from twin.arch.count import flop_per_token, matrix_weights, mixing_flop
from twin.arch.kernels import ELEMENT, SINGLE
from twin.arch.stack import attends, attention, block, heads
from twin.spec.model import LatentAttention, ModelSpec

Form = Literal["absorbed", "whole", "whole_without_rotary"]
"""What a decode step reads of the past: the latent; whole keys and values; or these without the
rotary part of keys, which makes them a third narrower and is nobody's kernel."""


@dataclass(frozen=True, slots=True)
class Context:
    """One sequence of so many tokens: FLOP to train on a token of it, to prefill it, to decode one
    further token, and bytes of its cache."""

    tokens: int
    training_flop_per_token: float
    prefill_flop: float
    decode_flop_per_token: float
    cache_bytes: float


def context(model: ModelSpec, tokens: int) -> Context:
    """All that a context of this length asks of a model."""
    return Context(
        tokens,
        flop_per_token(model, tokens),
        prefill_flop(model, tokens),
        decode_flop(model, tokens),
        cache_bytes(model, tokens),
    )


def prefill_flop(model: ModelSpec, tokens: int) -> float:
    """FLOP of the forward pass of a prompt, causal, with the head for its last token only."""
    mixing = model.layers * mixing_flop(model, tokens)
    return tokens * (2.0 * float(matrix_weights(model)) + mixing) + _head(model)


def decode_flop(model: ModelSpec, tokens: int, form: Form = "absorbed") -> float:
    """FLOP of the forward pass of one token that attends to `tokens` keys, its own among them.

    A latent attention's default is the absorbed form; other attention has one form only.
    """
    mixing = sum(
        times * _step_flop(model, mixer, tokens, form) for mixer, times in mixers(model).items()
    )
    return 2.0 * float(matrix_weights(model)) + _head(model) + mixing


def mixers(model: ModelSpec) -> Counter[str]:
    """How many layers have which mixer, in the words of a pattern."""
    found = Counter(model.blocks(layer)[0] for layer in range(model.layers))
    return Counter({mixer: times for mixer, times in found.items() if mixer})


def _step_flop(model: ModelSpec, mixer: str, tokens: int, form: Form) -> float:
    own = block(model)
    if not attends(mixer) and own is not None:
        return 6.0 * own.state().matrices
    read, latent = _read(model, mixer, form), model.attention
    found = 2.0 * read.query * (read.qk_dim + read.v_dim) * read.read(tokens)
    if isinstance(latent, LatentAttention) and latent.indexer is not None:
        found += 2.0 * latent.indexer.heads * latent.indexer.head_dim * tokens
    return found


def cache_bytes(model: ModelSpec, tokens: int) -> float:
    """Bytes of keys and values of one sequence in BF16: of latent attention the latent and the
    shared rotary key, whatever the number of heads; and of states."""
    return float(
        sum(times * _kept_bytes(model, mixer, tokens) for mixer, times in mixers(model).items())
    )


def _kept_bytes(model: ModelSpec, mixer: str, tokens: int) -> float:
    own, block_of = attention(model, mixer), block(model)
    if not attends(mixer) and block_of is not None:
        return block_of.state().bytes
    if isinstance(own, LatentAttention):
        return ELEMENT * (own.kv_lora_rank + own.qk_rope_head_dim) * tokens + (
            index_bytes(own) * tokens
        )
    every = replace(heads(model, mixer), chunked=False)
    return ELEMENT * own.kv_heads * 2 * own.head_dim * every.read(tokens)


def index_bytes(attention: LatentAttention) -> int:
    """Bytes that an indexer keeps of a token: its key in FP8, with one fp32 scale."""
    own = attention.indexer
    return 0 if own is None else own.head_dim + SINGLE


def with_heads(model: ModelSpec, count: int) -> ModelSpec:
    """The model with another number of (query) heads of the same width."""
    changed: dict[str, Any] = {"heads": count}
    own = model.attention.heads
    pattern = tuple(
        re.sub(r"@(\d+)x", lambda found: f"@{int(found[1]) * count // own}x", one)
        for one in model.pattern
    )
    other = model.attention.model_copy(update=changed)
    return model.model_copy(update={"attention": other, "pattern": pattern})


def _read(model: ModelSpec, mixer: str, form: Form) -> Heads:
    """The heads that a decode step multiplies with what is kept."""
    own, whole = model.attention, heads(model, mixer)
    if not isinstance(own, LatentAttention) or (form == "whole" and own.indexer is None):
        return whole
    if form == "whole_without_rotary":
        return replace(whole, qk_dim=own.qk_nope_head_dim)
    return read_heads(own)


def _head(model: ModelSpec) -> float:
    return 2.0 * model.vocab * model.hidden
