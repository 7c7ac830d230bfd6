"""Matrix products by shape: tiles, ramp, and memory, by hand and as laws."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from twin.arch.ops import Precision, Product, Work
from twin.hardware import matmul
from twin.hardware.roofline import price, seconds, speed_of_light
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import GpuSpec

GPU = GpuSpec.model_validate(
    {
        "name": "g",
        "memory": "80GiB",
        "memory_bandwidth": "2TB/s",
        "bf16_dense": "100TFLOP/s",
        "fp8_dense": "200TFLOP/s",
        "sms": 100,
        "calibration": "c",
    }
)
LAW = {
    "efficiency": 0.8,
    "ramp": 200,
    "launch": "2us",
    "grouped": 0.9,
    "weight_gradient": 0.5,
    "sides": [64, 10000],
    "inner": [500, 20000],
}


def profile(**law: object) -> CalibrationSpec:
    own = LAW | law
    return CalibrationSpec.model_validate(
        {
            "name": "c",
            "gpu": "g",
            "software": "s",
            "date": "2026",
            "gemm": 0.7,
            "grouped_gemm": 0.6,
            "matmuls": {"bf16": own, "fp8": own},
            "attention_forward": 0.6,
            "attention_backward": 0.5,
            "attention_forward_ramp": 100,
            "bandwidth": 0.9,
            "launch": "3us",
            "dispatch": "10us",
        }
    )


def work(product: Product, moved: float = 0.0) -> Work:
    return Work(2.0 * product.rows * product.cols * product.k, moved, 1, product)


SIZES = st.integers(1, 40_000)
PRODUCTS = st.builds(
    Product,
    rows=SIZES,
    cols=SIZES,
    k=SIZES,
    groups=st.integers(1, 64),
    precision=st.sampled_from(["bf16", "fp8"]),
    weight=st.booleans(),
)


def test_a_product_that_fills_all_rounds_takes_its_ramp_longer_than_at_the_efficiency() -> None:
    """100 tiles of 128 x 256 on 100 SMs: 2 x 12,800 x 256 x 1,800 FLOP at 0.8 x 100 TFLOP/s is
    147 us; a tenth of 1,800 more for filling and emptying, and 2 us of launch."""
    product = Product(12_800, 256, 1_800)
    flop = 2 * 12_800 * 256 * 1_800
    expected = flop / 80e12 * (1 + 200 / 1800) + 2e-6
    assert matmul.idle(product, GPU.sms) == 1.0
    assert seconds("gemm", work(product), GPU, profile()) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("product", "padded"),
    [
        # 101 tiles of 64 x 64 need two rounds, as do larger ones; 128 x 64 halves their number
        (Product(101 * 64, 64, 1000), 100 * 128 * 64 / (101 * 64 * 64)),
        # one small result: one round of the smallest tiles, 100 of them
        (Product(64, 64, 1000), 100.0),
        # 202 tiles of 64 x 64 need three rounds, 101 of 128 x 64 two that are twice as long
        (Product(12_900, 64, 1000), 3 * 100 * 64 * 64 / (12_900 * 64)),
    ],
)
def test_the_last_round_of_tiles_leaves_sms_idle(product: Product, padded: float) -> None:
    assert matmul.idle(product, 100) == pytest.approx(padded)


def test_groups_are_cut_into_tiles_each_for_itself() -> None:
    """Ten groups of 65 rows need ten tiles of 128 rows; 650 rows need six."""
    together, apart = Product(650, 2560, 1000), Product(650, 2560, 1000, groups=10)
    assert matmul.idle(apart, 100) > matmul.idle(together, 100)


def test_a_split_inner_sum_leaves_no_sm_idle() -> None:
    small = work(Product(64, 64, 100_000))
    whole, split = profile(), profile(whole_tiles=False)
    cost = [price("gemm", small, GPU, one).arithmetic for one in (whole, split)]
    assert cost[0] == pytest.approx(100 * cost[1])


def test_fp8_doubles_the_peak_and_needs_its_precision_to_be_written() -> None:
    bf16 = Product(12_800, 256, 1_800)
    fp8 = replace(bf16, precision="fp8")
    costs = [price("gemm", work(one), GPU, profile()).arithmetic for one in (bf16, fp8)]
    assert costs[0] == pytest.approx(2 * costs[1])
    assert speed_of_light(work(bf16), GPU) == 2 * speed_of_light(work(fp8), GPU)


def test_fp4_takes_the_law_of_fp8_at_its_own_peak_where_it_has_none() -> None:
    """A GPU of 400 TFLOP/s in FP4."""
    gpu, own = GPU.model_copy(update={"fp4_dense": 400e12}), profile()
    fp8, fp4 = (work(Product(6400, 256, 1_800, precision=one)) for one in ("fp8", "nvfp4"))
    costs = [price("gemm", one, gpu, own).arithmetic for one in (fp8, fp4)]
    assert costs[0] == pytest.approx(2 * costs[1])


@pytest.mark.parametrize(("width", "whole"), [(32, True), (48, False), (64, True)])
def test_sixteen_bytes_are_32_numbers_in_fp4(width: int, whole: bool) -> None:
    assert matmul.aligned(Product(128, width, 64, precision="mxfp4")) == whole


def test_products_in_a_row_keep_a_share_that_one_by_itself_does_not_lose() -> None:
    one, row = work(Product(12_800, 256, 1_800)), profile(sustained=0.8)
    brief = price("gemm", one, GPU, profile())
    assert price("gemm", one, GPU, row).arithmetic == pytest.approx(brief.arithmetic / 0.8)
    assert price("gemm", one, GPU, matmul.briefly(row)) == brief


def test_groups_and_weight_gradients_keep_their_shares() -> None:
    """One group of the weight's gradient sums over its own rows: the ramp sees 1,800 of 18,000."""
    plain = price("gemm", work(Product(12_800, 256, 1_800)), GPU, profile())
    gradient = Product(12_800, 256, 1_800, weight=True)
    assert price("gemm", work(gradient), GPU, profile()).arithmetic == pytest.approx(
        plain.arithmetic / 0.5
    )
    groups = replace(gradient, k=18_000, groups=10)
    assert price("grouped_gemm", work(groups), GPU, profile()).arithmetic == pytest.approx(
        10 * plain.arithmetic / 0.5 / 0.9
    )


