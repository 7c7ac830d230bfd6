"""Collectives inside layers: which, in which direction, how many bytes, and where they stand."""

import pytest

from tests.arch.models import TINY, TINY_GPT, catalog
from twin.arch.ops import Exchange, Shape
from twin.arch.stack import layers
from twin.spec.model import ModelSpec

GPT_BYTES = 2 * 2 * 16 * 32
"""Two sequences of 16 tokens, 32 wide, 2 bytes."""


def exchanges(model: ModelSpec, shape: Shape, layer: int) -> list[Exchange]:
    return [item for item in layers(model, shape)[layer].items if isinstance(item, Exchange)]


def test_without_sharding_nothing_is_exchanged():
    for model in TINY.values():
        for index in range(model.layers + 2):
            assert exchanges(model, Shape(2, 16), index) == []


def test_a_tensor_parallel_layer_all_reduces_twice_forward_and_twice_backward():
    """Shoeybi et al. 2019, figure 4."""
    found = exchanges(TINY_GPT, Shape(2, 16, tensor=2), 1)
    assert [item.forward for item in found] == [None, "all_reduce", None, "all_reduce"]
    assert [item.backward for item in found] == ["all_reduce", None, "all_reduce", None]
    assert {item.bytes for item in found} == {GPT_BYTES}


def test_sequence_parallel_gathers_before_scatters_after_and_gathers_once_more_backward():
    """Korthikanti et al. 2022, figures 5 and 6: the same bytes as two all-reduces each way, plus
    one all-gather per GEMM block backward."""
    found = exchanges(TINY_GPT, Shape(2, 16, tensor=2, sequence_parallel=True), 1)
    block = [
        ("all_gather", "reduce_scatter"),
        (None, "all_gather"),
        ("reduce_scatter", "all_gather"),
    ]
    assert [(item.forward, item.backward) for item in found] == 2 * block
    assert {item.bytes for item in found} == {GPT_BYTES}


def test_the_input_is_gathered_again_before_the_gradients_of_the_weights_that_read_it():
    items = layers(TINY_GPT, Shape(2, 16, tensor=2, sequence_parallel=True))[1].items
    names = [item.name for item in reversed(items)]
    order = ["attention_reduce", "attention_regather", "qkv", "attention_gather", "attention_norm"]
    places = [names.index(name) for name in order]
    assert places == sorted(places)


def test_a_moe_layer_dispatches_and_combines_one_copy_per_chosen_expert():
    """114,688 bytes per token of Kimi K2: 8 copies of 7168 numbers of 2 bytes; and 8 routing
    weights of 4 bytes on the way there, and their gradients on the way back."""
    counts, dispatch, combine = exchanges(catalog("kimi-k2"), Shape(1, 4096, expert=16), 5)
    assert (counts.name, dispatch.name, combine.name) == ("expert_counts", "dispatch", "combine")
    for item, size in ((dispatch, 114_688 + 32), (combine, 114_688)):
        assert (item.group, item.forward, item.backward) == ("expert", "all_to_all", "all_to_all")
        assert item.payload() == item.payload(backward=True) == 4096 * size


def test_latent_attention_exchanges_latents_not_hidden_states():
    found = exchanges(TINY["tiny-moe"], Shape(1, 16, tensor=2, sequence_parallel=True), 1)
    sizes = {item.name: item.bytes for item in found if item.forward == "all_gather"}
    assert sizes["q_gather"] == 2 * 16 * 24
    assert sizes["kv_gather"] == 2 * 16 * (16 + 8)


def test_experts_of_a_tensor_rank_see_its_slice_of_the_tokens():
    whole = Shape(2, 16, tensor=2, expert=2)
    sliced = Shape(2, 16, tensor=2, expert=2, sequence_parallel=True)
    model = TINY["tiny-moe"]
    sizes = [exchanges(model, shape, 2)[-1].bytes for shape in (whole, sliced)]
    assert sizes == [2 * 32 * 2 * 48, 2 * 16 * 2 * 48]


@pytest.mark.parametrize(
    ("name", "parallel", "expected"),
    [
        ("gpt", False, ("all_reduce", None)),
        ("gpt", True, ("all_reduce", "all_gather")),
        ("tiny-moe", True, ("reduce_scatter", "all_gather")),
    ],
)
def test_the_cut_embedding_sums_its_rows_over_tensor_ranks(
    name: str, parallel: bool, expected: tuple[str, str | None]
):
    shape = Shape(2, 16, tensor=2, sequence_parallel=parallel)
    (item,) = exchanges(TINY[name], shape, 0)
    assert (item.forward, item.backward) == expected


def test_tensor_ranks_agree_on_the_loss_by_two_small_sums():
    found = exchanges(TINY_GPT, Shape(2, 16, tensor=2), 3)
    loss = {item.name: item.bytes for item in found if item.name.startswith("loss")}
    assert loss == {"loss_max_reduce": 4 * 32, "loss_sum_reduce": 8 * 32}


@pytest.mark.parametrize(("expert", "sorts"), [(1, 0), (2, 2), (8, 0)])
def test_rows_are_sorted_by_expert_only_where_a_rank_has_several(expert: int, sorts: int):
    items = layers(TINY["tiny-moe"], Shape(2, 16, expert=expert))[2].items
    assert sum(item.name.endswith("_sort") for item in items) == sorts


@pytest.mark.parametrize("expert", [1, 2, 8])
def test_the_experts_input_is_kept_once_however_it_arrives(expert: int):
    items = layers(TINY["tiny-moe"], Shape(2, 16, expert=expert))[2].items
    kept = [item.saved for item in items if item.name.startswith("dispatch") and item.saved]
    assert kept == [2 * 32 * 2 * 48]
