"""Kimi delta attention (Kimi Linear, arXiv:2510.26692, section 3): a gated delta net whose state
forgets by one factor per channel of a key.

Queries, keys and values have a convolution of their own each. The decay of every channel comes
through two thin matrices, as does the output's gate (hidden to a head's width, and from there to
all heads); `beta` is one scalar per head. The first of each pair is whole on every tensor rank.
Parameters as in the released `KimiDeltaAttention`; kernels as in flash-linear-attention's `kda`
(chunks of 64 tokens), which makes the decay inside: cumulative decay, scores and keys by keys with
it, inverse, w and u, states, output. Kept are queries, keys, values, the decay's input, scalars,
scores and the inverse; w, u and the states run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, Literal

from twin.arch.fp8 import projection
from twin.arch.kernels import ELEMENT, streaming
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


class Kda(Block):
    """Kimi delta attention: linear attention with one decay per channel."""

    kind: Literal["kda"]
    """Kimi delta attention (Kimi Linear)"""
    num_heads: Count
    """heads"""
    head_dim: Count
    """width of a head's query, key and value"""
    conv: Count = 4
    """tokens that each convolution sees"""
    step_kernels: ClassVar[int] = 6
    """three convolutions, the decay, `beta`, and one recurrent kernel"""

    @property
    def heads(self) -> Mapping[str, int]:
        """One number for queries, keys and values."""
        return {"num_heads": self.num_heads}

    def parameters(self, model: ModelSpec) -> tuple[Parameter, ...]:
        """Projections, convolutions, decay, gate, the norm's gain."""
        hidden, width = model.hidden, self.num_heads * self.head_dim
        return (
            matrix("mixer.qkv", "attention", (hidden, width), "columns", 3),
            vector("mixer.conv", "attention", 3 * self.conv * width, "rows"),
            matrix("mixer.down", "attention", (hidden, self.head_dim), "replicated", 2),
            matrix("mixer.up", "attention", (self.head_dim, width), "columns", 2),
            matrix("mixer.beta", "attention", (hidden, self.num_heads), "columns"),
            vector("mixer.decay", "attention", width + self.num_heads, "rows"),
            *norm_gains("mixer_norm", "rmsnorm", self.head_dim, "attention"),
            matrix("mixer.out", "attention", (width, hidden), "rows"),
        )

    def items(self, model: ModelSpec, shape: Shape) -> tuple[Item, ...]:
        """From the normed hidden state to the block's output, before the residual."""
        tokens, heads, thin = shape.tokens, self.num_heads // shape.tensor, self.head_dim
        width = heads * thin
        size = float(ELEMENT * tokens * width)
        read = (("mixer_in", 3 * width), ("mixer_in_thin", 2 * thin + heads))
        if shape.separate:
            qkv = tuple((f"mixer_in_{name}", width) for name in "qkv")
            read = (*qkv, *((f"mixer_in_{name}", thin) for name in ("decay", "gate")))
            read = (*read, ("mixer_in_beta", heads))
        norms = Work(0.0, 4 * size, 2), Work(0.0, 6 * size, 2)
        return (
            *enters(model, shape, *read),
            *(
                op
                for name in ("mixer_decay", "mixer_gate")
                for op in projection(name, shape, (tokens, thin, width), size)
            ),
            *exchanged(shape, 4 * width + heads),
            convolution(tokens, 3 * width, 3, size),
            streaming("mixer_qk_norm", *norms, 2 * size, 2 * size, "norm"),
            self._beta(tokens, heads),
            self._chunks.op(tokens * heads, size, size),
            *exchanged(shape, width),
            *leaves(model, shape, gated_norm(tokens, width), width),
        )

    def _beta(self, tokens: int, heads: int) -> Op:
        """A sigmoid, which keeps its output."""
        size = float(ELEMENT * tokens * heads)
        return streaming("mixer_gates", Work(0.0, 2 * size, 1), Work(0.0, 3 * size, 1), size, size)

    @property
    def _chunks(self) -> Chunks:
        """The kernels between tokens of one head."""
        width = self.head_dim
        inner, square = CHUNK * width, width * width
        return Chunks(
            products=5 * inner + 3 * square,
            more=2 * inner + 2 * square + 2 * CHUNK**2,
            forward=46 * width + 16 * CHUNK + 4 * square / CHUNK,
            backward=126 * width + 22 * CHUNK + 8 * square / CHUNK,
            kernels=(8, 12),
            kept=2 * ELEMENT * CHUNK,
        )

    def flop(self) -> float:
        """Forward FLOP per token of the kernels between tokens."""
        return 2.0 * self.num_heads * self._chunks.products

    def state(self) -> State:
        """One matrix per head."""
        width = self.num_heads * self.head_dim
        return State(width * self.head_dim, 3 * (self.conv - 1) * width)
