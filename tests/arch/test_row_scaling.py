"""FP8 with a scale per row: what is cast by rows and by columns, what is gathered and what is kept,
by hand for 4,096 tokens of Mixtral 8x7B (hidden 4,096, queries with keys and values 6,144)."""

from __future__ import annotations

from dataclasses import replace

from tests.arch.models import catalog
from twin.arch.kernels import ELEMENT
from twin.arch.ops import Exchange, Layer, Op, Shape
from twin.arch.stack import layers

MIXTURE = catalog("mixtral-8x7b")
ROWS = Shape(1, 4096, expert=2, precision="fp8", scaling="row")
SLICED = replace(ROWS, tensor=4, sequence_parallel=True)
HIDDEN, QKV = 4096 * 4096, 4096 * 6144
"""Values of the hidden state, and of queries, keys and values; weights of `qkv` are as many."""


def layer(shape: Shape) -> Layer:
    return layers(MIXTURE, shape)[4]


def ops(shape: Shape) -> dict[str, Op]:
    return {item.name: item for item in layer(shape).items if isinstance(item, Op)}


def test_a_norm_casts_by_rows_itself_and_a_kernel_by_columns_later() -> None:
    found = ops(ROWS)["attention_norm_cast"]
    assert (found.forward.bytes, found.forward.kernels) == (HIDDEN, 0)
    assert (found.backward.bytes, found.backward.kernels) == (7 * HIDDEN, 3)


def test_what_tensor_ranks_gather_is_bf16_and_each_casts_the_whole() -> None:
    found = ops(SLICED)["attention_norm_cast"].forward
    assert (found.bytes, found.kernels) == (3 * HIDDEN, 1)
    gathers = [one for one in layer(SLICED).items if isinstance(one, Exchange)]
    tensors = [one for one in gathers if one.group == "tensor"]
    assert {one.bytes for one in tensors} == {ELEMENT * HIDDEN}
    assert {one.payload(backward=True) for one in tensors} == {ELEMENT * HIDDEN}
    current = layer(replace(SLICED, scaling="current"))
    sent = next(one for one in current.items if one.name == "attention_gather")
    assert isinstance(sent, Exchange)
    assert sent.bytes < ELEMENT * HIDDEN


def test_casts_around_a_product() -> None:
    """Weights by rows; then the output's gradient by rows, weights by columns, and scales on the
    input's gradient; then the output's gradient by columns, and scales on the weight's."""
    found = ops(ROWS)["qkv_turn"]
    assert found.forward.bytes == 3 * QKV
    assert found.backward.bytes == 3 * QKV + 7 * QKV + 4 * HIDDEN
    assert found.weight.bytes == 7 * QKV + 4 * QKV
    assert [one.kernels for one in (found.forward, found.backward, found.weight)] == [1, 5, 4]


def test_as_much_is_kept_as_in_bf16() -> None:
    """Casts by columns need what the products read in bf16."""
    kept = [
        sum(one.saved for one in layer(shape).items)
        for shape in (ROWS, replace(ROWS, precision="bf16"))
    ]
    assert kept[0] == kept[1]


def test_products_are_those_of_one_scale_per_tensor() -> None:
    for part in ("forward", "backward", "weight"):
        flop = [
            sum(getattr(op, part).flop for op in ops(shape).values())
            for shape in (ROWS, replace(ROWS, scaling="current"))
        ]
        assert flop[0] == flop[1]
