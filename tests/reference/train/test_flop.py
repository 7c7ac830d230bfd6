"""FLOP per token against published counts, and peaks by the names that CUDA gives devices."""

from __future__ import annotations

import pytest

from reference.model import Transformer
from reference.trainer.trainee import (
    attention_flop_per_token,
    catalog_peak,
    flop_per_token,
    matmul_weights_per_token,
)
from twin.loading import load_part


def test_kimi_k2s_weights_per_token_are_its_published_activated_parameters() -> None:
    """31,687,095,808 activated with the head (DeepSeek-V3's convention, in which its published
    numbers come out); of those, gains and router biases are in no matrix product."""
    spec = load_part("models", "kimi-k2").spec
    model = Transformer(spec, device="meta")
    gains = sum(weight.numel() for weight in model.parameters() if weight.dim() == 1)
    assert matmul_weights_per_token(model) == 31_687_095_808 - gains - 60 * 384


def test_kimi_k2s_attention_is_a_thirteenth_of_its_products_at_4k() -> None:
    """By hand: 61 layers, 64 heads of 192 + 128, 2048.5 visible tokens on average: 5.12 GFLOP
    forward per token beside 63.4 of products with weights."""
    spec = load_part("models", "kimi-k2").spec
    forward = attention_flop_per_token(spec, 4096) / 3
    assert forward == 61 * 64 * 2 * (192 + 128) * 2048.5
    assert forward == pytest.approx(5.12e9, rel=1e-3)


def test_tied_embeddings_count_as_the_head() -> None:
    spec = load_part("models", "kimi-k2-nano").spec
    apart = Transformer(spec, device="meta")
    tied = Transformer(spec.model_copy(update={"tied_embeddings": True}), device="meta")
    assert flop_per_token(apart, 512) == flop_per_token(tied, 512)


@pytest.mark.parametrize(
    ("device", "peak"),
    [
        ("NVIDIA H200", 989e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA GeForce RTX 4090", None),
    ],
)
def test_a_peak_is_that_of_the_catalogs_board_or_unknown(device: str, peak: float | None) -> None:
    assert catalog_peak(device) == (None if peak is None else pytest.approx(peak, rel=2e-3))
