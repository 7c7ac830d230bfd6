"""Gated delta net (Yang et al. 2024, arXiv:2412.06464), as in Qwen3-Next: linear attention whose
state forgets by one factor per head and replaces what a key held before.

One product makes queries, keys, values, the output's gate, and for each value head the two scalars
`beta` (how much is replaced) and the decay; a convolution over 4 tokens with SiLU follows on
queries, keys and values, a norm on queries and keys. With more value heads than key heads queries
and keys are repeated. Parameters as in transformers' `Qwen3NextGatedDeltaNet`; order of operations
as in Megatron-LM's `GatedDeltaNet`; kernels as in flash-linear-attention's `gated_delta_rule`
(chunks of 64 tokens): cumulative decay, keys by keys, inverse, the two products with it (w, u), the
state from chunk to chunk, the output. Kept are queries, keys, values, scalars and the inverse; w,
u, the states and the scores run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, Literal

from twin.arch.kernels import ELEMENT, SINGLE, streaming
from twin.arch.mixer import (
    Block,
    Chunks,
    State,
    convolution,
    enters,
    exchanged,
    gated_norm,
    leaves,
)
from twin.arch.ops import Item, Op, Shape, Work
from twin.arch.parameters import Parameter, matrix, norm_gains, vector
from twin.spec.base import Count
from twin.spec.model import ModelSpec

CHUNK: Final = 64
"""Tokens that meet directly (flash-linear-attention)."""


def delta_chunks(key: int, value: int) -> Chunks:
    """The kernels between tokens of one head of these widths."""
    inverse = CHUNK * key
    scores, values = CHUNK * value, key * value
    moved = 14 * key + 12 * value + 12 * CHUNK + 4 * values / CHUNK + 26
    back = 42 * key + 30 * value + 4 * CHUNK + 8 * values / CHUNK + 60
    return Chunks(
        products=3 * inverse + 2 * scores + 3 * values,
        more=2 * inverse + scores + 2 * values + 2 * CHUNK**2,
        forward=moved,
        backward=back,
        kernels=(6, 9),
        kept=ELEMENT * CHUNK,
    )


class GatedDelta(Block):
    """Gated delta net: linear attention with one decay per head."""

    kind: Literal["gated_delta"]
    """gated delta net (Qwen3-Next)"""
    key_heads: Count
    """heads of queries and keys"""
    value_heads: Count
    """heads of values, a multiple of those of keys"""
    key_dim: Count
    """width of a head's query and key"""
    value_dim: Count
    """width of a head's value"""
    conv: Count = 4
    """tokens that the convolution sees"""
    step_kernels: ClassVar[int] = 3
    """convolution, gates and one recurrent kernel"""

    @property
    def heads(self) -> Mapping[str, int]:
        """Key and value heads."""
        return {"key_heads": self.key_heads, "value_heads": self.value_heads}

    def parameters(self, model: ModelSpec) -> tuple[Parameter, ...]:
        """Projections, convolution, scalars of the decay, the norm's gain."""
        keys, values = self.key_heads * self.key_dim, self.value_heads * self.value_dim
        scalars = self.value_heads
        return (
            matrix("mixer.qk", "attention", (model.hidden, keys), "columns", 2),
            matrix("mixer.vz", "attention", (model.hidden, values), "columns", 2),
            matrix("mixer.ba", "attention", (model.hidden, scalars), "columns", 2),
            vector("mixer.conv", "attention", self.conv * (2 * keys + values), "rows"),
            vector("mixer.decay", "attention", 2 * scalars, "rows"),
            *norm_gains("mixer_norm", "rmsnorm", self.value_dim, "attention"),
            matrix("mixer.out", "attention", (values, model.hidden), "rows"),
        )

    def items(self, model: ModelSpec, shape: Shape) -> tuple[Item, ...]:
        """From the normed hidden state to the block's output, before the residual."""
        tokens, heads = shape.tokens, self.value_heads // shape.tensor
        keys = self.key_heads // shape.tensor * self.key_dim
        values, wide = heads * self.value_dim, heads * self.key_dim
        row = ELEMENT * tokens
        made = float(row * values)
        products = (("mixer_in", 2 * keys + 2 * values + 2 * heads),)
        if shape.separate:
            products = (("mixer_in", 2 * keys + 2 * values), ("mixer_in_scalars", 2 * heads))
        chunks = delta_chunks(self.key_dim, self.value_dim)
        return (
            *enters(model, shape, *products),
            *exchanged(shape, 2 * keys + values + 2 * heads),
            convolution(tokens, 2 * keys + values, 1, made),
            *self._queries_keys(tokens, keys, wide),
            self._gates(tokens, heads),
            chunks.op(tokens * heads, made, made),
            *exchanged(shape, values),
            *leaves(model, shape, gated_norm(tokens, values), values),
        )

    def _queries_keys(self, tokens: int, keys: int, wide: int) -> tuple[Op, ...]:
        """The norms of queries and keys, and their copies for all value heads."""
        size, repeated = 2.0 * ELEMENT * tokens * keys, 2.0 * ELEMENT * tokens * wide
        norms = Work(0.0, 2 * size, 2), Work(0.0, 3 * size, 2)
        normed = streaming("mixer_qk_norm", *norms, size, size, "norm")
        if keys == wide:
            return (normed,)
        copy = Work(0.0, size + repeated, 2)
        return (normed, streaming("mixer_repeat", copy, copy, repeated, repeated))

    def _gates(self, tokens: int, heads: int) -> Op:
        """`beta` by a sigmoid, and the logarithm of the decay in fp32 by four small kernels."""
        values = tokens * heads
        forward = Work(0.0, float(values * (2 * ELEMENT + 7 * SINGLE)), 5)
        backward = Work(0.0, float(values * (4 * ELEMENT + 9 * SINGLE)), 6)
        kept = float(values * (ELEMENT + SINGLE))
        return streaming("mixer_gates", forward, backward, kept, kept)

    def flop(self) -> float:
        """Forward FLOP per token of the kernels between tokens."""
        return 2.0 * self.value_heads * delta_chunks(self.key_dim, self.value_dim).products

    def state(self) -> State:
        """One matrix per value head."""
        wide = 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
        return State(self.value_heads * self.key_dim * self.value_dim, (self.conv - 1) * wide)
