"""FLOP and cache of inference, by the same tables as training: one pass forward, 2 FLOP per weight.

A prefill runs keys and values whole, as training does. A decode step of multi-head latent attention
keeps the latent only: the up-projections of keys and values are absorbed, so that every head reads
one shared key of latent and rotary part, and one shared value, which is that latent (DeepSeek-V2,
arXiv:2405.04434, section 2.1.2). Their weights then multiply queries and outputs, as often as they
multiplied keys and values, so the linear part stays what it is. Left out: sampling, norms, routing,
and modules that predict further tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from twin.arch.attention import Heads, causal_flop
from twin.arch.count import flop_per_token, matrix_weights
from twin.arch.kernels import ELEMENT
from twin.arch.stack import heads
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
    attention = model.layers * causal_flop(heads(model), tokens)
    return tokens * (2.0 * float(matrix_weights(model)) + attention) + _head(model)


def decode_flop(model: ModelSpec, tokens: int, form: Form = "absorbed") -> float:
    """FLOP of the forward pass of one token that attends to `tokens` keys, its own among them.

    A latent attention's default is the absorbed form; other attention has one form only.
    """
    # Causal attention sees half of the sequence on average, so all keys are those of twice it.
    attention = model.layers * causal_flop(_read(model, form), 2 * tokens)
    return 2.0 * float(matrix_weights(model)) + _head(model) + attention


def cache_bytes(model: ModelSpec, tokens: int) -> float:
    """Bytes of keys and values of one sequence in BF16: of latent attention the latent and the
    shared rotary key, whatever the number of heads."""
    own = model.attention
    if isinstance(own, LatentAttention):
        elements = own.kv_lora_rank + own.qk_rope_head_dim
    else:
        elements = own.kv_heads * 2 * own.head_dim
    return float(ELEMENT * elements * model.layers * tokens)


def with_heads(model: ModelSpec, count: int) -> ModelSpec:
    """The model with another number of (query) heads of the same width."""
    changed: dict[str, Any] = {"heads": count}
    return model.model_copy(update={"attention": model.attention.model_copy(update=changed)})


def _read(model: ModelSpec, form: Form) -> Heads:
    """The heads that a decode step multiplies with what is kept."""
    own, whole = model.attention, replace(heads(model), windowed=0.0)
    if not isinstance(own, LatentAttention) or form == "whole":
        return whole
    if form == "whole_without_rotary":
        return replace(whole, qk_dim=own.qk_nope_head_dim)
    return Heads(whole.query, 1, own.kv_lora_rank + own.qk_rope_head_dim, own.kv_lora_rank)


def _head(model: ModelSpec) -> float:
    return 2.0 * model.vocab * model.hidden