@pytest.mark.parametrize(
    ("product", "aligned"),
    [
        (Product(4096, 50_257, 1024), False),  # 100,514 bytes of logits for a token
        (Product(4096, 1024, 50_257), False),
        (Product(50_257, 1024, 4096, weight=True), False),
        (Product(4096, 50_264, 1024), True),
        (Product(1001, 1024, 4096), True),  # rows are no width
        (Product(1024, 4096, 1001, weight=True), True),
        (Product(4096, 1032, 1024, precision="fp8"), False),  # 8 bytes too many
        (Product(4096, 1040, 1024, precision="fp8"), True),
    ],
)
def test_rows_that_are_no_multiple_of_16_bytes_slow_the_arithmetic(
    product: Product, aligned: bool
) -> None:
    known = matmul.law(product, profile(unaligned=0.4))
    assert known is not None
    whole = matmul.arithmetic(1e12, product, known.model_copy(update={"unaligned": 1.0}), GPU)
    share = matmul.arithmetic(1e12, product, known, GPU) / whole
    assert share == pytest.approx(1.0 if aligned else 1 / 0.4)


def test_memory_and_arithmetic_overlap_but_not_for_free() -> None:
    assert matmul.joined(3.0, 0.0) == matmul.joined(0.0, 3.0) == 3.0
    assert matmul.joined(1.0, 1.0) == pytest.approx(2 ** (1 / 3))
    assert matmul.joined(0.0, 0.0) == 0.0


def test_without_a_law_for_its_precision_a_product_takes_its_classs_efficiency() -> None:
    none = profile().model_copy(update={"matmuls": None})
    product = work(Product(12_800, 256, 1_800))
    assert seconds("gemm", product, GPU, none) == pytest.approx(product.flop / 70e12 + 3e-6)
    fp8 = work(Product(12_800, 256, 1_800, precision="fp8"))
    assert seconds("gemm", fp8, GPU, none) == pytest.approx(product.flop / 140e12 + 3e-6)


