"""Lightning attention beside the same block in PyTorch: parameters, FLOP, what is kept.

Shapes as in `tests.arch.torch_mixers`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.arch.models import catalog
from tests.arch.torch_mixers import (
    MixerLaws,
    chunked,
    flop_of,
    keeping,
    ops,
    tiny,
    weighed,
    whole,
)
from twin.arch.blocks.lightning import Lightning
from twin.arch.count import flop_per_token, matrix_weights
from twin.arch.ops import Shape

SPEC = Lightning(kind="lightning", num_heads=4, head_dim=16, chunk=32)
MODEL = tiny(SPEC)
SHAPE = Shape(1, 96)
WIDTH = 4 * 16


def decays() -> Tensor:
    """One factor per head, as slopes of ALiBi."""
    return torch.tensor([0.5, 0.25, 0.125, 0.0625], dtype=torch.float64)


def linear(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention in chunks; all tensors are [B, S, H, W]."""
    q, k, v = (chunked(one, SPEC.chunk) for one in (q, k, v))
    slope = decays().view(1, 4, 1, 1)
    at = torch.arange(1, SPEC.chunk + 1, dtype=q.dtype).view(1, 1, -1, 1)
    within = (-slope * (at - at.transpose(-1, -2))).exp().tril().unsqueeze(2)
    near = ((q @ k.transpose(-1, -2)) * within) @ v
    state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    found: list[Tensor] = []
    for chunk in range(q.shape[2]):
        far = (q[:, :, chunk] * (-slope * at).exp()) @ state
        found.append(near[:, :, chunk] + far)
        left = k[:, :, chunk] * (-slope * (SPEC.chunk - at)).exp()
        state = state * (-slope * SPEC.chunk).exp() + left.transpose(-1, -2) @ v[:, :, chunk]
    return whole(torch.stack(found, 2))


def token_by_token(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    state = q.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3])
    found: list[Tensor] = []
    for at in range(q.shape[1]):
        state = state * (-decays()).exp().view(1, 4, 1, 1)
        state = state + k[:, at, :, :, None] * v[:, at, :, None]
        found.append((q[:, at, :, None] @ state).squeeze(-2))
    return torch.stack(found, 1)


def inputs() -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(1, SHAPE.sequence, 4, 16, dtype=torch.float64) for _ in range(3)]


class Block(nn.Module):
    """MiniMax-M1's block with kernels that keep what those of lightning attention keep."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(32, 3 * WIDTH, bias=False)
        self.gate = nn.Linear(32, WIDTH, bias=False)
        self.gain = nn.Parameter(torch.ones(WIDTH))
        self.out = nn.Linear(WIDTH, 32, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        made = functional.silu(self.qkv(x))
        o = keeping(lambda qkv: qkv[..., :WIDTH] * 1)(made)
        return self.out(weighed(o, self.gate(x), self.gain))


class TestLightning(MixerLaws):
    model, shape = MODEL, SHAPE
    module, chunks, recurrence, inputs = Block, linear, token_by_token, inputs


def test_backward_does_twice_as_many_and_makes_states_and_scores_again() -> None:
    leaves = [one.requires_grad_() for one in inputs()]
    made = linear(*leaves).sum()
    twice = flop_of(made.backward)
    again = 2 * SHAPE.tokens * 4 * (32 * 16 + 16 * 16)
    # The state before the first chunk has no gradient, and nothing reads that behind the last, so
    # that neither of its factors has one.
    missing = 3 * (2 * 32 * 4 * 16 * 16)
    assert ops(MODEL, SHAPE)["mixer_core"].backward.flop == twice + missing + again


def test_a_minimax_m1_layer_does_less_between_tokens_than_full_attention() -> None:
    """70 layers of 2 x 64 heads x (2 x 256 x 128 + 2 x 128 x 128) per token, and 10 of attention to
    half of the sequence."""
    model = catalog("minimax-m1")
    between = 70 * 2 * 64 * (2 * 256 * 128 + 2 * 128 * 128)
    full = 10 * 2 * 64 * 2 * 128 * 4096 / 2
    weights = float(matrix_weights(model)) + model.vocab * model.hidden
    assert flop_per_token(model, 4096) == 6 * weights + 3 * (between + full)


def test_a_sequences_state_is_a_matrix_per_head_in_fp32() -> None:
    assert SPEC.state().bytes == 4 * 4 * 16 * 16
