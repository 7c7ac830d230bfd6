"""The committed A100 profiles are what the fits on their rows give, and reproduce those rows."""

from __future__ import annotations

from math import log

import pytest

from twin.calibrate.a100 import HOST, KERNELS, iteration_rows, layer_rows
from twin.calibrate.fit import fit
from twin.loading import load_part
from twin.loading.files import shipped_folder
from twin.spec.calibration import CalibrationSpec

PUBLISHED = shipped_folder() / "published"


def committed(name: str) -> CalibrationSpec:
    """A shipped profile."""
    part = load_part("calibrations", name).spec
    assert isinstance(part, CalibrationSpec)
    return part


def test_the_megatron_profile_is_the_fit_on_one_layer() -> None:
    profile, found = committed("a100-megatron"), fit(layer_rows(PUBLISHED), KERNELS)
    assert profile.gemm == pytest.approx(found.values["gemm"], abs=0.005)
    assert profile.bandwidth == pytest.approx(found.values["bandwidth"], abs=0.01)
    assert max(map(abs, found.residuals.values())) < 0.05


def test_the_deepspeed_profile_reproduces_the_iterations_that_it_was_fitted_on() -> None:
    errors = [
        log(row.predicted(("calibration=a100-megatron-deepspeed",)) / row.measured)
        for row in iteration_rows(PUBLISHED)
    ]
    assert sum(map(abs, errors)) / len(errors) < 0.09
    assert abs(sum(errors) / len(errors)) < 0.03


@pytest.mark.parametrize("name", ["a100-megatron", "a100-megatron-deepspeed"])
def test_products_stay_below_the_best_ever_measured(name: str) -> None:
    """271.2 of 312 TFLOP/s (ml-engineering, row `mamf-bf16-a100-sxm`)."""
    assert committed(name).gemm <= 271.2 / 312


@pytest.mark.slow
def test_the_deepspeed_profile_is_the_fit_on_all_iterations() -> None:
    """Its numbers trade against each other: each within its standard error, all as good."""
    profile = committed("a100-megatron-deepspeed")
    rows = iteration_rows(PUBLISHED)
    found = fit(rows, KERNELS + HOST)
    own = {
        "gemm": profile.gemm,
        "bandwidth": profile.bandwidth,
        "launch": profile.launch * 1e6,
        "dispatch": profile.dispatch * 1e6,
    }
    for name, value in own.items():
        assert value == pytest.approx(found.values[name], abs=found.errors[name]), name
    calibration = ("calibration=a100-megatron-deepspeed",)
    errors = [abs(log(row.predicted(calibration) / row.measured)) for row in rows]
    best = [abs(error) for error in found.residuals.values()]
    assert sum(errors) / len(rows) == pytest.approx(sum(best) / len(rows), abs=0.002)


def test_no_row_of_a_fit_is_a_step_that_judges_the_twin() -> None:
    names = [row.name for row in (*layer_rows(PUBLISHED), *iteration_rows(PUBLISHED))]
    assert len(names) == len(set(names)) == 50
    assert all(name.startswith(("t4-", "vtrain-fit-")) for name in names)
    assert 18.13 not in {row.measured for row in layer_rows(PUBLISHED)}
