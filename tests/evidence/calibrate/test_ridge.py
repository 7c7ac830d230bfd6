"""The fit near a base: what is linear is exact, and what rows do not show stays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twin.evidence.calibrate.factors import Array
from twin.evidence.calibrate.ridge import NOISE, Ridge, solve

WIDE = (np.full(2, -3.0), np.full(2, 3.0))


def linear(rows: int, seed: int = 0, size: float = 0.01) -> tuple[Array, Array]:
    """Slopes and errors at the base of a linear problem with small errors."""
    random = np.random.default_rng(seed)
    return random.normal(size=(rows, 2)), random.normal(scale=size, size=rows)


def fitted(slopes: Array, errors: Array, spreads: tuple[float, ...] = (0.3, 0.3)) -> Ridge:
    count = len(spreads)
    bounds = (np.full(count, -3.0), np.full(count, 3.0))
    return solve(lambda x: errors + slopes @ x, spreads, bounds, np.zeros(count))


def test_a_linear_problem_is_solved_in_closed_form() -> None:
    """x = -(J' J / s^2 + P)^-1 J' r / s^2, for errors far below where rows count less."""
    slopes, errors = linear(8, size=0.001)
    x = np.linalg.solve(
        slopes.T @ slopes / NOISE**2 + np.eye(2) / 0.3**2, -slopes.T @ errors / NOISE**2
    )
    assert fitted(slopes, errors).x == pytest.approx(x, rel=1e-2, abs=1e-6)


@settings(max_examples=30)
@given(st.integers(0, 50), st.integers(0, 7))
def test_leaving_a_row_out_is_what_a_fit_without_it_gives(seed: int, row: int) -> None:
    slopes, errors = linear(8, seed)
    rest = np.arange(8) != row
    direct = fitted(slopes[rest], errors[rest])
    assert fitted(slopes, errors).without(row) == pytest.approx(direct.x, abs=2e-3)


def test_leaving_two_rows_out_is_what_a_fit_without_them_gives() -> None:
    slopes, errors = linear(8, 3)
    rest = ~np.isin(np.arange(8), (2, 5))
    direct = fitted(slopes[rest], errors[rest])
    assert fitted(slopes, errors).without(2, 5) == pytest.approx(direct.x, abs=2e-3)


def test_the_error_of_a_row_left_out_is_its_error_over_one_less_its_leverage() -> None:
    """r / (1 - h), with h of the hat matrix (Cook and Weisberg 1982, equation 2.2.21)."""
    slopes, errors = linear(8, 4, size=0.001)
    ridge = fitted(slopes, errors)
    gains = slopes / NOISE
    hat = np.diag(gains @ np.linalg.solve(ridge.hessian, gains.T))
    for row in range(8):
        left_out = ridge.linear(ridge.without(row))[row]
        assert left_out == pytest.approx(ridge.errors[row] / (1 - hat[row]), rel=1e-3)


def test_a_factor_that_no_row_feels_stays_at_the_base() -> None:
    slopes, errors = linear(8)
    slopes[:, 1] = 0.0
    ridge = fitted(slopes, errors)
    assert ridge.x[1] == pytest.approx(0.0, abs=1e-6)
    assert ridge.learned[1] == pytest.approx(0.0, abs=1e-9)
    assert ridge.learned[0] > 0.8
    assert ridge.determined == pytest.approx(1.0, abs=0.05)


def test_two_factors_that_rows_cannot_tell_apart_share_what_they_say() -> None:
    slopes, errors = linear(8)
    slopes[:, 1] = slopes[:, 0]
    ridge = fitted(slopes, errors)
    assert ridge.x[0] == pytest.approx(ridge.x[1], rel=1e-3)
    assert ridge.determined < 1.05


def test_one_row_that_ran_badly_moves_a_fit_less_than_its_square_would() -> None:
    slopes, errors = np.ones((8, 1)), np.zeros(8)
    errors[0] = 1.0
    x = fitted(slopes, errors, (0.3,)).x[0]
    squares = -(errors.sum() / NOISE**2) / (8 / NOISE**2 + 1 / 0.3**2)
    assert squares < -0.12
    assert -0.04 < x < 0


def test_no_factor_leaves_its_bounds() -> None:
    slopes, errors = np.ones((5, 1)), np.full(5, -0.5)
    ridge = solve(
        lambda x: errors + slopes @ x, (0.3,), (np.array([-3.0]), np.array([0.1])), np.zeros(1)
    )
    assert 0.09 < ridge.x[0] <= 0.1
    assert ridge.without(0)[0] <= 0.1
