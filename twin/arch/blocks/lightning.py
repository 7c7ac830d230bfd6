"""Lightning attention (Qin et al. 2024, arXiv:2405.17381), as in MiniMax-Text-01 and MiniMax-M1
(arXiv:2501.08313, section 2.2): linear attention whose state forgets by one fixed factor per head.

One product makes queries, keys and values, on all of which SiLU follows, another the gate. What
attention gives is normed over all heads together, weighed by the gate's sigmoid, and projected
back. Parameters and order of operations as in transformers' `MiniMaxLightningAttention`, chunks of
256 tokens. Kernels as in OpenNLPLab's lightning attention 2: forward one, which takes the state
along from chunk to chunk; backward one within chunks and one between them. Kept are queries, keys
and values; scores and states run again. Positions are in the decay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from twin.arch.kernels import ELEMENT, streaming
from twin.arch.mixer import (
    Block,
    Chunks,
    State,
    enters,
    exchanged,
    gated_norm,
    leaves,
)
from twin.arch.ops import Item, Op, Shape, Work
from twin.arch.parameters import Parameter, matrix, vector
from twin.spec.base import Count
from twin.spec.model import ModelSpec


class Lightning(Block):
    """Lightning attention: linear attention with a fixed decay per head."""

    kind: Literal["lightning"]
    """lightning attention (MiniMax-M1)"""
    num_heads: Count
    """heads"""
    head_dim: Count
    """width of a head's query, key and value"""
    chunk: Count = 256
    """tokens that meet directly"""
    step_kernels: ClassVar[int] = 1
    """one recurrent kernel"""

    @property
    def heads(self) -> Mapping[str, int]:
        """Heads of queries, keys and values alike."""
        return {"num_heads": self.num_heads}

    def parameters(self, model: ModelSpec) -> tuple[Parameter, ...]:
        """Projections, the gate, the norm's gain."""
        wide = self.num_heads * self.head_dim
        return (
            matrix("mixer.qkv", "attention", (model.hidden, wide), "columns", 3),
            matrix("mixer.gate", "attention", (model.hidden, wide), "columns"),
            vector("mixer_norm.gain", "attention", wide, "rows"),
            matrix("mixer.out", "attention", (wide, model.hidden), "rows"),
        )

    def items(self, model: ModelSpec, shape: Shape) -> tuple[Item, ...]:
        """From the normed hidden state to the block's output, before the residual."""
        tokens, heads = shape.tokens, self.num_heads // shape.tensor
        wide = heads * self.head_dim
        made = float(ELEMENT * tokens * wide)
        return (
            *enters(model, shape, ("mixer_in", 3 * wide), ("mixer_in_gate", wide)),
            _activated(3 * made),
            *exchanged(shape, 3 * wide),
            self._chunks.op(tokens * heads, made, made),
            *exchanged(shape, wide),
            *leaves(model, shape, gated_norm(tokens, wide), wide),
        )

    @property
    def _chunks(self) -> Chunks:
        """The kernels between tokens of one head: scores and what they give, the state and what it
        gives; backward both kernels read all of queries, keys, values and the gradient, and the
        second adds to what the first wrote."""
        width, chunk = self.head_dim, self.chunk
        states = width * width
        return Chunks(
            products=2 * chunk * width + 2 * states,
            more=chunk * width + states,
            forward=4 * ELEMENT * width,
            backward=17 * ELEMENT * width,
            kernels=(1, 2),
            kept=0.0,
        )

    def flop(self) -> float:
        """Forward FLOP per token of the kernels between tokens."""
        return 2.0 * self.num_heads * self._chunks.products

    def state(self) -> State:
        """One matrix per head."""
        return State(self.num_heads * self.head_dim**2, 0)


def _activated(size: float) -> Op:
    """SiLU on queries, keys and values, which its output is."""
    work = Work(0.0, 2 * size, 1), Work(0.0, 3 * size, 1)
    return streaming("mixer_silu", *work, size, size, "activation")
