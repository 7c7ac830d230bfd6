"""The gated delta net beside the same block in PyTorch: parameters, FLOP, what is kept.

Shapes as in `tests.arch.torch_mixers`.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.arch.models import catalog
from tests.arch.torch_mixers import (
    MixerLaws,
    chunked,
    flop_of,
    keeping,
    normed,
    ops,
    shifted,
    tiny,
    weighed,
    whole,
)
from twin.arch.blocks.gated_delta import CHUNK, GatedDelta
from twin.arch.count import flop_per_token, matrix_weights
from twin.arch.ops import Shape

SPEC = GatedDelta(kind="gated_delta", key_heads=2, value_heads=4, key_dim=16, value_dim=24)
MODEL = tiny(SPEC)
SHAPE = Shape(1, 2 * CHUNK)


def inside(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor) -> tuple[Tensor, ...]:
    """Of every chunk, whose tensors are [B, H, N, C, W]: w, u and the scores of queries (Yang et
    al. 2024, equations 7 to 9), with the log-decay since the chunk's start."""
    since = decay.cumsum(-2)
    ratio = (since - since.transpose(-1, -2)).exp()
    met = (beta * k) @ k.transpose(-1, -2) * ratio
    lower = torch.eye(q.shape[-2], dtype=q.dtype) + met.tril(-1)
    inverse = torch.linalg.inv_ex(lower).inverse
    w = inverse @ (beta * since.exp() * k)
    u = inverse @ (beta * v)
    scores = (q @ k.transpose(-1, -2) * ratio).tril()
    return w, u, scores, since


def through(q: Tensor, k: Tensor, parts: tuple[Tensor, ...]) -> Tensor:
    """Chunk by chunk, with the state between."""
    w, u, scores, since = parts
    state = q.new_zeros(*q.shape[:2], q.shape[-1], u.shape[-1])
    found: list[Tensor] = []
    for at in range(q.shape[2]):
        new = u[:, :, at] - w[:, :, at] @ state
        from_state = (q[:, :, at] * since[:, :, at].exp()) @ state
        found.append(from_state + scores[:, :, at] @ new)
        last = since[:, :, at, -1:]
        left = (last - since[:, :, at]).exp() * k[:, :, at]
        state = state * last.exp() + left.transpose(-1, -2) @ new
    return torch.stack(found, 2)


def delta(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor) -> Tensor:
    """The rule in chunks; all tensors are [B, S, H, W]."""
    q, k, v, decay, beta = (chunked(one, CHUNK) for one in (q, k, v, decay, beta))
    return whole(through(q, k, inside(q, k, v, decay, beta)))


def token_by_token(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor) -> Tensor:
    state = q.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3])
    found: list[Tensor] = []
    for at in range(q.shape[1]):
        state = state * decay[:, at, :, :, None].exp()
        known = (k[:, at, :, None] @ state).squeeze(-2)
        change = beta[:, at] * (v[:, at] - known)
        state = state + k[:, at, :, :, None] * change[:, :, None]
        found.append((q[:, at, :, None] @ state).squeeze(-2))
    return torch.stack(found, 1)


def inputs(width: int = 1) -> list[Tensor]:
    """Queries, normed keys, values, log-decays, betas."""
    torch.manual_seed(0)
    size = (1, 2 * CHUNK, 4)
    made = [torch.randn(*size, n, dtype=torch.float64) for n in (16, 16, 24, width, 1)]
    made[1] = functional.normalize(made[1], dim=-1)
    made[3] = -functional.softplus(made[3])
    made[4] = torch.sigmoid(made[4])
    return made


