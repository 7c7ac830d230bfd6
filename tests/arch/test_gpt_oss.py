"""What gpt-oss has beside others: windows, sinks, clamps and biases of experts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.arch.models import catalog
from twin.arch.attention import Heads
from twin.arch.ops import Op, Shape
from twin.arch.stack import layers

MODEL = catalog("gpt-oss-120b")
SHAPE = Shape(1, 4096, expert=8)


def op(name: str, shape: Shape = SHAPE, model=MODEL) -> Op:
    layer = layers(model, shape)[1]
    return next(item for item in layer.items if isinstance(item, Op) and item.name == name)


@given(window=st.integers(1, 300), sequence=st.integers(1, 200))
def test_a_query_has_the_keys_of_its_window(window: int, sequence: int) -> None:
    """Counted one by one, but for half of the diagonal, as everywhere in causal attention."""
    heads = Heads(1, 1, 64, 64, window, 1.0)
    counted = sum(min(query + 0.5, window) for query in range(sequence))
    assert sequence * heads.keys(sequence) / 2 == pytest.approx(counted)


def test_every_second_layer_has_a_window() -> None:
    """128 x 4,096 less half of 128 squared, beside half of 4,096 squared."""
    near, far = 128 * 4096 - 128**2 / 2, 4096**2 / 2
    flop = (near + far) / 2 * 4 * 64 * 64
    assert op("attention_flash").forward.flop == pytest.approx(flop)


def test_a_window_as_long_as_the_sequence_is_none() -> None:
    attention = MODEL.attention.model_copy(update={"window": 4096})
    wide = op("attention_flash", model=MODEL.model_copy(update={"attention": attention}))
    none = MODEL.attention.model_copy(update={"window": None})
    assert wide == op("attention_flash", model=MODEL.model_copy(update={"attention": none}))


def test_clamps_read_and_write_gate_and_up_twice() -> None:
    """4,096 tokens to 4 experts each, 2,880 wide: two clamps of half each, one that joins."""
    both = 2 * 4096 * 4 * 2 * 2880
    found = op("experts_clamp")
    assert (found.forward.bytes, found.forward.kernels) == (4 * both, 3)
    assert (found.backward.bytes, found.saved) == (5 * both, both)


def test_biases_of_experts_are_added_in_fp32_expert_by_expert() -> None:
    """Forward product (4), sum (2 + 4 + 4), join (4 + 4), cast (4 + 2) of each value."""
    values = 4096 * 4 * 2880
    found = op("experts_bias")
    assert (found.forward.bytes, found.forward.kernels) == (28 * values, 2 * 16 + 2)
    assert (found.backward.bytes, found.backward.kernels) == (40 * values, 5 * 16 + 2)


@pytest.mark.parametrize("name", ["qkv", "router", "experts_up", "experts_down"])
def test_gradients_are_added_to_bf16_buffers_with_half_the_bytes(name: str) -> None:
    whole, half = (op(name, replace(SHAPE, accumulate=size)).weight for size in (8, 4))
    product = whole.product
    assert product is not None
    weights = product.rows * product.cols * product.groups
    assert whole.bytes - half.bytes == 4 * weights
