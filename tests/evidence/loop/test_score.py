"""What is said of many layouts, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from scipy.stats import spearmanr

from twin.evidence.loop.outcome import LayoutOutcome, score
from twin.evidence.measured.compare import StepComparison


def _outcome(name: str, predicted: float, *steps: float, mode: str = "paced") -> LayoutOutcome:
    comparison = StepComparison(1, round(predicted * 1e9), {}, {}, (), ())
    facts = {"links": "1,000 Mbps", "ranks": 2, "kept": (1.0, None), "overruns": 0.0}
    known = {"sealed": True, "interval": (0.9, 1.2), "folder": Path()}
    return LayoutOutcome(name, mode, comparison=comparison, steps=steps, **known, **facts)


def test_errors_are_those_of_the_median_step() -> None:
    one = _outcome("a", 1.1, 0.9, 1.0, 5.0)
    assert one.measured == 1.0
    assert one.error == pytest.approx(0.1)


def test_median_and_largest_error_are_absolute() -> None:
    found = score([_outcome("a", 1.1, 1.0), _outcome("b", 1.6, 2.0), _outcome("c", 3.0, 3.0)])
    (one,) = found
    assert one.median_error == pytest.approx(0.1)
    assert one.largest_error == pytest.approx(0.2)
    assert one.rank_correlation == pytest.approx(1.0)


def test_intervals_hold_what_was_measured_or_not() -> None:
    (one,) = score([_outcome("a", 1.0, 0.9), _outcome("b", 1.0, 1.3), _outcome("c", 1.0, 0.89)])
    assert (one.hits, one.intervals) == (1, 3)
    assert one.rank_correlation is None, "all predictions are equal"


def test_modes_are_judged_apart() -> None:
    found = score([_outcome("a", 1.0, 1.0), _outcome("b", 2.0, 1.0, mode="bare")])
    assert [(one.mode, one.layouts, one.largest_error) for one in found] == [
        ("paced", 1, 0.0),
        ("bare", 1, 1.0),
    ]


def test_rank_correlation_is_that_of_scipy() -> None:
    predicted, measured = [3.0, 1.0, 2.0, 2.0, 5.0], [2.5, 1.0, 3.5, 2.0, 4.0]
    rows = [
        _outcome(str(at), p, m) for at, (p, m) in enumerate(zip(predicted, measured, strict=True))
    ]
    assert score(rows)[0].rank_correlation == pytest.approx(
        spearmanr(predicted, measured).statistic
    )


def test_a_run_whose_second_half_is_slower_has_drifted() -> None:
    steady, slower = (
        _outcome("a", 1.0, 1.0, 1.01, 1.0, 1.02),
        _outcome("b", 1.0, 1.0, 1.0, 1.1, 1.1),
    )
    assert not steady.drifted
    assert slower.drift == pytest.approx(0.1)
    assert score([steady, slower])[0].drifted == 1
