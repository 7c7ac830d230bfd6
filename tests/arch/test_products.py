"""The matrix product behind every kernel of a linear layer: shape, groups and numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.arch.models import TINY, catalog
from twin.arch.kernels import FP8_WEIGHT, Matmul, piece
from twin.arch.ops import Op, Precision, Product, Shape, Work
from twin.arch.stack import layers

SHAPES = st.builds(
    Shape,
    st.integers(1, 3),
    st.just(16),
    tensor=st.sampled_from([1, 2]),
    expert=st.sampled_from([1, 2, 8]),
    sequence_parallel=st.booleans(),
    expert_load=st.sampled_from([1.0, 1.3]),
    precision=st.sampled_from(["bf16", "fp8"]),
)


def products(name: str, shape: Shape) -> list[tuple[Op, Work]]:
    return [
        (item, work)
        for layer in layers(TINY[name], shape)
        for item in layer.items
        if isinstance(item, Op)
        for work in (item.forward, item.backward, item.weight)
    ]


@given(st.sampled_from(sorted(TINY)), SHAPES)
def test_a_product_does_the_flop_of_its_kernel(name: str, shape: Shape):
    """Everything but attention that uses tensor cores is one product."""
    for op, work in products(name, shape):
        if op.kind in ("gemm", "grouped_gemm"):
            assert work.product is not None
            size = work.product.rows * work.product.cols * work.product.k
            assert work.flop == 2 * size
        else:
            assert work.product is None


def product(layer: int, name: str, shape: Shape) -> list[Product | None]:
    items = layers(catalog("deepseek-v3"), shape)[layer].items
    op = next(item for item in items if item.name == name and isinstance(item, Op))
    return [op.forward.product, op.backward.product, op.weight.product]


@pytest.mark.parametrize("numbers", ["bf16", "fp8"])
def test_the_products_of_deepseek_v3_have_the_shapes_of_its_matrices(numbers: Precision):
    """One sequence of 4,096 tokens, 4 of 256 experts per rank: queries up from rank 1,536 to 128
    heads of 192; experts up from 7,168 to gate and up of 2,048 for 8 x 4,096 rows."""
    shape = Shape(1, 4096, expert=64, precision=numbers)
    assert product(10, "q_up", shape) == [
        Product(4096, 24576, 1536, 1, numbers),
        Product(4096, 1536, 24576, 1, numbers),
        Product(1536, 24576, 4096, 1, numbers, weight=True),
    ]
    assert product(10, "experts_up", shape) == [
        Product(32768, 4096, 7168, 4, numbers),
        Product(32768, 7168, 4096, 4, numbers),
        Product(7168, 4096, 32768, 4, numbers, weight=True),
    ]
    assert product(-1, "head", shape)[0] == Product(4096, 129280, 7168, 1, "bf16")
    assert product(10, "router", shape)[0] == Product(4096, 256, 7168, 1, "bf16")


@pytest.mark.parametrize(("numbers", "value", "weight"), [("bf16", 2, 2), ("fp8", 1.03125, None)])
def test_each_piece_of_a_products_rows_reads_all_weights(
    numbers: Precision, value: float, weight: float | None
):
    """8 rows of 16 to 32 in 4 pieces: 2 rows in, 2 rows out in 2-byte numbers."""
    whole = Matmul(8, 16, 32, precision=numbers).forward()
    part = piece(whole, 4)
    assert part.product == Product(2, 32, 16, 1, numbers)
    assert part.flop == whole.flop / 4
    weights = 16 * 32 * (FP8_WEIGHT if weight is None else weight)
    assert part.bytes == pytest.approx(weights + 2 * (value * 16 + 2 * 32))
    assert part.kernels == whole.kernels


def test_a_piece_of_a_kernel_without_a_product_moves_its_share():
    assert piece(Work(0.0, 100.0, 1), 4) == Work(0.0, 25.0, 1)
