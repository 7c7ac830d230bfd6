"""Spectral norm and SVD entropy against the decomposition itself."""

from __future__ import annotations

from math import log

import pytest
import torch

from reference.optim.diagnostics import role, spectra, spectral_norm, svd_entropy


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("shape", [(3, 40, 90), (2, 512, 512), (1, 7, 1)])
def test_the_spectral_norm_is_found_from_below(shape):
    stack = draw(*shape)
    exact = torch.linalg.svdvals(stack).amax(dim=1)
    found = spectral_norm(stack)
    assert torch.all(found <= exact * (1 + 1e-5))
    assert torch.all(found > exact * 0.98)


def test_a_singular_value_that_stands_out_is_found_closely():
    stack = draw(2, 60, 80)
    stack[:, 0] *= 20
    exact = torch.linalg.svdvals(stack).amax(dim=1)
    assert torch.allclose(spectral_norm(stack), exact, rtol=1e-5)


@pytest.mark.parametrize("shape", [(3, 40, 90), (3, 90, 40)])
def test_entropy_is_that_of_the_singular_values(shape):
    stack = draw(*shape)
    p = torch.linalg.svdvals(stack.double()).square()
    p = p / p.sum(dim=1, keepdim=True)
    exact = -(p * p.log()).sum(dim=1) / log(40)
    assert torch.allclose(svd_entropy(stack).double(), exact, atol=1e-5)


def test_entropy_is_one_for_orthogonal_and_zero_for_rank_one_and_zero_matrices():
    orthogonal = torch.linalg.qr(draw(30, 30))[0]
    rank_one = draw(30, 1) @ draw(1, 30)
    entropy = svd_entropy(torch.stack([orthogonal, rank_one, torch.zeros(30, 30)]))
    assert entropy.tolist() == pytest.approx([1, 0, 0], abs=1e-5)


def test_spectra_are_told_by_role_over_all_layers():
    big = 10 * torch.eye(8)
    named = {
        "embedding.weight": big,
        "layers.0.attention.out.weight": torch.eye(8),
        "layers.1.attention.out.weight": big,
        "layers.1.ffn.experts.down": torch.eye(8).repeat(6, 1, 1),
    }
    named["layers.1.ffn.experts.down"][5] *= 3
    found = spectra(named.items())
    assert found.keys() == {"attention.out", "ffn.experts.down"}
    assert found["attention.out"].spectral_norm == pytest.approx(10, rel=1e-5)
    assert found["ffn.experts.down"].spectral_norm == pytest.approx(3, rel=1e-5)
    assert found["attention.out"].entropy == pytest.approx(1, abs=1e-5)
    assert role("layers.12.ffn.shared.up.weight") == "ffn.shared.up"
