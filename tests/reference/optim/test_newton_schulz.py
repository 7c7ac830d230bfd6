"""The iteration against the singular value decomposition, which it approximates, and its count."""

from __future__ import annotations

from math import sqrt

import pytest
import torch

from reference.optim.muon import muon_flop, orthogonalize
from tests.reference.optim.split import Counts

SHAPES = [(64, 128), (128, 64), (96, 96), (256, 40)]


def spread(rows: int, cols: int, least: float, seed: int = 0) -> torch.Tensor:
    """A matrix whose singular values, over its Frobenius norm, reach down to `least`."""
    generator = torch.Generator().manual_seed(seed)
    u, _, v = torch.linalg.svd(
        torch.randn(rows, cols, generator=generator, dtype=torch.float64), full_matrices=False
    )
    s = torch.logspace(0, -2, min(rows, cols), dtype=torch.float64)
    s = (s / s.norm()).clamp(min=least)
    return ((u * (s / s.norm())) @ v).float()


@pytest.mark.parametrize(("rows", "cols"), SHAPES)
def test_singular_values_end_in_the_published_band(rows, cols):
    # arXiv:2502.16982; the quintic takes [0.01, 1] into [0.68, 1.135], bf16 adds about 1%.
    stack = torch.stack([spread(rows, cols, 0.012, seed) for seed in range(3)])
    singular = torch.linalg.svdvals(orthogonalize(stack).double())
    assert singular.min() > 0.68 - 0.015
    assert singular.max() < 1.135 + 0.015


@pytest.mark.parametrize(("rows", "cols"), SHAPES)
def test_singular_vectors_are_those_of_the_polar_factor(rows, cols):
    matrix = spread(rows, cols, 0.012)
    u, _, v = torch.linalg.svd(matrix.double(), full_matrices=False)
    turned = u.mT @ orthogonalize(matrix[None])[0].double() @ v.mT
    off_diagonal = turned - torch.diag(turned.diagonal())
    assert turned.diagonal().min() > 0.66
    assert off_diagonal.abs().max() < 0.03


@pytest.mark.parametrize(("rows", "cols"), [(64, 256), (256, 64), (128, 128), (24, 24)])
def test_the_scaled_update_has_the_rms_of_adamw(rows, cols):
    generator = torch.Generator().manual_seed(2)
    ortho = orthogonalize(torch.randn(1, rows, cols, generator=generator)).double()
    rms = 0.2 * sqrt(max(rows, cols)) * ortho.square().mean().sqrt()
    assert rms == pytest.approx(0.2, rel=0.25)


@pytest.mark.parametrize(("rows", "cols"), [(64, 128), (128, 64), (17, 17), (300, 65), (33, 100)])
def test_matrices_together_have_the_bits_of_each_alone(rows, cols):
    generator = torch.Generator().manual_seed(3)
    stack = torch.randn(16, rows, cols, generator=generator)
    alone = torch.cat([orthogonalize(one[None]) for one in stack])
    assert torch.equal(orthogonalize(stack), alone)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_input_is_left_as_it_was_and_zero_stays_zero(dtype):
    stack = torch.stack([torch.zeros(20, 30), torch.ones(20, 30)]).to(dtype)
    before = stack.clone()
    ortho = orthogonalize(stack)
    assert torch.equal(stack, before)
    assert not ortho[0].any()
    assert ortho.isfinite().all()


def test_flop_count_by_hand_and_for_kimi_k2():
    # 2 x 3 matrices: 2*2*2*3 + 2*2*2*2 + 2*2*2*3 = 64 per iteration.
    assert muon_flop({(3, 2): 1}) == 5 * 64
    assert muon_flop({(2, 3): 4}, steps=1) == 4 * 64
    hidden, expert, dense = 7168, 2048, 18432
    attention = {(1536, hidden): 61, (64 * 192, 1536): 61, (576, hidden): 61, (64 * 256, 512): 61}
    k2 = attention | {
        (hidden, 64 * 128): 61,
        (384, hidden): 60,
        (expert, hidden): 60 * 385 * 2,
        (hidden, expert): 60 * 385,
        (dense, hidden): 2,
        (hidden, dense): 1,
    }
    assert sum(k2.values()) == 69_668
    assert muon_flop(k2) == pytest.approx(4.8e16, rel=0.02)
    assert Counts(69_668, sum(r * c * n for (r, c), n in k2.items()), 0).muon_weights == (
        1_024_058_392_576
    )
