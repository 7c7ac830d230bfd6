"""The committed laws of products, and of Hopper's attention, are what the fits give, meet their
rows, and meet shapes that they have not seen about as well."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from statistics import mean, median

import pytest

from twin.evidence.calibrate.hopper import Path, committed, fitted, tasks, with_numbers
from twin.evidence.calibrate.kernels import FILES, kernels, published
from twin.loading import load_part
from twin.spec.base import Spec

PROFILES = tuple(FILES)
HELD = {"fp8, weight gradient", "attention, forward: the ramp", "attention, backward: the ramp"}
"""Fits of which the profile takes only a part, for the reasons in its notes."""


def number(spec: Spec, path: Path) -> float:
    for name in path:
        spec = getattr(spec, name)
    return spec  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize("profile", PROFILES)
def test_committed_numbers_are_those_of_the_fit(profile: str) -> None:
    gpu, calibration = committed(profile)
    for task in tasks(profile):
        found = fitted(task, gpu, calibration)
        for path, value, error in zip(task.numbers, found.values, found.errors, strict=True):
            if task.name in HELD and not path[-1].endswith("_ramp"):
                continue
            assert number(calibration, path) == pytest.approx(value, abs=error / 3), path


@pytest.mark.parametrize("profile", PROFILES)
def test_a_range_holds_two_standard_errors_of_its_fit(profile: str) -> None:
    gpu, calibration = committed(profile)
    ledger = load_part("calibrations", profile).ledger
    for task in (task for task in tasks(profile) if task.name not in HELD):
        found = fitted(task, gpu, calibration)
        for path, value, error in zip(task.numbers, found.values, found.errors, strict=True):
            span = ledger[".".join(path)].range
            assert span is not None
            low, high = (float(str(end).removesuffix("us")) for end in span)
            scale = 1e-6 if path[-1] == "launch" else 1.0
            assert low * scale <= max(0.0, value - 2 * error), path
            assert value + 2 * error <= high * scale, path


def test_weight_gradients_in_the_traces_kernels_are_a_fifth_slower_than_in_deepgemms() -> None:
    gpu, calibration = committed("h800-hopper-bf16")
    task = next(task for task in tasks("h800-hopper-bf16") if task.name == "fp8, weight gradient")
    (found,) = fitted(task, gpu, calibration).values
    assert number(calibration, task.numbers[0]) == pytest.approx(found / 1.2, abs=0.003)


@pytest.mark.parametrize(
    ("profile", "row", "count", "middle", "worst"),
    [
        ("h800-hopper-bf16", "aic-gemm-h100-bfloat16", 80, 0.04, 0.24),
        ("h800-hopper-bf16", "te-grouped", 4, 0.04, 0.12),
        ("h800-hopper-bf16", "deepgemm-h800-dense", 24, 0.05, 0.24),
        ("h800-hopper-bf16", "deepgemm-h800-grouped", 14, 0.04, 0.11),
        ("h100-hopper-bf16", "aic-gemm-h100-fp8-block", 80, 0.03, 0.19),
        ("h100-hopper-bf16", "aic-attn", 30, 0.11, 0.50),
        ("a100-ampere-bf16", "aic-gemm-a100-bfloat16", 78, 0.08, 0.40),
    ],
)
def test_rows_are_met(profile: str, row: str, count: int, middle: float, worst: float) -> None:
    gpu, calibration = committed(profile)
    own = [kernel for kernel in kernels(profile) if kernel.row.startswith(row)]
    errors = [abs(kernel.error(gpu, calibration)) for kernel in own]
    assert len(errors) == count
    assert median(errors) < middle
    assert max(errors) < worst


@pytest.mark.parametrize(
    ("profile", "name", "bound"),
    [
        ("h800-hopper-bf16", "bf16", 0.06),
        ("h800-hopper-bf16", "fp8", 0.08),
        ("h100-hopper-bf16", "fp8, with cast", 0.055),
        ("a100-ampere-bf16", "bf16", 0.11),
    ],
)
def test_shapes_that_a_fit_has_not_seen_are_met_about_as_well(
    profile: str, name: str, bound: float
) -> None:
    """All kernels of one pair of columns and inner sum at a time are left out and predicted."""
    gpu, calibration = committed(profile)
    task = next(task for task in tasks(profile) if task.name == name)

    def weight(shape: str) -> str:
        return " x ".join(shape.split(" x ")[-2:])

    missed: list[float] = []
    ordered = sorted(task.kernels, key=lambda kernel: weight(kernel.shape))
    for _, group in groupby(ordered, lambda kernel: weight(kernel.shape)):
        out = list(group)
        rest = tuple(kernel for kernel in task.kernels if kernel not in out)
        found = fitted(replace(task, kernels=rest), gpu, calibration)
        other = with_numbers(calibration, task.numbers, found.values)
        missed += [abs(kernel.error(gpu, other)) for kernel in out]
    assert len(missed) == len(task.kernels)
    assert mean(missed) < bound


def test_two_snapshots_of_a_library_count_a_kernel_that_did_not_change_once() -> None:
    """18 + 4 + 6 kernels in each; the 12 thin and the 6 masked ones are the same in both."""
    assert len(published("deepgemm-h800")) == 2 * (18 + 4 + 6) - 12 - 6


def test_flop_and_bytes_of_a_product_are_those_that_its_source_counts() -> None:
    """DeepGEMM prints TFLOP/s and GB/s of each kernel: 4,096 x 7,168 x 16,384, 1,426 and 361."""
    (one,) = (
        kernel
        for kernel in published("deepgemm-h800")
        if kernel.shape == "4,096 x 7,168 x 16,384" and kernel.row.endswith("v2")
    )
    assert one.work.flop / one.measured == pytest.approx(1426e12, rel=1e-3)
    assert one.work.bytes / one.measured == pytest.approx(361e9, rel=0.02)


@pytest.mark.parametrize("profile", ["h100-hopper-bf16", "a100-ampere-bf16"])
def test_products_in_a_row_of_models_that_no_fit_has_seen_are_met(profile: str) -> None:
    """As products timed one by one they would be 12 % too fast."""
    gpu, calibration = committed(profile)
    own = [
        kernel
        for kernel in published("gemm-fp16-continuous-check")
        if kernel.row.startswith(f"vidur-gemm-{profile.partition('-')[0]}")
    ]
    assert len(own) > 40
    errors = [kernel.error(gpu, calibration) for kernel in own]
    assert abs(median(errors)) < 0.04
    assert mean(map(abs, errors)) < 0.1
    brief = [replace(kernel, continuous=False).error(gpu, calibration) for kernel in own]
    assert median(brief) < -0.1


def test_products_of_a100_between_the_fitted_sides_are_met_as_well() -> None:
    gpu, calibration = committed("a100-ampere-bf16")
    errors = [kernel.error(gpu, calibration) for kernel in published("gemm-a100-bf16-check")]
    assert len(errors) == 72
    assert mean(map(abs, errors)) < 0.11
    assert abs(mean(errors)) < 0.03
