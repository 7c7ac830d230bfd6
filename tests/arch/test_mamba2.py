"""Mamba-2 beside the same block in PyTorch: parameters, FLOP, what is kept.

Shapes as in `tests.arch.torch_mixers`; G groups of heads.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.arch.models import catalog
from tests.arch.torch_mixers import (
    MixerLaws,
    flop_of,
    keeping,
    ops,
    torch_parameters,
    weighed,
)
from twin.arch.blocks.mamba2 import Mamba2
from twin.arch.count import flop_per_token, matrix_weights
from twin.arch.ops import Op, Shape
from twin.arch.stack import layers
from twin.spec.model import DenseFfn, GroupedAttention, ModelSpec, Moe

SPEC = Mamba2(kind="mamba2", num_heads=8, head_dim=8, groups=2, state_dim=16, chunk=32)
MODEL = ModelSpec(
    name="tiny-mamba",
    layers=4,
    hidden=32,
    vocab=96,
    attention=GroupedAttention(kind="gqa", heads=4, kv_heads=2, head_dim=8),
    ffn=DenseFfn(kind="squared_relu", width=64),
    moe=Moe(
        experts=8, top_k=2, width=20, ungated=True, latent=16, shared_experts=1, shared_width=24
    ),
    mixer=SPEC,
    pattern=("mamba2", "moe", "attention", "dense"),
    rotary=False,
)
SHAPE = Shape(1, 96)
CONVOLVED = 64 + 2 * 2 * 16


def dual(x: Tensor, b: Tensor, c: Tensor, decay: Tensor) -> Tensor:
    """SSD in chunks (Dao and Gu 2024, listing 1): x is [B, S, G, heads of a group, W], b and c are
    [B, S, G, states], decay is [B, S, G, heads of a group]."""
    batch, length, groups, heads, width = x.shape
    size = SPEC.chunk
    shape = (batch, length // size, size, groups)
    x, decay = x.reshape(*shape, heads, width), decay.reshape(*shape, heads)
    b, c = (y.reshape(*shape, -1).permute(0, 1, 3, 2, 4) for y in (b, c))
    since = decay.cumsum(2).permute(0, 1, 3, 4, 2)  # [B, N, G, heads, C]
    values = x.permute(0, 1, 3, 4, 2, 5)  # [B, N, G, heads, C, W]
    scores = (c @ b.transpose(-1, -2)).unsqueeze(3)
    ratio = (since.unsqueeze(-1) - since.unsqueeze(-2)).tril().exp().tril()
    near = (scores * ratio) @ values
    left = (since[..., -1:] - since).exp().unsqueeze(-1) * values
    states = torch.einsum("bngcs,bnghcw->bnghsw", b, left)
    carried = torch.zeros_like(states[:, 0])
    far: list[Tensor] = []
    for at in range(length // size):
        far.append(torch.einsum("bgcs,bghsw->bghcw", c[:, at], carried))
        carried = carried * since[:, at, ..., -1, None, None].exp() + states[:, at]
    found = near + since.exp().unsqueeze(-1) * torch.stack(far, 1)
    return found.permute(0, 1, 4, 2, 3, 5).reshape(batch, length, groups, heads, width)


def token_by_token(x: Tensor, b: Tensor, c: Tensor, decay: Tensor) -> Tensor:
    state = x.new_zeros(*x.shape[:1], *x.shape[2:4], b.shape[-1], x.shape[-1])
    found: list[Tensor] = []
    for at in range(x.shape[1]):
        state = state * decay[:, at, ..., None, None].exp()
        state = state + torch.einsum("bgs,bghw->bghsw", b[:, at], x[:, at])
        found.append(torch.einsum("bgs,bghsw->bghw", c[:, at], state))
    return torch.stack(found, 1)


def inputs() -> list[Tensor]:
    torch.manual_seed(0)
    sizes = ((2, 4, 8), (2, 16), (2, 16), (2, 4))
    made = [torch.randn(1, SHAPE.sequence, *size, dtype=torch.float64) for size in sizes]
    made[3] = -functional.softplus(made[3])
    return made


class Block(nn.Module):
    """Nemotron-H's block with one kernel that keeps what that of mamba-ssm keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(32, 64 + CONVOLVED + 8, bias=False)
        self.conv = nn.Parameter(torch.randn(CONVOLVED, 4))
        self.conv_bias = nn.Parameter(torch.zeros(CONVOLVED))
        self.a_log, self.d, self.dt_bias = (nn.Parameter(torch.ones(8)) for _ in range(3))
        self.gain = nn.Parameter(torch.ones(64))
        self.out = nn.Linear(64, 32, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        wide = self.wide(x)
        own = (self.conv, self.conv_bias, self.a_log, self.d, self.dt_bias)
        o = keeping(lambda y, *_: y[..., 64:128] * 1, output=True)(wide, *own)
        return self.out(weighed(o, wide[..., :64], self.gain))


class TestMamba2(MixerLaws):
    model, shape = MODEL, SHAPE
    module, chunks, recurrence, inputs = Block, dual, token_by_token, inputs


def test_backward_does_twice_as_many_and_makes_states_and_scores_again() -> None:
    leaves = [one.requires_grad_() for one in inputs()]
    made = dual(*leaves).sum()
    twice = flop_of(made.backward)
    again = 2 * SHAPE.tokens * 2 * (4 * 8 * 16 + 32 * 16)
    # The state before the first chunk is zero and needs no gradient.
    missing = 2 * 32 * 2 * 4 * 8 * 16
    assert ops(MODEL, SHAPE)["mixer_core"].backward.flop == twice + missing + again


def test_layers_of_one_block_have_one_norm_and_one_residual() -> None:
    names = [[item.name for item in layer.items] for layer in layers(MODEL, SHAPE)[1:-1]]
    norms = [[one for one in own if one.endswith(("attention_norm", "ffn_norm"))] for own in names]
    assert norms == [["attention_norm"], ["ffn_norm"], ["attention_norm"], ["ffn_norm"]]
    assert [layer.kind for layer in layers(MODEL, SHAPE)[1:-1]] == [
        "mixer",
        "moe",
        "mixer",
        "dense",
    ]


class Experts(nn.Module):
    """Ungated experts in a latent width beside a shared one (Nemotron 3 Super)."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(32, 8, bias=False)
        self.down, self.back = nn.Linear(32, 16, bias=False), nn.Linear(16, 32, bias=False)
        self.up = nn.Parameter(torch.empty(8, 16, 20))
        self.out = nn.Parameter(torch.empty(8, 20, 16))
        self.shared = nn.ModuleList((nn.Linear(32, 24, bias=False), nn.Linear(24, 32, bias=False)))

    def forward(self, x_TD: Tensor) -> Tensor:
        chosen = torch.sigmoid(self.router(x_TD))[:, :2]
        copies = torch.arange(x_TD.shape[0]).repeat_interleave(2)
        rows = self.down(x_TD).index_select(0, copies).view(-1, 8, 16).transpose(0, 1)
        made = torch.bmm(functional.relu(torch.bmm(rows.contiguous(), self.up)).square(), self.out)
        summed = made.transpose(0, 1).reshape(-1, 2, 16) * chosen.unsqueeze(-1)
        up, down = self.shared
        return self.back(summed.sum(1)) + down(functional.relu(up(x_TD)).square())


def test_ungated_experts_of_a_latent_width_do_what_pytorch_counts() -> None:
    module = Experts()
    layer = layers(MODEL, SHAPE)[2]
    found = sum(item.forward.flop for item in layer.items if isinstance(item, Op))
    assert found == flop_of(lambda: module(torch.randn(SHAPE.sequence, 32)))
    assert layer.weights.total - 32 == torch_parameters(module)


def test_a_nemotron_3_nano_token_costs_20_gigaflop_to_train() -> None:
    """23 layers of 2 x 8 groups x (2 x 512 x 128 + 128 x 128 + 128 x 512) between tokens, 6 of
    attention."""
    model = catalog("nemotron-3-nano-30b-a3b")
    linear = 23 * 2 * 8 * (2 * 512 * 128 + 128 * 128 + 128 * 512)
    full = 6 * 32 * 2 * 128 * 4096
    weights = float(matrix_weights(model)) + model.vocab * model.hidden
    found = flop_per_token(model, 4096)
    assert found == pytest.approx(6 * weights + 3 * (linear + full))
    assert found == pytest.approx(20.2e9, rel=1e-3)
