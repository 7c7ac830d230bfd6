"""Operations cost what the roofline says, and never less than physics."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hardware.catalog import plain
from twin.arch.ops import OpClass, Product, Work
from twin.hardware.roofline import (
    apart_as,
    measured_apart,
    seconds,
    speed_of_light,
    sustained,
    with_scaling,
)
from twin.loading import load_part
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import GpuSpec
from twin.spec.power import GpuPowerSpec

GPU = GpuSpec.model_validate(
    {
        "name": "g",
        "memory": "80GiB",
        "memory_bandwidth": "2TB/s",
        "bf16_dense": "100TFLOP/s",
        "sms": 100,
        "calibration": "c",
    }
)
CLASSES: tuple[OpClass, ...] = get_args(OpClass)
SHARES = st.floats(0.01, 1.0)
WORKS = st.builds(Work, st.floats(0, 1e18), st.floats(0, 1e12), st.integers(0, 100))


def calibration(**changed: object) -> CalibrationSpec:
    base = {
        "name": "c",
        "gpu": "g",
        "software": "s",
        "date": "2026",
        "gemm": 0.8,
        "grouped_gemm": 0.7,
        "attention_forward": 0.6,
        "attention_backward": 0.5,
        "bandwidth": 0.9,
        "launch": "3us",
        "dispatch": "10us",
    }
    return CalibrationSpec.model_validate(base | changed)


PROFILES = st.builds(
    lambda gemm, grouped, forward, backward, bandwidth: calibration(
        gemm=gemm,
        grouped_gemm=grouped,
        attention_forward=forward,
        attention_backward=backward,
        bandwidth=bandwidth,
    ),
    SHARES,
    SHARES,
    SHARES,
    SHARES,
    SHARES,
)


@given(st.sampled_from(CLASSES), WORKS, PROFILES, st.booleans())
def test_no_operation_is_faster_than_light(
    op_class: OpClass, work: Work, profile: CalibrationSpec, backward: bool
) -> None:
    assert seconds(op_class, work, GPU, profile, backward) >= speed_of_light(work, GPU)


@given(st.sampled_from(CLASSES), WORKS, WORKS, st.booleans())
def test_more_work_is_never_faster_and_splitting_it_never_gains(
    op_class: OpClass, one: Work, two: Work, backward: bool
) -> None:
    def cost(work: Work) -> float:
        return seconds(op_class, work, GPU, calibration(), backward)

    assert cost(one + two) >= max(cost(one), cost(two)) * (1 - 1e-12)
    assert cost(one) + cost(two) >= cost(one + two) * (1 - 1e-12)


@pytest.mark.parametrize(
    ("op_class", "backward", "efficiency"),
    [
        ("gemm", False, 0.8),
        ("gemm", True, 0.8),
        ("grouped_gemm", False, 0.7),
        ("attention", False, 0.6),
        ("attention", True, 0.5),
    ],
)
def test_each_class_of_kernels_reaches_its_own_share_of_the_peak(
    op_class: OpClass, backward: bool, efficiency: float
) -> None:
    """1e14 FLOP take one second at 100 TFLOP/s."""
    taken = seconds(op_class, Work(flop=1e14), GPU, calibration(), backward)
    assert taken == pytest.approx(1 / efficiency)


def test_a_kernel_waits_for_the_slower_of_arithmetic_and_memory() -> None:
    """2e12 bytes take 1 / 0.9 s; 0.1e14 FLOP take 0.1 / 0.8 s."""
    memory_bound = Work(flop=0.1e14, bytes=2e12)
    assert seconds("gemm", memory_bound, GPU, calibration()) == pytest.approx(1 / 0.9)
    assert speed_of_light(memory_bound, GPU) == pytest.approx(1.0)


def test_every_launch_adds_its_time() -> None:
    assert seconds("bandwidth", Work(kernels=4), GPU, calibration()) == pytest.approx(12e-6)


def test_a_measured_product_of_a_thousand_rows_is_met_within_five_percent() -> None:
    """1,024 x 7,168 x 4,096: 60.1 GFLOP at 0.79 x 989 TFLOP/s is 77 us; measured 77.7 us."""
    gpu = GpuSpec.model_validate(plain("gpus/h800"))
    profile = CalibrationSpec.model_validate(plain("calibrations/h800-hopper-bf16"))
    work = Work(flop=2 * 1024 * 7168 * 4096, bytes=2 * (1024 * 11264 + 7168 * 4096))
    assert seconds("gemm", work, gpu, profile) == pytest.approx(77.7e-6, rel=0.05)


def test_a_kind_of_kernels_that_was_measured_apart_has_its_own_share_and_launch() -> None:
    """2e11 bytes take 0.1 s of the memory's 2 TB/s: a quarter of it for norms, 0.9 for others."""
    known = calibration(streaming={"norm": {"bandwidth": 0.25, "launch": "1ms"}})
    work = Work(bytes=2e11, kernels=2)
    assert seconds("norm", work, GPU, known) == pytest.approx(0.4 + 2e-3)
    assert seconds("cast", work, GPU, known) == pytest.approx(0.1 / 0.9 + 6e-6)
    assert seconds("bandwidth", work, GPU, known) == seconds("norm", work, GPU, calibration())


