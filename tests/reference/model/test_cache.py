"""Decoding from what is remembered gives the logits of the whole sequence at once."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor

from reference.model import Cache, Transformer
from reference.model.transformer import initialize
from tests.reference.model.peers import GROUPED, LATENT, changed, yarn
from twin.spec.model import LatentAttention

K2_YARN = {"theta": 50_000, "yarn": yarn(32, 16, beta_fast=1.0, beta_slow=1.0)}
MODELS = {
    "latent": changed(LATENT),
    "latent, full rank, YaRN": changed(LATENT, attention__q_lora_rank=None, rope=K2_YARN),
    "grouped": changed(GROUPED),
    "multi-head, norms over heads": changed(
        GROUPED, attention__qk_norm=True, attention__kv_heads=4
    ),
}
every_model = pytest.mark.parametrize("name", MODELS)
PIECES = {"token by token": [1] * 70, "prompt, then tokens": [50] + [1] * 20, "chunks": [30, 3, 37]}
"""70 tokens: past 64, where storage grows."""


@cache
def case(name: str) -> tuple[Transformer, Tensor, Tensor]:
    """A model in double precision, tokens, and their logits at once."""
    spec = MODELS[name]
    model = Transformer(spec, dtype=torch.float64).eval()
    initialize(model, seed=0)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data *= parameter.shape[-1] ** -0.5 / 0.02
    tokens_BT = torch.randint(0, spec.vocab, (2, 70), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return model, tokens_BT, model(tokens_BT)


@torch.no_grad()
def decoded(model: Transformer, tokens_BT: Tensor, pieces: list[int], memory: Cache) -> Tensor:
    return torch.cat([model(piece, memory) for piece in tokens_BT.split(pieces, 1)], 1)


@pytest.mark.parametrize("pieces", PIECES.values(), ids=PIECES)
@every_model
def test_cached_decoding_is_the_full_forward(name: str, pieces: list[int]) -> None:
    model, tokens_BT, wanted = case(name)
    found = decoded(model, tokens_BT, pieces, Cache(model.spec.layers))
    assert wanted.std() > 0.1
    assert (found - wanted).abs().max() <= 1e-10


@pytest.mark.parametrize("name", ["latent", "latent, full rank, YaRN"])
def test_absorbed_latent_attention_is_the_naive_one(name: str, monkeypatch) -> None:
    model, tokens_BT, _ = case(name)
    calls: list[str] = []
    kind = type(next(model.attentions()))
    for way in ("_absorbed", "_from_latents"):
        monkeypatch.setattr(kind, way, counted(getattr(kind, way), calls, way))
    pieces = [50] + [1] * 20
    absorbed = decoded(model, tokens_BT, pieces, Cache(model.spec.layers))
    ways = calls.copy()
    naive = decoded(model, tokens_BT, pieces, Cache(model.spec.layers, absorbed=False))
    assert ways.count("_absorbed") == 20 * model.spec.layers
    assert calls.count("_absorbed") == 20 * model.spec.layers
    assert (absorbed - naive).abs().max() <= 1e-10


def counted(way, calls: list[str], name: str):
    def called(*args):
        calls.append(name)
        return way(*args)

    return called


@every_model
def test_a_cache_holds_latents_and_rotary_keys_or_keys_and_values(name: str) -> None:
    """K2 keeps 512 + 64 numbers per token and layer."""
    model, tokens_BT, _ = case(name)
    memory = Cache(model.spec.layers)
    decoded(model, tokens_BT, [50] + [1] * 20, memory)
    attention = model.spec.attention
    if isinstance(attention, LatentAttention):
        numbers = attention.kv_lora_rank + attention.qk_rope_head_dim
    else:
        numbers = 2 * attention.kv_heads * attention.head_dim
    assert memory.length == 70
    assert memory.bytes() == 2 * 70 * model.spec.layers * numbers * 8