class Block(nn.Module):
    """Qwen3-Next's block with kernels that keep what those of flash-linear-attention keep."""

    def __init__(self) -> None:
        super().__init__()
        keys, values = 2 * 16, 4 * 24
        self.wide = nn.Linear(32, 2 * keys + 2 * values + 2 * 4, bias=False)
        self.conv = nn.Parameter(torch.randn(2 * keys + values, 4))
        self.dt_bias, self.a_log = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))
        self.gain = nn.Parameter(torch.ones(24))
        self.out = nn.Linear(values, 32, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        qkv, z, b, a = self.wide(x).split([160, 96, 4, 4], -1)
        q, k, v = keeping(shifted)(qkv, self.conv).split([32, 32, 96], -1)
        q, k = (normed(y.reshape(*y.shape[:2], 2, 16).contiguous()) for y in (q, k))
        q, k = (y.repeat_interleave(2, 2) for y in (q, k))
        beta = keeping(torch.sigmoid, inputs=False)(b)
        decay = keeping(lambda y, bias, log: (functional.softplus(y + bias) * -log.exp()).float())(
            a, self.dt_bias, self.a_log
        )
        inverse = torch.zeros(1, x.shape[1], 4, CHUNK, dtype=x.dtype)
        core = keeping(lambda *given: torch.zeros_like(given[2]), more=(inverse,))
        o = core(q, k, v.reshape(*v.shape[:2], 4, 24).contiguous(), decay, beta)
        return self.out(weighed(o, z.reshape(o.shape), self.gain).flatten(2))


class TestGatedDelta(MixerLaws):
    model, shape = MODEL, SHAPE
    module, chunks, recurrence, inputs = Block, delta, token_by_token, inputs


def test_backward_does_twice_as_many_and_makes_w_u_states_and_scores_again() -> None:
    """Run again are all but keys by keys, of which the inverse is kept, and what scores and states
    give to the output."""
    q, k, v, decay, beta = (chunked(one, CHUNK) for one in inputs())
    leaves = [one.detach().requires_grad_() for one in inputs()]
    made = delta(*leaves).sum()
    twice = flop_of(made.backward)
    inner = flop_of(lambda: inside(q, k, v, decay, beta))
    keys = 2 * SHAPE.tokens * 4 * CHUNK * 16
    states = 2 * (2 * SHAPE.tokens * 4 * 16 * 24)
    found = ops(MODEL, SHAPE)["mixer_core"].backward.flop
    # The state before the first chunk has no gradient, and nothing reads that behind the last.
    missing = 4 * (2 * CHUNK * 4 * 16 * 24)
    assert found == twice + missing + inner - keys + states


@pytest.mark.parametrize("tensor", [1, 2])
@pytest.mark.parametrize("separate", [False, True])
def test_tensor_ranks_cut_all_work_by_head(tensor: int, separate: bool) -> None:
    one = ops(MODEL, Shape(1, 128, tensor=tensor, separate=separate))
    whole_block = ops(MODEL, Shape(1, 128, separate=separate))
    for name, op in whole_block.items():
        assert one[name].forward.flop * tensor == pytest.approx(op.forward.flop)
        assert one[name].saved * tensor == pytest.approx(op.saved)


def test_qwen3_next_does_less_between_tokens_than_full_attention() -> None:
    """Per token and layer 2 x 32 heads x (3 x 64 x 128 + 2 x 64 x 128 + 3 x 128 x 128), and in
    every fourth layer 2 x 16 heads x 512 x half of the sequence."""
    model = catalog("qwen3-next-80b-a3b")
    linear = 36 * 2 * 32 * (5 * 64 * 128 + 3 * 128 * 128)
    full = 12 * 2 * 16 * 2 * 256 * 4096 / 2
    weights = float(matrix_weights(model)) + model.vocab * model.hidden
    assert flop_per_token(model, 4096) == pytest.approx(6 * weights + 3 * (linear + full))


def test_a_sequences_state_does_not_grow() -> None:
    """A matrix per value head in fp32, and three tokens of the convolution's input in bf16."""
    assert SPEC.state().bytes == 4 * 4 * 16 * 24 + 2 * 3 * (2 * 32 + 96)