def test_gradients_of_a_kind_reach_their_part_of_its_share() -> None:
    """2e11 bytes at a quarter of 2 TB/s take 0.4 s, and their gradients at half of that 0.8 s."""
    known = calibration(streaming={"norm": {"bandwidth": 0.25, "launch": "0s", "backward": 0.5}})
    work = Work(bytes=2e11, kernels=2)
    assert seconds("norm", work, GPU, known) == pytest.approx(0.4)
    assert seconds("norm", work, GPU, known, backward=True) == pytest.approx(0.8)


def test_attention_on_narrow_heads_is_slower_and_its_launches_are_its_own() -> None:
    """Heads as wide as `width` take twice as long as very wide ones."""
    known = calibration(attention_forward_width=64.0, attention_forward_launch="5us")
    work = Work(flop=1e14, kernels=1, width=64.0)
    assert seconds("attention", work, GPU, known) == pytest.approx(2 / 0.6 + 5e-6)
    assert seconds("attention", work, GPU, known, backward=True) == pytest.approx(2 + 3e-6)
    wide = Work(flop=1e14, kernels=1, width=64e6)
    assert seconds("attention", wide, GPU, known) == pytest.approx(1 / 0.6, rel=1e-5)


def test_each_group_of_a_product_adds_its_launch_and_a_single_product_none() -> None:
    law = {"efficiency": 1.0, "ramp": 0.0, "launch": "1us", "group_launch": "10us"}
    spans = {"whole_tiles": False, "sides": [1, 10**6], "inner": [1, 10**6]}
    known = calibration(matmuls={"bf16": law | spans})
    one, many = (Product(1024, 1024, 1024, groups) for groups in (1, 8))
    alone, split = (
        seconds("grouped_gemm", Work(1e12, 0.0, 1, product), GPU, known) for product in (one, many)
    )
    assert alone == pytest.approx(1e-2 + 1e-6)
    assert split == pytest.approx(alone + 80e-6)


def test_permutations_without_numbers_of_their_own_are_as_fast_as_gathers() -> None:
    own, other = (load_part("calibrations", name).spec for name in ("b200-nemo", "h100-nemo"))
    assert apart_as("permute", own) == "permute"
    assert apart_as("permute", other) == "gather"
    assert measured_apart("permute", other) == measured_apart("gather", other)


def test_products_with_a_scale_per_32_values_keep_their_share_and_others_do_not_know_it() -> None:
    spans = {"whole_tiles": False, "sides": [1, 10**6], "inner": [1, 10**6]}
    law = {"efficiency": 0.8, "ramp": 0.0, "launch": "0us", "scaled": 0.5} | spans
    known = calibration(matmuls={"bf16": law, "fp8": law})
    shapes = (Product(4096, 4096, 4096, precision=one) for one in ("fp8", "bf16"))
    for product, longer in zip(shapes, (2.0, 1.0), strict=True):
        work = Work(1e15, 0.0, 1, product)
        plain, fine = (
            seconds("gemm", work, GPU, with_scaling(known, one)) for one in ("current", "mx")
        )
        assert fine == pytest.approx(longer * plain)


def test_clocks_at_a_power_limit_follow_the_cube_root_of_the_power_above_idle() -> None:
    """A switch's power is the clock cubed, since the voltage falls with it (Mudge 2001)."""
    profile = calibration(sustained=0.8, power="700W")
    power = {"idle": "100W", "compute": 1.0, "communication": 0.5, "waiting": 0.5}
    limits = {"700W": 1.0, "400W": 0.5 ** (1 / 3), "175W": 0.5}
    for limit, slower in limits.items():
        gpu = GPU.model_copy(update={"power": GpuPowerSpec.model_validate(power | {"max": limit})})
        assert sustained(gpu, profile) == pytest.approx(0.8 * slower)
    more = GPU.model_copy(update={"power": GpuPowerSpec.model_validate(power | {"max": "2kW"})})
    assert sustained(more, profile) == 1.0
    assert sustained(GPU, calibration(sustained=0.8)) == 0.8


def test_two_limits_of_blackwell_agree_with_that_law() -> None:
    """Fitted apart: 0.775 on B200 at 1,000 W and 0.82 on GB200 at 1,200 W, 4 % standard error."""
    b200 = CalibrationSpec.model_validate(plain("calibrations/b200-nemo") | {"power": "1kW"})
    gb200 = load_part("gpus", "GB200").spec
    fitted = load_part("calibrations", "gb200-nemo").spec.sustained
    assert sustained(gb200, b200) == pytest.approx(fitted, rel=0.04)
