"""Cached, paged, batched decoding gives the logits of the whole sequence at once."""

from __future__ import annotations

import pytest
import torch

from reference.config import load_run
from reference.inference.forward import PagedCache, SequenceChunk, forward, row_width
from reference.model import Transformer
from reference.model.transformer import initialize
from tests.reference.inference.small import LATENT
from twin.spec.model import ModelSpec

YARN = {"factor": 32.0, "original_context": "16tok", "beta_fast": 1.0, "beta_slow": 1.0}
HEADS = {"kind": "gqa", "heads": 4, "kv_heads": 2, "head_dim": 8}
FULL_RANK = {**LATENT["attention"], "q_lora_rank": None}
MODELS = {
    name: ModelSpec.model_validate({**LATENT, **changes})
    for name, changes in {
        "latent": {},
        "latent, full rank, YaRN": {
            "attention": FULL_RANK,
            "rope": {"theta": 50_000, "yarn": YARN},
        },
        "grouped": {"attention": HEADS},
        "norms over heads": {"attention": {**HEADS, "kv_heads": 4, "qk_norm": True}},
    }.items()
}
STEPS = [
    {0: (0, 30), 1: (0, 1)},
    {0: (30, 33), 1: (1, 2)},
    {1: (2, 40), 0: (33, 34)},
    {0: (34, 35), 1: (40, 41)},
    {0: (35, 70)},
    {1: (41, 70)},
]
"""Which tokens of two sequences run together: pieces of prompts beside single tokens."""


@pytest.mark.parametrize("name", MODELS)
def test_pieces_in_scattered_blocks_give_the_logits_of_the_whole_at_every_position(
    name: str,
) -> None:
    model, tokens_BT, wanted = made(MODELS[name], torch.float64)
    assert (pieced(model, tokens_BT) - wanted).abs().max() <= 1e-10
    assert wanted.std() > 0.1


def test_the_preset_nano_gives_its_own_logits_in_fp32() -> None:
    model, tokens_BT, wanted = made(nano(), torch.float32)
    assert wanted.std() > 0.1
    assert (pieced(model, tokens_BT) - wanted).abs().max() <= 1e-4


def test_a_row_of_the_cache_is_the_latent_and_the_rotary_key() -> None:
    assert row_width(nano()) == 32 + 16
    assert row_width(MODELS["grouped"]) == 2 * 2 * 8
    cache = PagedCache(nano(), 10, 16, torch.zeros(1))
    assert cache.bytes == 4 * 10 * 16 * 48 * 4


def nano() -> ModelSpec:
    return load_run("nano").model


def made(spec: ModelSpec, dtype: torch.dtype) -> tuple[Transformer, torch.Tensor, torch.Tensor]:
    model = Transformer(spec, dtype=dtype).eval()
    initialize(model, seed=0)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data *= parameter.shape[-1] ** -0.5 / 0.02
    tokens_BT = torch.randint(0, spec.vocab, (2, 70), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return model, tokens_BT, model(tokens_BT)


def pieced(model: Transformer, tokens_BT: torch.Tensor) -> torch.Tensor:
    cache = PagedCache(model.spec, 18, 8, model.final_norm.gain.detach())
    blocks = [list(range(0, 18, 2)), list(range(17, 0, -2))]
    found: list[list[torch.Tensor]] = [[], []]
    for step in STEPS:
        pieces = [
            SequenceChunk(tokens_BT[row, a:b].tolist(), a, blocks[row])
            for row, (a, b) in step.items()
        ]
        logits = forward(model, pieces, cache, every=True)
        parts = logits.split([b - a for a, b in step.values()])
        for row, part in zip(step, parts, strict=True):
            found[row].append(part)
    return torch.stack([torch.cat(parts) for parts in found])