@pytest.mark.parametrize(
    ("product", "known"),
    [
        (Product(64, 10_000, 500), True),
        (Product(63, 10_000, 500), False),
        (Product(64, 10_001, 500), False),
        (Product(64, 10_000, 499), False),
        (Product(640, 10_000, 500, groups=10), True),
        (Product(639, 10_000, 500, groups=11), False),
        (Product(64, 64, 5000, groups=10, weight=True), True),
        (Product(64, 64, 4999, groups=10, weight=True), False),
    ],
)
def test_what_lies_outside_of_the_measured_shapes_is_said(product: Product, known: bool) -> None:
    law = matmul.law(product, profile())
    assert law is not None
    assert matmul.measured(product, law) is known


@given(PRODUCTS, st.floats(0, 1e12))
def test_no_product_is_faster_than_light(product: Product, moved: float) -> None:
    one = work(product, moved)
    assert seconds("gemm", one, GPU, profile()) >= speed_of_light(one, GPU) * (1 - 1e-12)


@given(PRODUCTS, st.integers(1, 5000), st.sampled_from(["rows", "cols", "k"]))
def test_a_longer_side_is_never_faster(product: Product, more: int, side: str) -> None:
    # Rows of groups, and inner sums of groups, have to be whole.
    product = replace(product, groups=1)
    longer = replace(product, **{side: getattr(product, side) + more})
    costs = [seconds("gemm", work(one), GPU, profile()) for one in (product, longer)]
    assert costs[1] >= costs[0] * (1 - 1e-12)


@given(PRODUCTS)
def test_tiles_cover_the_result_and_are_at_most_those_of_one_size(product: Product) -> None:
    assume(not product.weight)
    rows = ceil(product.rows / product.groups)
    tiles = product.groups * ceil(rows / 128) * ceil(product.cols / 128)
    area = product.groups * rows * product.cols
    assert 1.0 <= matmul.idle(product, 100) <= ceil(tiles / 100) * 100 * 128**2 / area


@given(PRODUCTS, st.floats(0, 1e11))
def test_sm_bound_is_how_much_the_seconds_lengthen_with_the_arithmetic(
    product: Product, moved: float
) -> None:
    one = work(product, moved)
    cost = price("gemm", one, GPU, profile())
    longer = replace(cost, arithmetic=cost.arithmetic * 1.0001)
    slope = (longer.seconds / cost.seconds - 1) / 1e-4
    assert 0.0 <= cost.sm_bound <= 1.0
    assert cost.sm_bound == pytest.approx(slope, abs=1e-3)


def test_kernels_that_wait_for_memory_do_not_mind_fewer_sms() -> None:
    assert price("bandwidth", Work(0.0, 1e9, 1), GPU, profile()).sm_bound == 0.0
    assert price("attention", Work(1.0, 1e9, 1), GPU, profile(), backward=True).sm_bound == 0.0
    assert price("attention", Work(1e12, 1.0, 0), GPU, profile()).sm_bound == 1.0


@pytest.mark.parametrize("intensity", [50.0, 100.0, 400.0, 10_000.0])
def test_attention_reaches_half_of_its_efficiency_at_its_ramp(intensity: float) -> None:
    attention = Work(1e15, 1e15 / intensity, 0)
    expected = 1e15 / (100e12 * 0.6) * (1 + 100 / intensity)
    assert price("attention", attention, GPU, profile()).arithmetic == pytest.approx(expected)
    backward = price("attention", attention, GPU, profile(), backward=True)
    assert backward.arithmetic == pytest.approx(1e15 / 50e12)


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_the_law_scales_with_the_work_and_not_with_what_the_shape_says(
    precision: Precision,
) -> None:
    """Two products of one shape are twice one: `flop` counts, the shape gives the efficiency."""
    one = work(Product(4096, 4096, 4096, precision=precision))
    two = replace(one, flop=2 * one.flop)
    costs = [price("gemm", each, GPU, profile()).arithmetic for each in (one, two)]
    assert costs[1] == pytest.approx(2 * costs[0])
