"""Layers that differ in heads and widths: a pattern gives their sizes."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tests.arch.models import TINY_GROUPED, TINY_MOE
from twin.arch.count import flop_per_token, parameters
from twin.arch.inference import cache_bytes, decode_flop, with_heads
from twin.arch.ops import Op, Shape
from twin.arch.stack import kinds, layers, uneven
from twin.spec.model import ModelSpec

SIZES = ((4, 2, 48), (8, 2, 96), (8, 4, 144))
"""Heads, key-value heads and width of each layer."""
BASE = TINY_GROUPED.model_dump(exclude={"moe"})


def sized(**more: Any) -> ModelSpec:
    pattern = [f"attention@{heads}x{keys}+dense@{width}" for heads, keys, width in SIZES]
    return ModelSpec.model_validate(BASE | {"layers": len(SIZES), "pattern": pattern} | more)


def uniform(heads: int, keys: int, width: int) -> ModelSpec:
    """Layers that all have these sizes."""
    attention = BASE["attention"] | {"heads": heads, "kv_heads": keys}
    return ModelSpec.model_validate(
        BASE | {"attention": attention, "ffn": BASE["ffn"] | {"width": width}}
    )


@pytest.mark.parametrize("shape", [Shape(2, 128), Shape(1, 128, 2), Shape(1, 128, 2, 1, True)])
def test_each_layer_is_the_layer_of_a_model_of_its_sizes(shape: Shape) -> None:
    stack = layers(sized(), shape)
    for layer, sizes in zip(stack[1:-1], SIZES, strict=True):
        assert layer == layers(uniform(*sizes), shape)[1]


def test_counts_flop_and_cache_are_those_of_the_layers_one_by_one() -> None:
    model, alone = sized(), [uniform(*sizes) for sizes in SIZES]
    bare = parameters(alone[0]).embedding + parameters(alone[0]).head + model.hidden
    found = parameters(model)
    assert found.total == bare + sum((parameters(one).total - bare) // 2 for one in alone)
    ops = [item for layer in layers(model, Shape(1, 128)) for item in layer.items]
    forward = sum(op.forward.flop for op in ops if isinstance(op, Op))
    assert forward == pytest.approx(128 * flop_per_token(model, 128) / 3)
    assert cache_bytes(model, 64) == sum(cache_bytes(one, 64) / 2 for one in alone)
    more = [decode_flop(one, 96) - decode_flop(one, 64) for one in alone]
    assert decode_flop(model, 96) - decode_flop(model, 64) == sum(more) / 2


def test_layers_of_the_same_sizes_are_one_object_and_others_are_not() -> None:
    model = sized(layers=6)
    assert kinds(model)[1:4] == tuple(model.pattern)
    stack = layers(model, Shape(1, 128))
    assert stack[1] is stack[4] is not stack[2]


def test_degrees_have_to_divide_the_sizes_of_every_layer() -> None:
    assert uneven(sized(), Shape(1, 128, 4)) == ()
    assert uneven(sized(), Shape(1, 128, 8)) == ("model.attention.heads",)
    wide = sized(pattern=["attention@8x4+dense@90", "attention+dense"], layers=2)
    assert uneven(wide, Shape(1, 128, 4)) == ("model.ffn.width",)
    odd = sized(pattern=["attention@12x3+dense", "attention+dense"], layers=2)
    assert uneven(odd, Shape(1, 128, 2)) == ("model.attention.kv_heads",)


def test_other_heads_are_other_heads_in_every_layer() -> None:
    assert with_heads(sized(), 16).pattern[0] == "attention@8x2+dense@48"


@pytest.mark.parametrize(
    "entry",
    ["attention@8", "attention@8x0", "dense@8x2", "attention@x2", "attention@8x2@4", "dense@", "+"],
)
def test_sizes_that_say_nothing_are_refused(entry: str) -> None:
    with pytest.raises(ValidationError, match="names no blocks"):
        sized(pattern=[entry])


def test_latent_attention_and_experts_have_no_sizes_of_their_own() -> None:
    base = TINY_MOE.model_dump()
    for entry in ("attention@8x2", "moe@20"):
        with pytest.raises(ValidationError, match=f"`{entry}` names no blocks"):
            ModelSpec.model_validate(base | {"pattern": [entry]})
