"""Fits without a source, on errors that are linear by hand."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest

from tests.evidence.validate.made import residual
from twin.evidence.validate.free_parameters import FREE
from twin.evidence.validate.source_left_out import LinearFit, leave_sources_out, numbers_without
from twin.reports.interval import Known

GPU, NUMBER = "B200", 0
"""The first free number: `sustained` of b200-nemo."""


def fit(*sources: str) -> LinearFit:
    """Of one row of each source, all of which want the first number 20 % below its prior."""
    free = FREE[GPU]
    x = np.zeros(len(free))
    slopes = np.zeros((len(sources), len(free)))
    slopes[:, NUMBER] = -1.0
    return LinearFit(GPU, sources, x, np.full(len(sources), log(0.8)), slopes)


def sustained(name: str, *fits: LinearFit) -> float:
    found = numbers_without(name, fits).profiles["b200-nemo"].sustained
    assert found is not None
    return found / FREE[GPU][NUMBER].prior


def test_without_its_only_source_a_number_is_the_prior() -> None:
    assert sustained("paper", fit("paper")) == pytest.approx(1.0, rel=1e-3)


def test_the_rest_of_the_rows_keep_a_number_near_what_they_want() -> None:
    rest = [sustained("paper", fit("paper", *["other"] * n)) for n in (1, 4, 16)]
    assert rest == sorted(rest, reverse=True)
    assert rest[0] < 0.95
    assert rest[-1] == pytest.approx(exp(log(0.8)), rel=0.03)


def test_a_source_that_no_fit_saw_changes_no_number() -> None:
    found = numbers_without("other", [fit("paper")])
    assert not found.profiles
    assert not found.software


def test_residuals_of_such_sources_stay_as_they_are() -> None:
    known = Known((residual("row", 0.1, family="nobody's paper | m | g | bf16"),))
    assert leave_sources_out((), known, 1) == known
