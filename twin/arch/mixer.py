"""Blocks that mix the tokens of a sequence through a state of fixed size: linear attention and
state-space blocks, beside attention itself (`twin.arch.attention`).

A token adds to a matrix per head (keys by values, or states by channels) that decays, and reads
from it. In training a sequence is cut into chunks: within a chunk tokens meet as in attention,
between chunks only the state goes on (Yang et al. 2024, arXiv:2412.06464, section 3.3; Dao and Gu
2024, arXiv:2405.21060, section 6). So the work grows with the sequence, not with its square.

Each choice is one module of `twin.arch.blocks` with one final `Block`: its fields, parameters,
operations in training, and what a decode step does. Operations are named alike in all of them
(`mixer_in` ... `mixer_out`), so that memory policies, stacks and engines know them.

The kernels between the projections are those of flash-linear-attention and mamba-ssm: how many
there are, and which tensors each reads, writes and keeps, was read in their code. They are of the
class `scan` (`state_scan` those of state-space blocks), of which a profile knows one share of the
roofline each way, assumed unless it says otherwise (`CalibrationSpec.scan_forward`). Left out: the
inverse of a triangular matrix of a chunk's size, and FLOP of elementwise kernels.

Tensor parallel by head. Context ranks exchange heads for tokens before and after the kernels, so
that each has whole sequences of some heads (Megatron-LM, `megatron/core/ssm/mamba_context_parallel
.py`): what they send is counted on the way in and out, both ways.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from twin.arch.fp8 import cast, projection, row_cut
from twin.arch.kernels import ELEMENT, SINGLE, streaming
from twin.arch.ops import Exchange, Item, Op, OpClass, Shape, Work
from twin.arch.parameters import Parameter, enter, leave, regather
from twin.spec.mixer import Mixer
from twin.spec.model import ModelSpec

CORE: Final = "mixer_core"
"""The name of the kernels between tokens of a sequence."""
SEQUENTIAL: Final = frozenset(
    {"mixer_conv", "mixer_qk_norm", "mixer_repeat", "mixer_gates", CORE, "mixer_heads"}
)
"""Operations that a decode step does otherwise (`Block.step`)."""


class Block(Mixer):
    """A mixer with its arithmetic."""

    @property
    @abstractmethod
    def heads(self) -> Mapping[str, int]:
        """Numbers of heads, by field, which tensor and context ranks have to divide."""

    @property
    def groups_of_heads(self) -> Mapping[str, int]:
        """Numbers, by field, which tensor ranks have to divide, and context ranks do not."""
        return {}

    @abstractmethod
    def parameters(self, model: ModelSpec) -> tuple[Parameter, ...]:
        """The weights of one block."""

    @abstractmethod
    def items(self, model: ModelSpec, shape: Shape) -> tuple[Item, ...]:
        """From the normed hidden state to the block's output, before the residual."""

    @abstractmethod
    def flop(self) -> float:
        """Forward FLOP per token of the kernels between tokens, which no weight does."""

    @abstractmethod
    def state(self) -> State:
        """What one sequence leaves behind for the next token."""

    step_kernels: ClassVar[int]
    """Kernels of a decode step in place of those in `SEQUENTIAL`."""

    def step(self, rows: int, tensor: int) -> Op:
        """Those kernels, for so many sequences on one tensor rank: each sequence's state is read
        and written once."""
        moved = 2.0 * rows * self.state().bytes / tensor
        return streaming("mixer_step", Work(0.0, moved, self.step_kernels), Work(), 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class State:
    """Numbers that a sequence keeps in one block: in fp32 the matrices of all heads, in bf16 the
    last inputs of convolutions."""

    matrices: int
    inputs: int

    @property
    def bytes(self) -> int:
        """Of all."""
        return SINGLE * self.matrices + ELEMENT * self.inputs


@dataclass(frozen=True, slots=True)
class Chunks:
    """The kernels between tokens, per token and head (or group of heads): multiply-adds forward,
    those of the backward pass beside twice these (what runs again, and the gradient of an inverse),
    and bytes of HBM each way. `kernels` are launches forward and backward; `kept` bytes that they
    keep beside their inputs."""

    products: float
    more: float
    forward: float
    backward: float
    kernels: tuple[int, int]
    kept: float

    def op(self, tokens: int, output: float, kept: float, kind: OpClass = "scan") -> Op:
        """As an operation on so many tokens; `output` is what it writes, and `kept` what the
        kernels behind it keep of that."""
        flop = 2.0 * self.products * tokens
        again = 2.0 * self.more * tokens
        forward = Work(flop, self.forward * tokens, self.kernels[0])
        backward = Work(2 * flop + again, self.backward * tokens, self.kernels[1])
        return Op(CORE, kind, forward, backward, saved=self.kept * tokens + kept, output=output)


def enters(model: ModelSpec, shape: Shape, *products: tuple[str, int]) -> tuple[Item, ...]:
    """Products that read the hidden state, by name and the width on this rank; all keep what they
    give."""
    tokens, hidden = shape.tokens, ELEMENT * shape.tokens * model.hidden
    made = (
        op
        for name, width in products
        for op in projection(
            name, shape, (tokens, model.hidden, width), float(ELEMENT * tokens * width)
        )
    )
    return (
        *enter("mixer_gather", hidden, shape, shape.gathered),
        *made,
        *regather("mixer_regather", hidden, shape, shape.gathered),
    )


def leaves(model: ModelSpec, shape: Shape, normed: Op, width: int) -> tuple[Item, ...]:
    """The norm's output, `width` wide on this rank, through the projection back."""
    hidden, shape = ELEMENT * shape.tokens * model.hidden, shape.of("mixer_out")
    return (
        *cast(normed, shape),
        *row_cut("mixer_out", shape, (shape.tokens, width, model.hidden)),
        *leave("mixer_reduce", hidden, shape),
    )


def exchanged(shape: Shape, width: int) -> tuple[Exchange, ...]:
    """Heads of all tokens for tokens of all heads: `width` numbers of each token on this rank."""
    if shape.context == 1:
        return ()
    size = float(ELEMENT * shape.tokens * width)
    return (Exchange("mixer_heads", "context", size, "all_to_all", "all_to_all"),)


def convolution(tokens: int, width: int, kernels: int, kept: float, again: bool = False) -> Op:
    """A depthwise convolution over a few tokens with SiLU. Backward reads its input and makes the
    output again on the way; where that is kept by nobody (`again`) it is also written again."""
    size = float(ELEMENT * tokens * width)
    backward = Work(0.0, (3 + 2 * again) * size, (1 + again) * kernels)
    return streaming("mixer_conv", Work(0.0, 2 * size, kernels), backward, kept, size)


def gated_norm(tokens: int, width: int) -> Op:
    """An RMSNorm over each head whose result a gate weighs, fused. Backward reads both and the
    gradient, and writes both gradients; a second small kernel reduces that of the gain."""
    size = float(ELEMENT * tokens * width)
    work = Work(0.0, 3 * size, 1), Work(0.0, 5 * size, 2)
    return streaming("mixer_norm", *work, size, size, "norm")
