"""FP8 whose scales are those of the tensor itself, beside scales that are known before: what is
cast apart, by how many kernels, and that the same is kept and multiplied."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.arch.models import catalog
from twin.arch.kernels import ELEMENT, FP8
from twin.arch.ops import Layer, Op, Shape
from twin.arch.stack import layers

MIXTURE = catalog("mixtral-8x7b")
KNOWN = Shape(1, 4096, expert=2, precision="fp8", scaling="tensor")
CURRENT = replace(KNOWN, scaling="current")


def ops(shape: Shape) -> dict[str, Op]:
    layer: Layer = layers(MIXTURE, shape)[4]
    return {item.name: item for item in layer.items if isinstance(item, Op)}


def test_norms_write_bf16_and_a_cast_follows() -> None:
    """The norm before attention: 4,096 tokens of 4,096 values, read in bf16, written whole and
    turned; with known scales the norm itself writes them. The other norm feeds the router."""
    added = {name for name in ops(CURRENT) if name.endswith("_cast")} - set(ops(KNOWN))
    assert added == {"attention_norm_cast"}
    values, found = 4096 * 4096, ops(CURRENT)["attention_norm_cast"]
    assert found.forward.bytes == (ELEMENT + 2 * FP8) * values
    assert found.forward.kernels == 2


def test_a_maximum_that_no_norm_has_found_is_found_by_reading_once_more() -> None:
    """What attention gives: read for its maximum, read again, written whole and turned, by four
    kernels. Blackwell's tensor cores read it in any layout, so that it is written once."""
    values, found = 4096 * 4096, ops(CURRENT)["attention_out_cast"].forward
    assert (found.bytes, found.kernels) == ((2 * ELEMENT + 2 * FP8) * values, 4)
    any_layout = replace(CURRENT, any_layout=True)
    assert ops(any_layout)["attention_out_cast"].forward.bytes == (2 * ELEMENT + FP8) * values
    known = replace(KNOWN, any_layout=True)
    assert ops(known)["attention_out_cast"].forward.bytes == (ELEMENT + FP8) * values
    fine = replace(any_layout, scaling="mx")
    assert ops(fine)["attention_out_cast"].forward.bytes == (ELEMENT + 2 * FP8) * values


def test_experts_are_cast_one_by_one() -> None:
    """Of eight experts on two ranks four are here: four kernels each, where a kernel for several
    tensors does all at once if their scales are known."""
    for name in ("experts_cast", "experts_swiglu_cast"):
        assert ops(CURRENT)[name].forward.kernels == 16
        assert ops(KNOWN)[name].forward.kernels == 1
    for name in ("experts_up_turn", "experts_down_turn"):
        assert ops(CURRENT)[name].backward.kernels == 16
        assert ops(KNOWN)[name].backward.kernels == 1


def test_products_and_what_is_kept_are_the_same() -> None:
    kept = [sum(op.saved for op in ops(shape).values()) for shape in (KNOWN, CURRENT)]
    assert kept[0] == pytest.approx(kept[1])
    flop = [sum(op.forward.flop for op in ops(shape).values()) for shape in (KNOWN, CURRENT)]
    assert flop[0] == flop[1]


def test_bf16_has_no_scales() -> None:
    plain = [ops(replace(shape, precision="bf16")) for shape in (KNOWN, CURRENT)]
    assert plain[0] == plain[1]


def test_a_rank_casts_its_slice_of_a_gathered_gradient_and_turns_the_whole() -> None:
    """Under sequence parallelism over four ranks: 4,096 x 4,096 values leave attention."""
    alone = replace(KNOWN, tensor=4)
    found, whole = (
        ops(shape)["attention_out_turn"].backward
        for shape in (replace(alone, sequence_parallel=True), alone)
    )
    values = 4096 * 4096
    assert whole.bytes == (ELEMENT + 2 * FP8) * values
    assert found.bytes == (ELEMENT + FP8) * values / 4 + 2 * FP8 * values


def test_scales_of_32_values_need_one_kernel_and_two_that_put_the_scales_in_order() -> None:
    found = ops(replace(KNOWN, scaling="mx"))
    assert set(found) == set(ops(CURRENT))
    assert found["attention_norm_cast"].forward.kernels == 1 + 2
    assert found["experts_cast"].forward.kernels == 4 + 2
    assert found["experts_down_turn"].backward.kernels == 4 + 2


def test_a_slice_that_any_layout_can_read_is_not_turned() -> None:
    values = 4096 * 4096
    sliced = replace(CURRENT, tensor=4, sequence_parallel=True, any_layout=True)
    found = ops(sliced)["attention_out_turn"].backward
    assert (found.bytes, found.kernels) == ((2 * ELEMENT + FP8) * values / 4, 4)


def test_one_tensor_rank_has_no_slices() -> None:
    alone = replace(KNOWN, sequence_parallel=True)
    assert ops(alone)["attention_out_turn"] == ops(KNOWN)["attention_out_turn"]
