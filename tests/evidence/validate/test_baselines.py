"""Two simpler models, by hand."""

from __future__ import annotations

import pytest

from tests.evidence.validate.made import answer, residual
from twin.evidence.validate.baselines import answers, known, predict

ROWS = known(
    [
        residual("small", 0.0, fitted=True, flop=1e15, measured=2.0, gpus=64),
        residual("large", 0.0, fitted=True, flop=9e15, measured=10.0, gpus=512),
        residual("fp8", 0.0, fitted=True, flop=1e15, measured=1.0, precision="fp8"),
        residual("other", 0.0, fitted=True, flop=1e15, measured=8.0, gpu="A100-80GB"),
        residual("near", 0.0, flop=1e15, measured=1e-3),
        residual("peak", 0.0, fitted=True, metric="peak_device_bytes"),
    ]
)


def test_baselines_see_steps_of_fitted_rows_and_no_others() -> None:
    assert [row.id for row in ROWS] == ["small", "large", "fp8", "other"]


def test_the_nearest_row_lends_its_rate() -> None:
    """The large row does 0.9e15 FLOP/s: 1.8e16 FLOP take 20 s."""
    asked = answer("asked", flop=1.8e16, gpus=512)
    assert predict("nearest", asked, ROWS) == pytest.approx(20.0)


def test_the_same_precision_comes_before_the_same_size() -> None:
    asked = answer("asked", flop=9e15, gpus=512, precision="fp8")
    assert predict("nearest", asked, ROWS) == pytest.approx(9.0)


def test_a_gpu_without_fitted_rows_has_no_nearest_one() -> None:
    assert predict("nearest", answer("asked", gpu="H800"), ROWS) is None


def test_one_efficiency_is_the_median_of_the_gpus_rows_in_that_precision() -> None:
    """0.5 and 0.9 PFLOP/s: 1.4e15 FLOP take 2 s at their median."""
    asked = answer("asked", flop=1.4e15)
    assert predict("efficiency", asked, ROWS) == pytest.approx(2.0)


def test_a_gpu_without_rows_in_a_precision_takes_the_share_of_its_other_one() -> None:
    """0.125e15 of 312e12 is a share of 0.4006, and A100 has no FP8: nothing. H800 has no rows: the
    median share of all GPUs, whose peak is the same as of H100."""
    assert predict("efficiency", answer("asked", gpu="A100-80GB", precision="fp8"), ROWS) is None
    shares = sorted((0.5e15 / 989e12, 0.9e15 / 989e12, 1e15 / 1979e12, 0.125e15 / 312e12))
    middle = (shares[1] + shares[2]) / 2
    asked = answer("asked", gpu="H800", flop=989e12)
    assert predict("efficiency", asked, ROWS) == pytest.approx(1.0 / middle)


def test_a_fitted_row_is_not_told_its_own_time() -> None:
    asked = answer("fp8", flop=1e15, precision="fp8", use="fit")
    assert predict("nearest", asked, ROWS) == pytest.approx(2.0)


def test_only_steps_are_answered() -> None:
    asked = [answer("a"), answer("b", metric="peak_device_bytes"), answer("c", None)]
    assert [one.id for one in answers("efficiency", asked, ROWS)] == ["a"]
