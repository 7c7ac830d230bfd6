"""Parameter counts: published totals, and an independent count by PyTorch."""

from math import gcd

import pytest
import torch

from tests.arch.models import NAMES, TINY, catalog
from tests.arch.torch_models import Transformer
from twin.arch.count import parameters
from twin.arch.ops import Shape, Weights
from twin.arch.stack import layers
from twin.spec.model import ModelSpec

K2 = catalog("kimi-k2")


def summed(model: ModelSpec, shape: Shape) -> Weights:
    return sum((layer.weights for layer in layers(model, shape)), Weights())


def torch_parameters(model: ModelSpec) -> int:
    with torch.device("meta"):
        module = Transformer(model)
    tensors = [*module.parameters(), *module.buffers()]
    return sum(tensor.numel() for tensor in tensors)


def test_kimi_k2_has_the_parameters_of_its_released_shards():
    """1,026,408,232,448: a third party's audit of all 61 shard headers (139,644 tensors)."""
    count = parameters(K2)
    assert count.total == 1_026_408_232_448
    assert count.routed_experts == 1_014_686_023_680
    assert count.embedding == count.head == 1_174_405_120


def test_kimi_k2_activates_the_published_billions_under_each_convention():
    count = parameters(K2)
    assert count.activated_without_embeddings == 30_512_690_688
    assert count.activated_with_head == 31_687_095_808
    assert count.activated_with_embeddings == 32_861_500_928


def test_kimi_k2_with_layer_zero_as_moe_is_the_1043_billion_of_its_report():
    assert parameters(K2).total_if_all_moe == 1_042_970_097_536


def test_muon_adamw_and_buffers_share_out_kimi_k2_without_rest():
    count = parameters(K2)
    assert count.matrix_tensors == 69_668
    assert count.matrices == 1_024_058_392_576
    assert count.adamw == 2_349_816_832
    assert count.buffers == 60 * 384
    assert count.matrices + count.adamw + count.buffers == count.total


def test_a_kimi_k2_layer_has_the_parts_computed_by_hand():
    moe = layers(K2, Shape(1, 4096))[2].weights
    attention = 7168 * 1536 + 1536 + 1536 * 64 * 192 + 7168 * 576 + 512 + 512 * 64 * 256
    attention += 64 * 128 * 7168
    assert attention == 101_124_096
    assert moe.total == attention + 385 * 3 * 7168 * 2048 + 7168 * 384 + 384 + 2 * 7168
    assert layers(K2, Shape(1, 4096))[1].weights.total == 497_500_160


def test_deepseek_v3_has_its_published_parameters_without_multi_token_prediction():
    count = parameters(catalog("deepseek-v3"))
    assert count.total == 671_026_419_200
    assert count.activated_without_embeddings == 35_698_939_392
    assert count.activated_with_head == 36_625_618_432


@pytest.mark.parametrize("name", ["gpt-22b", "gpt-175b"])
def test_a_gpt_has_the_parameters_of_megatrons_formula(name: str):
    """P = 12 L h^2 (1 + 13 / 12h + (V + s) / 12Lh), Narayanan et al. 2021 (arXiv:2104.04473),
    equation 2, which leaves out the final norm: 2h."""
    model = catalog(name)
    size, depth = model.hidden, model.layers
    formula = 12 * depth * size**2 + 13 * depth * size + (51200 + 2048) * size
    assert parameters(model).total == formula + 2 * size


@pytest.mark.parametrize("name", TINY)
def test_every_block_counts_as_the_same_model_in_pytorch(name: str):
    count = parameters(TINY[name])
    assert count.total + count.multi_token_prediction == torch_parameters(TINY[name])


@pytest.mark.parametrize("name", NAMES)
def test_layers_of_a_catalog_model_add_up_to_its_parameters(name: str):
    model = catalog(name)
    count = parameters(model)
    weights = summed(model.model_copy(update={"mtp_layers": 0}), Shape(1, 2048))
    assert weights.total == count.total
    matrices = weights.replicated_matrices + weights.tensor_matrices + weights.expert_matrices
    assert (matrices, weights.buffers) == (count.matrices, count.buffers)


@pytest.mark.parametrize("name", NAMES)
def test_shards_times_their_degrees_are_the_whole_model(name: str):
    model = catalog(name)
    attention, moe = model.attention, model.moe
    tensor = gcd(8, attention.heads, getattr(attention, "kv_heads", 8), model.vocab)
    expert = gcd(16, moe.experts) if moe else 1
    shape = Shape(1, 2048, tensor=tensor, expert=expert, sequence_parallel=True)
    shard = summed(model, shape)
    whole = shard.replicated + tensor * shard.tensor + expert * shard.expert
    count = parameters(model)
    assert whole == count.total + count.multi_token_prediction
    assert (shard.tensor > 0, shard.expert > 0) == (True, model.moe is not None)


@pytest.mark.parametrize("name", TINY)
def test_shapes_of_matrices_cover_the_counts_of_each_bucket(name: str):
    for layer in layers(TINY[name], Shape(2, 16, tensor=2, expert=4)):
        held = {"replicated": 0, "tensor": 0, "expert": 0}
        for group in layer.matrices:
            held[group.bucket] += group.weights
        own = layer.weights
        assert held["replicated"] == own.replicated_matrices
        assert held["tensor"] == own.tensor_matrices
        assert held["expert"] == own.expert_matrices


def test_experts_of_a_rank_are_whole_matrices():
    """24 of 384 experts on each of 16 ranks: 72 matrices of 7168 x 2048 per layer."""
    layer = layers(K2, Shape(1, 4096, expert=16))[2]
    experts = [group for group in layer.matrices if group.bucket == "expert"]
    assert sum(group.count for group in experts) == 72
    assert {tuple(sorted((group.rows, group.cols))) for group in experts} == {(2048, 7168)}


def test_a_tied_head_weighs_nothing_but_names_its_copy_of_the_embedding():
    embedding, *_, head = layers(TINY["gpt"], Shape(1, 16, tensor=2))
    assert head.weights.total == 2 * 32
    assert head.tied.tensor == embedding.weights.tensor == 96 * 32 // 2


def test_a_dense_model_activates_all_its_parameters():
    count = parameters(TINY["gpt"])
    assert count.activated_with_embeddings == count.total
    assert count.activated_with_head == count.total - count.positions


def test_layers_of_one_kind_are_one_object():
    stack = layers(K2, Shape(1, 4096, expert=16))
    assert len(stack) == 63
    assert len({id(layer) for layer in stack}) == 4


def test_a_sharding_that_does_not_divide_the_model_is_refused_by_name():
    with pytest.raises(ValueError, match=r"model\.attention\.heads, .*model\.moe\.experts"):
        layers(TINY["tiny-moe"], Shape(1, 16, tensor=3, expert=3))
