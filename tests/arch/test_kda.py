"""Kimi delta attention beside the same block in PyTorch: parameters, FLOP, what is kept.

Shapes as in `tests.arch.torch_mixers`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.arch.models import catalog
from tests.arch.test_gated_delta import token_by_token
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
from twin.arch.blocks.kda import CHUNK, Kda
from twin.arch.count import flop_per_token, matrix_weights
from twin.arch.ops import Shape

SPEC = Kda(kind="kda", num_heads=4, head_dim=16)
MODEL = tiny(SPEC)
SHAPE = Shape(1, 2 * CHUNK)
WIDTH = 4 * 16


def delta(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor) -> Tensor:
    """The rule in chunks with a decay per channel (Kimi Linear, section 3.2): both factors of a
    score carry the decay since the chunk's start. In double precision and with mild decays that is
    safe; kernels do it in parts of a chunk."""
    q, k, v, decay, beta = (chunked(one, CHUNK) for one in (q, k, v, decay, beta))
    since = decay.cumsum(-2)
    grown, shrunk = since.exp(), (-since).exp()
    met = (beta * k * grown) @ (k * shrunk).transpose(-1, -2)
    lower = torch.eye(CHUNK, dtype=q.dtype) + met.tril(-1)
    inverse = torch.linalg.inv_ex(lower).inverse
    w, u = inverse @ (beta * grown * k), inverse @ (beta * v)
    scores = ((q * grown) @ (k * shrunk).transpose(-1, -2)).tril()
    state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    found: list[Tensor] = []
    for at in range(q.shape[2]):
        new = u[:, :, at] - w[:, :, at] @ state
        found.append((q * grown)[:, :, at] @ state + scores[:, :, at] @ new)
        last = since[:, :, at, -1:]
        left = (last - since[:, :, at]).exp() * k[:, :, at]
        state = state * last.exp().transpose(-1, -2) + left.transpose(-1, -2) @ new
    return whole(torch.stack(found, 2))


def inputs() -> list[Tensor]:
    torch.manual_seed(0)
    made = [torch.randn(1, SHAPE.sequence, 4, n, dtype=torch.float64) for n in (16,) * 4 + (1,)]
    made[1] = functional.normalize(made[1], dim=-1)
    made[3], made[4] = -0.1 * functional.softplus(made[3]), torch.sigmoid(made[4])
    return made


class Block(nn.Module):
    """Kimi Linear's block with kernels that keep what those of flash-linear-attention keep."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(32, 3 * WIDTH, bias=False)
        self.thin = nn.Linear(32, 2 * 16 + 4, bias=False)
        self.decay, self.gate = (nn.Linear(16, WIDTH, bias=False) for _ in range(2))
        self.convs = nn.ParameterList(nn.Parameter(torch.randn(WIDTH, 4)) for _ in range(3))
        self.a_log, self.dt_bias = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(WIDTH))
        self.gain = nn.Parameter(torch.ones(16))
        self.out = nn.Linear(WIDTH, 32, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(x).split([WIDTH] * 3, -1)
        q, k, v = (
            keeping(shifted)(part, weight).unflatten(-1, (4, 16))
            for part, weight in zip(parts, self.convs, strict=True)
        )
        decay_in, gate_in, beta_in = self.thin(x).split([16, 16, 4], -1)
        decay, gate = (
            made(part).unflatten(-1, (4, 16))
            for made, part in ((self.decay, decay_in), (self.gate, gate_in))
        )
        beta = keeping(torch.sigmoid, inputs=False, output=True)(beta_in)
        squares = tuple(torch.zeros(1, x.shape[1], 4, CHUNK, dtype=x.dtype) for _ in range(2))
        core = keeping(lambda *given: given[2] * 1, more=squares)
        o = core(normed(q), normed(k), v, decay, beta, self.a_log, self.dt_bias)
        return self.out(weighed(o, gate, self.gain).flatten(2))


class TestKda(MixerLaws):
    model, shape = MODEL, SHAPE
    module, chunks, recurrence, inputs = Block, delta, token_by_token, inputs
    on_every_rank = frozenset({"mixer_in_thin"})


def test_backward_does_twice_as_many_and_makes_w_u_and_states_again() -> None:
    leaves = [one.requires_grad_() for one in inputs()]
    made = delta(*leaves).sum()
    twice = flop_of(made.backward)
    again = 2 * SHAPE.tokens * 4 * (2 * CHUNK * 16 + 2 * 16 * 16)
    # The state before the first chunk has no gradient, and nothing reads that behind the last.
    missing = 4 * (2 * CHUNK * 4 * 16 * 16)
    assert ops(MODEL, SHAPE)["mixer_core"].backward.flop == twice + missing + again


def test_products_of_their_own_do_the_same_work() -> None:
    one, apart = (ops(MODEL, Shape(1, 128, separate=own)).values() for own in (False, True))
    assert sum(op.forward.flop for op in one) == sum(op.forward.flop for op in apart)
    assert sum(op.saved for op in one) == sum(op.saved for op in apart)


def test_a_kimi_linear_token_costs_a_tenth_of_a_k2_token() -> None:
    """20 layers of 2 x 32 x (5 x 64 x 128 + 3 x 128 x 128) between tokens, 7 of attention."""
    model = catalog("kimi-linear-48b-a3b")
    linear = 20 * 2 * 32 * (5 * 64 * 128 + 3 * 128 * 128)
    latent = 7 * 32 * (192 + 128) * 4096
    weights = float(matrix_weights(model)) + model.vocab * model.hidden
    found = flop_per_token(model, 4096)
    assert found == 6 * weights + 3 * (linear + latent)
    assert 0.09 < found / flop_per_token(catalog("kimi-k2"), 4096) < 0.11
