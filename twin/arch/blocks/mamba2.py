"""Mamba-2 (Dao and Gu 2024, arXiv:2405.21060), as in Nemotron-H and Nemotron 3: a state-space block
in its dual form, SSD.

One product makes the gate z, the input x, B and C (the keys and queries of linear attention, shared
by the heads of a group), and a time step per head. A convolution over 4 tokens with SiLU and a bias
follows on x, B and C. The norm behind has one gain per channel and is taken over each group.
Parameters as in mamba-ssm's `Mamba2` and transformers' `NemotronHMamba2Mixer`; kernels as in
mamba-ssm's `mamba_split_conv1d_scan_combined` (chunks of 128 or 256 tokens), which keeps the
product's output and its own, and runs convolution, states and scores again. Of scores whole squares
are counted, as the kernels compute them.

Tensor ranks have whole groups. Context ranks beyond the number of groups have copies of B and C,
which are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from twin.arch.kernels import ELEMENT
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
from twin.arch.ops import Item, Shape
from twin.arch.parameters import Parameter, matrix, vector
from twin.spec.base import Count
from twin.spec.model import ModelSpec


class Mamba2(Block):
    """Mamba-2: a state-space block in its dual form (SSD)."""

    kind: Literal["mamba2"]
    """Mamba-2 (Nemotron-H, Nemotron 3)"""
    num_heads: Count
    """heads"""
    head_dim: Count
    """channels of a head"""
    groups: Count
    """groups of heads that share B and C"""
    state_dim: Count
    """states of a channel"""
    conv: Count = 4
    """tokens that the convolution sees"""
    chunk: Count = 128
    """tokens that meet directly"""
    step_kernels: ClassVar[int] = 2
    """the convolution and the update of the states"""

    @property
    def heads(self) -> Mapping[str, int]:
        """Heads of channels."""
        return {"num_heads": self.num_heads}

    @property
    def groups_of_heads(self) -> Mapping[str, int]:
        """Groups; context ranks beyond their number have copies of B and C."""
        return {"groups": self.groups}

    @property
    def _inner(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def _shared(self) -> int:
        """Width of B, and of C."""
        return self.groups * self.state_dim

    def parameters(self, model: ModelSpec) -> tuple[Parameter, ...]:
        """Projections, convolution with its bias, three scalars per head, the norm's gains."""
        hidden, inner = model.hidden, self._inner
        convolved = inner + 2 * self._shared
        return (
            matrix("mixer.zx", "attention", (hidden, inner), "columns", 2),
            matrix("mixer.bc", "attention", (hidden, self._shared), "columns", 2),
            matrix("mixer.dt", "attention", (hidden, self.num_heads), "columns"),
            vector("mixer.conv", "attention", (self.conv + 1) * convolved, "rows"),
            vector("mixer.scalars", "attention", 3 * self.num_heads, "rows"),
            vector("mixer_norm.gain", "attention", inner, "rows"),
            matrix("mixer.out", "attention", (inner, hidden), "rows"),
        )

    def items(self, model: ModelSpec, shape: Shape) -> tuple[Item, ...]:
        """From the normed hidden state to the block's output, before the residual."""
        tokens, inner = shape.tokens, self._inner // shape.tensor
        convolved = inner + 2 * self._shared // shape.tensor
        heads = self.num_heads // shape.tensor
        made = float(ELEMENT * tokens * inner)
        return (
            *enters(model, shape, ("mixer_in", inner + convolved + heads)),
            *exchanged(shape, convolved + heads),
            convolution(tokens, convolved, 1, 0.0, again=True),
            self._chunks.op(tokens * (self.groups // shape.tensor), made, made, "state_scan"),
            *exchanged(shape, inner),
            *leaves(model, shape, gated_norm(tokens, inner), inner),
        )

    @property
    def _chunks(self) -> Chunks:
        """The kernels between tokens of one group of heads: chunk by chunk the cumulative time
        steps, the states, their way from chunk to chunk, scores, output."""
        heads = self.num_heads // self.groups
        inner, states = heads * self.head_dim, self.state_dim
        kept, scores = inner * states, self.chunk * states
        return Chunks(
            products=2 * kept + scores + self.chunk * inner,
            more=kept + scores,
            forward=6 * inner + 8 * states + 8 * self.chunk + 12 * kept / self.chunk + 14 * heads,
            backward=22 * inner
            + 32 * states
            + 24 * self.chunk
            + 36 * kept / self.chunk
            + 40 * heads,
            kernels=(5, 13),
            kept=0.0,
        )

    def flop(self) -> float:
        """Forward FLOP per token of the kernels between tokens."""
        return 2.0 * self.groups * self._chunks.products

    def state(self) -> State:
        """A row of states per channel."""
        convolved = self._inner + 2 * self._shared
        return State(self._inner * self.state_dim, (self.conv - 1) * convolved)
