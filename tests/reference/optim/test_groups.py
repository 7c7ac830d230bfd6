"""Which parameters are matrices, from names and shapes."""

from __future__ import annotations

import pytest
import torch

from reference.model import Transformer
from reference.optim.blocks import is_expert, matrices
from tests.reference.optim.split import Counts, count, shapes
from twin.loading import load_part


def kimi_k2() -> list[tuple[str, torch.Tensor]]:
    """Names and shapes of all of Kimi K2's parameters, written out from its configuration."""
    named: dict[str, tuple[int, ...]] = {
        "embedding.weight": (163_840, 7168),
        "final_norm.gain": (7168,),
        "head.weight": (163_840, 7168),
    }
    for layer in range(61):
        own: dict[str, tuple[int, ...]] = {
            "attention_norm.gain": (7168,),
            "attention.q_down.weight": (1536, 7168),
            "attention.q_norm.gain": (1536,),
            "attention.q_up.weight": (64 * 192, 1536),
            "attention.kv_down.weight": (512 + 64, 7168),
            "attention.kv_norm.gain": (512,),
            "attention.kv_up.weight": (64 * 256, 512),
            "attention.out.weight": (7168, 64 * 128),
            "ffn_norm.gain": (7168,),
        }
        if layer == 0:
            own |= {"ffn.up.weight": (2 * 18_432, 7168), "ffn.down.weight": (7168, 18_432)}
        else:
            own |= {
                "ffn.router.weight": (384, 7168),
                "ffn.experts.up": (384, 2 * 2048, 7168),
                "ffn.experts.down": (384, 7168, 2048),
                "ffn.shared.up.weight": (2 * 2048, 7168),
                "ffn.shared.down.weight": (7168, 2048),
            }
        named |= {f"layers.{layer}.{name}": shape for name, shape in own.items()}
    return [(name, torch.empty(shape, device="meta")) for name, shape in named.items()]


def test_kimi_k2_splits_as_its_configuration_says():
    assert count(kimi_k2()) == Counts(69_668, 1_024_058_392_576, 2_349_816_832)


@pytest.mark.slow
def test_the_model_of_kimi_k2_has_the_names_that_the_split_expects():
    model = Transformer(load_part("models", "kimi-k2").spec, device="meta")
    built = {name: tuple(param.shape) for name, param in model.named_parameters()}
    assert built == {name: tuple(param.shape) for name, param in kimi_k2()}


def test_the_nano_model_is_covered_once_by_matrices_and_the_rest():
    model = Transformer(load_part("models", "kimi-k2-nano").spec, device="meta")
    found = count(model.named_parameters())
    total = sum(param.numel() for param in model.parameters())
    assert found.muon_weights + found.adamw_weights == total
    small = [param.numel() for param in model.parameters() if param.dim() == 1]
    tables = model.embedding.weight.numel() + model.head.weight.numel()
    assert found.adamw_weights == sum(small) + tables


def test_gate_and_up_are_two_matrices_and_every_expert_has_its_own():
    up = torch.arange(24.0).view(8, 3)
    gate_and_up = matrices("layers.0.ffn.shared.up.weight", up)
    assert gate_and_up is not None
    assert gate_and_up.shape == (2, 4, 3)
    assert torch.equal(gate_and_up[1], up[4:])
    experts = torch.randn(5, 8, 3)
    stack = matrices("layers.1.ffn.experts.up", experts)
    assert stack is not None
    assert stack.shape == (10, 4, 3)
    assert torch.equal(stack[7], experts[3, 4:])
    assert stack.data_ptr() == experts.data_ptr()
    down = matrices("layers.1.ffn.experts.down", torch.randn(5, 3, 4))
    assert down is not None
    assert down.shape == (5, 3, 4)


def test_projections_to_heads_and_the_router_stay_whole():
    for name in ("attention.q_up.weight", "attention.kv_up.weight", "ffn.router.weight"):
        stack = matrices(f"layers.2.{name}", torch.empty(8, 4))
        assert stack is not None
        assert stack.shape == (1, 8, 4)


@pytest.mark.parametrize("name", ["embedding.weight", "head.weight"])
def test_tables_of_words_are_no_matrices(name):
    assert matrices(name, torch.empty(8, 4)) is None


def test_gains_are_no_matrices_and_only_routed_experts_are_experts():
    assert matrices("final_norm.gain", torch.empty(8)) is None
    assert is_expert("layers.1.ffn.experts.up")
    assert not is_expert("layers.1.ffn.shared.up.weight")
    assert shapes([("layers.1.ffn.experts.up", torch.empty(3, 8, 5))]) == {(4, 5): 6}
