"""What a layer keeps for its backward, to the byte: the simulator's ledger plus differences that
have names.

The simulator leaves out statistics of norms and the order of rows, and counts 4 bytes for each
chosen expert's index and weight; the reference keeps

- `rstd` of each norm, 4 bytes per token, unless norms are recomputed;
- indices of chosen experts in int64, as torch's gather wants them: 4 bytes more per copy;
- weights before they are normalised (4 per copy) and their sum (4 per token), which the division's
  gradient reads, beside those after it;
- the order of rows and its inverse, int64: 16 bytes per copy.
"""

from __future__ import annotations

import pytest
import torch

from tests.reference.memory.ledgers import by_layer
from tests.reference.memory.small import EXACT, GROUPED, KIMI_K2, forward, model, spec, tokens
from twin.arch.ops import Shape
from twin.arch.stack import layers
from twin.planning.footprint import kept_bytes
from twin.spec.memory import MemorySpec
from twin.spec.model import ModelSpec

POLICIES = EXACT | {
    "moe_up_input": MemorySpec(fp8_store=("moe_up_input",)),
    "swiglu_input": MemorySpec(fp8_store=("swiglu_input",)),
    "kimi k2": KIMI_K2,
    "kimi k2 on the device": KIMI_K2.model_copy(update={"offload": ()}),
}


def kept(of: ModelSpec, policy: MemorySpec, device: str, length: int) -> list[int]:
    """Bytes that each transformer layer of a bf16 model keeps, wherever they are."""
    made = model(of, torch.bfloat16, device)
    _, stash = forward(made, tokens(made, 1, length), policy, measure=True)
    found = by_layer(stash.ledger)
    away = "activations" in policy.offload
    for layer in range(of.layers):
        assert (found[layer].device, found[layer].host)[not away] == 0
    return [found[layer].device + found[layer].host for layer in range(of.layers)]


def expected(of: ModelSpec, policy: MemorySpec, length: int) -> list[int]:
    """The simulator's figure."""
    made = layers(of, Shape(1, length))[1 : of.layers + 1]
    return [round(kept_bytes(layer, policy)) for layer in made]


def named(of: ModelSpec, policy: MemorySpec, layer: int, length: int, norms: int = 4) -> int:
    """The differences of the module's docstring."""
    if "full" in policy.recompute:
        return 0
    per_token = 0 if "norms" in policy.recompute else 4 * norms
    if of.moe is not None and of.has_experts(layer):
        per_token += 4 * of.moe.normalize_weights + of.moe.top_k * (4 + 4 + 16)
    return per_token * length


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("name", ["kimi-k2-nano", "kimi-k2-tiny"])
def test_layers_keep_what_the_simulator_says(name: str, policy: MemorySpec):
    of = spec(name).model_copy(update={"layers": 2})
    more = [named(of, policy, layer, 64) for layer in range(2)]
    assert kept(of, policy, "cpu", 64) == [
        twin + other for twin, other in zip(expected(of, policy, 64), more, strict=True)
    ]


@pytest.mark.parametrize("policy", ["nothing", "kimi k2"])
def test_at_kimi_k2s_widths_they_agree_within_0_2_percent(policy: str):
    """A dense and an expert layer of the real model, on the meta device."""
    of = spec("kimi-k2").model_copy(update={"layers": 2})
    found = kept(of, POLICIES[policy], "meta", 4096)
    assert found == pytest.approx(expected(of, POLICIES[policy], 4096), rel=0.002)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_at_tiny_widths_they_agree_within_2_percent(policy: MemorySpec):
    of = spec("kimi-k2-tiny").model_copy(update={"layers": 2})
    for layer, twin in enumerate(expected(of, policy, 64)):
        assert named(of, policy, layer, 64) <= 0.02 * twin


@pytest.mark.parametrize("rotary", [True, False])
@pytest.mark.parametrize("policy", ["nothing", "norms", "swiglu", "attention_core", "full"])
def test_grouped_attention_keeps_what_the_simulator_says(policy: str, rotary: bool):
    """Norms of queries and keys have a row per head. What attention reads is theirs, or what a
    rotation made of it, which no norm brings back."""
    of = GROUPED.model_copy(update={"layers": 1, "rotary": rotary})
    more = named(of, POLICIES[policy], 0, 64, norms=2 + 4 + 2)
    assert kept(of, POLICIES[policy], "cpu", 64) == [expected(of, POLICIES[policy], 64)[0] + more]
