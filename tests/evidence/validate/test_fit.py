"""The shipped profiles are what the fits on their rows give, and only rows for fitting are read."""

from __future__ import annotations

from functools import cache

import pytest

from twin.evidence.validate.fit import fit_of, numbers_at, targets
from twin.evidence.validate.free_parameters import FREE, profiles, shipped
from twin.evidence.validate.suite import read_suite
from twin.loading import load_part

BIG = ("A100", "H100", "B200")
"""Whose rows take seconds to place."""
SLOW = pytest.mark.parametrize(
    "gpu", [pytest.param(gpu, marks=[pytest.mark.slow] if gpu in BIG else []) for gpu in FREE]
)


@cache
def targets_of(gpu: str):
    return targets(read_suite(), profiles(gpu))


@SLOW
def test_only_rows_for_fitting_are_fitted(gpu: str) -> None:
    fitted = {row.id for row in read_suite() if row.use == "fit"}
    found = targets_of(gpu)
    assert found
    assert {one.id for one in found} <= fitted


@pytest.mark.parametrize("gpu", FREE)
def test_there_are_fewer_numbers_than_rows_or_priors_hold_them(gpu: str) -> None:
    """Each number has a finite prior, and lies within its bounds."""
    for one in FREE[gpu]:
        assert one.low <= one.prior <= one.high
        assert one.low <= shipped(one) <= one.high
        assert 0 < one.spread < 1


@pytest.mark.slow
@pytest.mark.parametrize("gpu", ["A100", "H100"])
def test_the_shipped_numbers_miss_the_rows_that_they_were_fitted_on_by_little(gpu: str) -> None:
    numbers = [shipped(one) for one in FREE[gpu]]
    known = numbers_at(FREE[gpu], numbers)
    rows = [row for row in targets_of(gpu) if "multi" not in row.id]
    errors = [abs(row.error(known)) for row in rows]
    assert sum(errors) / len(errors) < 0.09


@pytest.mark.slow
@pytest.mark.parametrize("gpu", FREE)
def test_the_shipped_numbers_are_the_fit(gpu: str) -> None:
    """Within half a standard error: the valley is flat, and values are written rounded."""
    found = fit_of(gpu)
    errors = found.ridge.deviations
    for one, value, error in zip(found.free, found.values, errors, strict=True):
        assert shipped(one) == pytest.approx(value, rel=0.5 * error), one.path


@pytest.mark.parametrize("name", profiles("A100"))
def test_products_stay_below_the_best_ever_measured(name: str) -> None:
    """271.2 of 312 TFLOP/s (ml-engineering, row `mamf-bf16-a100-sxm`)."""
    known = load_part("calibrations", name).spec.matmuls
    assert known is not None
    assert known.bf16 is not None
    assert known.bf16.efficiency <= 271.2 / 312
