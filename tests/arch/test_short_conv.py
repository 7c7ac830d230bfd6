"""Gated short convolutions beside the same block in PyTorch: parameters, what is kept, the cache.

Shapes as in `tests.arch.torch_mixers`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.arch.models import catalog
from tests.arch.torch_mixers import MixerLaws, keeping, ops, tiny
from twin.arch.blocks.short_conv import ShortConv
from twin.arch.count import parameters
from twin.arch.inference import cache_bytes
from twin.arch.mixer import CORE
from twin.arch.ops import Shape

SPEC = ShortConv(kind="short_conv", width=32)
MODEL = tiny(SPEC)
SHAPE = Shape(1, 96)


def at_once(b: Tensor, c: Tensor, x: Tensor, taps: Tensor) -> Tensor:
    """All tokens together, as sums of shifted inputs."""
    padded = functional.pad(b * x, (0, 0, 2, 0))
    return c * sum(padded[:, at : at + x.shape[1]] * taps[:, at] for at in range(3))


def token_by_token(b: Tensor, c: Tensor, x: Tensor, taps: Tensor) -> Tensor:
    """From the last two inputs, which is all that a sequence keeps."""
    state = x.new_zeros(x.shape[0], 2, x.shape[2])
    found: list[Tensor] = []
    for at in range(x.shape[1]):
        seen = torch.cat([state, (b * x)[:, at : at + 1]], 1)
        found.append(c[:, at] * (seen * taps.T).sum(1))
        state = seen[:, 1:]
    return torch.stack(found, 1)


def inputs() -> list[Tensor]:
    torch.manual_seed(0)
    made = [torch.randn(1, SHAPE.sequence, 32, dtype=torch.float64) for _ in range(3)]
    return [*made, torch.randn(32, 3, dtype=torch.float64)]


class Conv(nn.Module):
    """LFM2's block, whose convolution is one kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.made = nn.Linear(32, 96, bias=False)
        self.taps = nn.Parameter(torch.ones(32, 3))
        self.out = nn.Linear(32, 32, bias=False)

    def forward(self, given: Tensor) -> Tensor:
        b, c, x = self.made(given).chunk(3, -1)
        return self.out(c * keeping(lambda y, _: y * 1)(b * x, self.taps))


class TestShortConv(MixerLaws):
    model, shape = MODEL, SHAPE
    module, chunks, recurrence, inputs = Conv, at_once, token_by_token, inputs


def test_a_convolution_reads_and_writes_each_value_once() -> None:
    found, size = ops(MODEL, SHAPE), 2 * SHAPE.tokens * 32
    assert found[CORE].forward.bytes == 2 * size
    assert found["mixer_gates"].forward.bytes == found["mixer_weigh"].forward.bytes == 3 * size


def test_lfm2_keeps_little_of_a_sequence_but_for_six_layers() -> None:
    """18 layers of 2 inputs of 2,048 channels, and 6 of 8 key-value heads of 64; its parameters are
    those of the released files in bf16, and 22 x 32 corrections in fp32 beside them."""
    model = catalog("lfm2-8b-a1b")
    assert cache_bytes(model, 4096) == 18 * 2 * 2048 * 2 + 6 * 4096 * 2 * 8 * 64 * 2
    assert parameters(model).total == 8_339_929_856 + 704
