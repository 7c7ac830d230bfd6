"""A gated convolution over a few tokens, as in LFM2 and LFM2-MoE (Liquid AI, arXiv:2511.23404,
section 2; transformers' `Lfm2ShortConv`).

One product makes a value and two gates, each as wide as the block. The value times the first gate
goes through a depthwise convolution; what that gives is weighed by the second gate and projected
back. Nothing is between tokens beyond the taps, so that there are no FLOP for tensor cores, and a
sequence leaves its last inputs behind. Three kernels, one each: both products and the convolution
(causal-conv1d), which keep their inputs. Tensor ranks cut channels, context ranks exchange them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from twin.arch.kernels import ELEMENT, streaming
from twin.arch.mixer import CORE, Block, State, enters, exchanged, leaves
from twin.arch.ops import Item, Shape, Work
from twin.arch.parameters import Parameter, matrix
from twin.spec.base import Count
from twin.spec.model import ModelSpec


class ShortConv(Block):
    """A convolution over a few tokens between two gates."""

    kind: Literal["short_conv"]
    """gated short convolution (LFM2)"""
    width: Count
    """channels"""
    conv: Count = 3
    """tokens that a convolution sees"""
    step_kernels: ClassVar[int] = 2
    """the first gate, and a convolution that moves its inputs on"""

    @property
    def heads(self) -> Mapping[str, int]:
        """Channels, each of which is by itself."""
        return {"width": self.width}

    def parameters(self, model: ModelSpec) -> tuple[Parameter, ...]:
        """Value and gates, the taps of each channel, the projection back."""
        return (
            matrix("mixer.in", "attention", (model.hidden, self.width), "columns", 3),
            Parameter("mixer.conv", "attention", "vector", self.width, self.conv, cut="rows"),
            matrix("mixer.out", "attention", (self.width, model.hidden), "rows"),
        )

    def items(self, model: ModelSpec, shape: Shape) -> tuple[Item, ...]:
        """From the normed hidden state to the block's output, before the residual."""
        width = self.width // shape.tensor
        size = float(ELEMENT * shape.tokens * width)
        weighed = Work(0.0, 3 * size, 1), Work(0.0, 5 * size, 1)
        return (
            *enters(model, shape, ("mixer_in", 3 * width)),
            *exchanged(shape, 3 * width),
            streaming("mixer_gates", *weighed, size, size),
            streaming(CORE, Work(0.0, 2 * size, 1), Work(0.0, 3 * size, 1), size, size),
            *exchanged(shape, width),
            *leaves(model, shape, streaming("mixer_weigh", *weighed, size, size), width),
        )

    def flop(self) -> float:
        """None that a tensor core does."""
        return 0.0

    def state(self) -> State:
        """The inputs that the next token's convolution sees."""
        return State(0, self.width * (self.conv - 1))
