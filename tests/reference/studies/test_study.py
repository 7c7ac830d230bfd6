"""Numbers as pages show them: of few seeds, and where curves reach a level."""

from __future__ import annotations

import pytest

from reference.studies.runs import finals
from reference.studies.study import (
    between,
    cells,
    reached,
    seed_columns,
    seeds_of,
    spread,
)
from tests.reference.studies.runs_of import outcome

FOUND = {("muon", 7): outcome(3.0), ("muon", 2): outcome(2.0), ("adamw", 2): outcome(4.0)}


def test_seeds_are_in_order_and_losses_follow_them() -> None:
    assert seeds_of(FOUND) == (2, 7)
    assert finals(FOUND, "muon") == [2.0, 3.0]


def test_every_cell_has_its_head() -> None:
    assert seed_columns(seeds_of(FOUND)) == ["seed 2", "seed 7", "mean"]
    assert cells(finals(FOUND, "muon")) == "2.0000 | 3.0000 | 2.5000"


def test_one_seed_has_no_spread_and_two_have_the_unbiased_one() -> None:
    assert spread([3.0]) == 0
    assert spread([1.0, 3.0]) == pytest.approx(2**0.5)


def test_equal_numbers_are_shown_once() -> None:
    assert between([0.5, 0.5001], ".2f") == "0.50"
    assert between([0.6, 0.5], ".2f") == "0.50 to 0.60"


def test_half_way_down_is_the_geometric_mean_of_two_places() -> None:
    """Losses fall evenly with the logarithm: from 100 to 400 tokens, half of it is at 200."""
    assert reached([(100, 3.0), (400, 2.0)], 2.5) == pytest.approx(200)


def test_a_point_of_the_curve_is_where_its_own_loss_is_reached() -> None:
    curve = [(100, 3.0), (200, 2.5), (400, 2.0)]
    for tokens, loss in curve:
        assert reached(curve, loss) == pytest.approx(tokens)


def test_the_first_crossing_counts_where_a_curve_rises_again() -> None:
    assert reached([(100, 3.0), (200, 2.0), (300, 2.6), (400, 1.9)], 2.0) == pytest.approx(200)


def test_a_curve_that_stays_above_never_gets_there() -> None:
    assert reached([(100, 3.0), (400, 2.0)], 1.9) is None
    assert reached([], 1.9) is None


def test_a_lower_level_is_never_reached_earlier() -> None:
    curve = [(100, 3.0), (200, 2.5), (400, 2.4), (800, 2.0)]
    places = [reached(curve, 3 - part / 50) or 0.0 for part in range(51)]
    assert places == sorted(places)
