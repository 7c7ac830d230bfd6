"""The H800 profile follows from the published rows by the statistics that its notes name."""

from __future__ import annotations

from statistics import median, quantiles

import pytest

from tests.hardware.catalog import leaf, plain, published
from twin.arch.ops import Work
from twin.hardware.roofline import speed_of_light
from twin.spec.cluster import GpuSpec

PROFILE = "calibrations/h800-hopper-bf16"
PEAK = 989e12


def gemm_shares(smallest_m: int) -> list[float]:
    """Share of the peak of every dense product with at least so many rows and no dimension below
    1,024."""
    shares = []
    for row in published("gemm-h100-bf16.yaml").values():
        n, k = row["metrics"]["n"], row["metrics"]["k"]
        for m, milliseconds, _ in row["metrics"]["series"]:
            if m >= smallest_m and n >= 1024:
                shares.append(2 * m * n * k / (milliseconds * 1e-3) / PEAK)
    return shares


def test_gemm_is_the_median_of_45_dense_products_and_its_range_their_middle_80_percent() -> None:
    shares = gemm_shares(1024)
    deciles = quantiles(shares, n=10, method="inclusive")
    assert len(shares) == 45
    assert leaf(PROFILE, "gemm")["value"] == pytest.approx(median(shares), abs=0.005)
    assert leaf(PROFILE, "gemm")["range"] == pytest.approx([deciles[0], deciles[-1]], abs=0.005)


def test_grouped_gemm_is_gemm_times_the_median_fp8_ratio_of_grouped_to_dense() -> None:
    rows = published("deepgemm-h800.yaml")
    dense = {
        (n, k): rate
        for m, n, k, rate, _ in rows["deepgemm-h800-dense-v2"]["metrics"]["series"]
        if m == 4096
    }
    ratios = [
        rate / dense[n, k]
        for kind in ("contiguous", "masked")
        for _, _, n, k, rate, _ in rows[f"deepgemm-h800-grouped-{kind}-v2"]["metrics"]["series"]
    ]
    gemm, grouped = leaf(PROFILE, "gemm"), leaf(PROFILE, "grouped_gemm")
    assert len(ratios) == 10
    assert grouped["value"] == pytest.approx(gemm["value"] * median(ratios), abs=0.005)
    assert grouped["range"][0] == pytest.approx(gemm["value"] * min(ratios), abs=0.005)
    assert grouped["range"][1] == gemm["range"][1]


@pytest.mark.parametrize(
    ("direction", "row", "products"),
    [
        # forward: scores (192) and output (128)
        ("forward", "fwd", (192, 128)),
        # backward: scores again, dQ and dK (192 each), dP and dV (128 each)
        ("backward", "bwd", (192, 192, 192, 128, 128)),
    ],
)
def test_attention_alone_is_the_traces_kernel_on_all_sms(
    direction: str, row: str, products: tuple[int, ...]
) -> None:
    """128 heads, 4,096 tokens, batch 1: 2 s^2/2 FLOP per head and unit of head size. The trace ran
    it on the 112 SMs that DeepEP left; queries, keys, values, output and, of 4 bytes, the
    log-sum-exp make the bytes, backward twice with gradients."""
    metrics = published("attention-h800.yaml")[f"profile-data-train-flash-attn-{row}-192-128"][
        "metrics"
    ]
    flop = 128 * 4096**2 * sum(products)
    rate = flop / (metrics["mean_us"] * 1e-6)
    assert rate / 1e12 == pytest.approx(metrics["derived_tflops_causal_batch1"], rel=1e-3)
    passes = 2 if direction == "backward" else 1
    moved = 128 * 4096 * (passes * 2 * (192 + 192 + 128 + 128) + 4)
    share, ramp = (leaf(PROFILE, f"attention_{direction}{end}")["value"] for end in ("", "_ramp"))
    at_4k = share / (1 + ramp * moved / flop)
    assert at_4k == pytest.approx(rate / PEAK / (112 / 132), abs=0.002)
    low, high = leaf(PROFILE, f"attention_{direction}")["range"]
    assert low / (1 + ramp * moved / flop) == pytest.approx(rate / PEAK, abs=0.003)
    assert high < 0.81


def test_attention_alone_is_about_as_fast_as_the_fastest_kernel_measured() -> None:
    """FlashMLA's compute-bound kernel, 660 TFLOP/s on H800; 1,284 bytes per row of a head."""
    share, ramp = (leaf(PROFILE, f"attention_forward{end}")["value"] for end in ("", "_ramp"))
    at_4k = share / (1 + ramp * 1284 / (4096 * 320))
    assert at_4k * PEAK == pytest.approx(660e12, rel=0.02)


def test_launch_is_what_the_smallest_product_takes_beyond_its_roofline() -> None:
    row = published("gemm-h100-bf16.yaml")["aic-gemm-h100-bfloat16-n256-k7168"]["metrics"]
    m, milliseconds, _ = row["series"][0]
    n, k = row["n"], row["k"]
    work = Work(flop=2.0 * m * n * k, bytes=2.0 * (m * k + k * n + m * n))
    gpu = GpuSpec.model_validate(plain("gpus/h800"))
    beyond = milliseconds * 1e-3 - speed_of_light(work, gpu) / leaf(PROFILE, "bandwidth")["value"]
    assert leaf(PROFILE, "launch")["value"] == "4.5us"
    assert beyond == pytest.approx(4.5e-6, abs=0.1e-6)


def test_bandwidth_lies_between_two_measured_memory_bound_kernels() -> None:
    flashmla = published("links-h800.yaml")["flashmla-h800-dense-decode-membound"]["metrics"][
        "GBps"
    ]
    dense = published("deepgemm-h800.yaml")["deepgemm-h800-dense-v2"]["metrics"]["series"]
    thinnest = max(rate for *_, rate in dense)
    assert thinnest / 3350 < leaf(PROFILE, "bandwidth")["value"] < flashmla / 3350
