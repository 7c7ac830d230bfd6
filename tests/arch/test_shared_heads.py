"""More tensor ranks than key-value heads: weights are cut evenly, heads are gathered and shared, as
in Megatron-LM's `get_query_key_value_tensors`."""

from dataclasses import replace

import pytest

from tests.arch.models import catalog
from twin.arch.ops import Exchange, Op, Shape
from twin.arch.stack import layers, uneven

QWEN = catalog("qwen3-235b-a22b")
"""64 heads of 128 and 4 key-value heads."""
TOKENS = 4096
CUT = Shape(1, TOKENS, tensor=8, sequence_parallel=True)
WHOLE = replace(CUT, tensor=1, sequence_parallel=False)
MIXED = 2 * TOKENS * (64 + 2 * 4) * 128
"""Bytes of queries, keys and values of all heads."""


def ops(shape: Shape) -> dict[str, Op]:
    return {item.name: item for item in layers(QWEN, shape)[1].items if isinstance(item, Op)}


def test_no_weight_is_there_twice():
    """So gradients of keys and values are reduced once, like all others."""
    cut, whole = layers(QWEN, CUT)[1].weights, layers(QWEN, WHOLE)[1].weights
    assert 8 * cut.tensor == whole.tensor
    assert cut.replicated == whole.replicated


def test_the_projection_does_an_eighth_of_its_flop():
    cut, whole = ops(CUT)["qkv"], ops(WHOLE)["qkv"]
    assert 8 * cut.forward.flop == whole.forward.flop


def test_the_core_does_an_eighth_of_its_flop_on_one_key_value_head():
    cut, whole = ops(CUT)["attention_flash"], ops(WHOLE)["attention_flash"]
    assert 8 * cut.forward.flop == whole.forward.flop
    lse = 4 * TOKENS * 8
    assert cut.forward.bytes == 2 * TOKENS * 128 * (8 + 1 + 1 + 8) + lse


def test_all_heads_are_gathered_and_their_gradients_summed():
    found = [item for item in layers(QWEN, CUT)[1].items if isinstance(item, Exchange)]
    (gather,) = (item for item in found if item.name == "heads_gather")
    assert (gather.group, gather.bytes, gather.saved) == ("tensor", MIXED, 0.0)
    assert (gather.forward, gather.backward) == ("all_gather", "reduce_scatter")


def test_a_rank_keeps_its_query_heads_and_one_key_value_head():
    order, projection = ops(CUT)["heads_order"], ops(CUT)["qkv"]
    assert (projection.saved, order.saved) == (0.0, 2 * TOKENS * (8 + 2) * 128)
    assert order.forward.bytes == order.backward.bytes == 2 * MIXED


@pytest.mark.parametrize("tensor", [1, 2, 4])
def test_nothing_is_gathered_where_every_rank_has_heads_of_its_own(tensor: int):
    names = [item.name for item in layers(QWEN, replace(CUT, tensor=tensor))[1].items]
    assert "heads_gather" not in names
    assert "heads_order" not in names


@pytest.mark.parametrize(("tensor", "wrong"), [(4, ()), (8, ()), (6, ("kv_heads",))])
def test_ranks_share_heads_evenly(tensor: int, wrong: tuple[str, ...]):
    model = QWEN.model_copy(
        update={"attention": QWEN.attention.model_copy(update={"heads": 48}), "vocab": 48}
    )
    shape = Shape(1, 4096 * 3, tensor=tensor)
    assert uneven(model, shape) == tuple(f"model.attention.{name}" for name in wrong)
