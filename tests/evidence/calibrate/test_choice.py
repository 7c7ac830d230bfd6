"""Which factors are taken: those that predict rows which a fit has not seen, and no others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from twin.evidence.calibrate.choice import ROWS_PER_NUMBER, ChosenFactors, choose, sets_of
from twin.evidence.calibrate.factors import Array, Factor

ONE, TWO, THREE = (Factor(name, "", (), 0.3) for name in ("one", "two", "three"))
SETS = sets_of((ONE, TWO, THREE), "one", "one+two", "one+three", "one+two+three")
NAMES = {"one": 0, "two": 1, "three": 2}


def bounds(factors: Sequence[Factor]) -> tuple[Array, Array]:
    return np.full(len(factors), -3.0), np.full(len(factors), 3.0)


class Rows:
    """Rows whose errors are linear in the logarithms of three factors, with noise."""

    def __init__(self, truth: Sequence[float], rows: int, noise: float, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.slopes = random.uniform(0.0, 1.0, size=(rows, 3))
        self.base = -self.slopes @ np.array(truth) + random.normal(scale=noise, size=rows)

    def predict(self, row: int, factors: dict[Factor, float]) -> float:
        moved = sum(np.log(v) * self.slopes[row, NAMES[f.name]] for f, v in factors.items())
        return float(self.base[row] + moved)

    def choose(self, rows: Sequence[int] | None = None) -> ChosenFactors:
        kept = list(range(len(self.base)) if rows is None else rows)
        return choose(lambda i, by: self.predict(kept[i], by), len(kept), SETS, bounds)


def test_the_factors_that_made_the_rows_are_taken_and_found() -> None:
    chosen = Rows((-0.4, 0.3, 0.0), 24, 0.01).choose()
    assert chosen.best.names == ("one", "two")
    assert chosen.best.ridge.x == pytest.approx([-0.4, 0.3], abs=0.05)


def test_where_the_base_is_right_no_factor_is_taken() -> None:
    taken = [Rows((0.0, 0.0, 0.0), 12, 0.03, seed).choose().best.names for seed in range(10)]
    assert taken.count(()) >= 8


def test_no_more_numbers_are_tried_than_rows_allow() -> None:
    for rows in (3, 5, 6, 8, 9):
        tried = Rows((-0.4, 0.3, 0.2), rows, 0.01).choose().tried
        assert max(len(one.factors) for one in tried) == min(3, rows // ROWS_PER_NUMBER)


def test_a_factor_that_rows_do_not_feel_is_not_tried_beside_others() -> None:
    rows = Rows((-0.4, 0.3, 0.0), 12, 0.01)
    rows.slopes[:, 2] = 0.0
    names = [one.names for one in rows.choose().tried]
    assert ("one", "three") in names
    assert ("one", "two", "three") not in names


def test_the_error_that_is_told_is_that_of_the_whole_procedure_without_each_row() -> None:
    """A loop that leaves a row out, chooses and fits anew, and predicts it, against the formula."""
    rows = Rows((-0.3, 0.2, 0.0), 12, 0.02)
    direct: list[float] = []
    for row in range(12):
        others = [other for other in range(12) if other != row]
        direct.append(rows.predict(row, rows.choose(others).best.values()))
    assert rows.choose().left_out == pytest.approx(direct, abs=0.005)


def test_left_out_errors_are_no_smaller_than_those_of_the_fit() -> None:
    chosen = Rows((-0.3, 0.2, 0.0), 10, 0.05).choose()
    seen = np.abs(chosen.best.ridge.errors)
    assert np.all(np.abs(chosen.best.left_out) >= seen - 1e-9)


def test_four_of_five_further_rows_lie_within_the_distance() -> None:
    """Over many tables of ten rows: at least 80 % by the jackknife's theory, up to chance."""
    inside = total = 0
    for seed in range(40):
        rows = Rows((-0.3, 0.0, 0.0), 30, 0.05, seed)
        chosen = rows.choose(range(10))
        assert chosen.distance is not None
        for row in range(10, 30):
            error = rows.predict(row, chosen.best.values())
            inside += abs(error) <= chosen.distance
            total += 1
    assert 0.76 < inside / total < 0.95


def test_three_rows_give_no_interval() -> None:
    assert Rows((-0.3, 0.0, 0.0), 3, 0.05).choose().distance is None
    assert Rows((-0.3, 0.0, 0.0), 4, 0.05).choose().distance is not None
