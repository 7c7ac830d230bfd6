"""Numbers of few seeds."""

from __future__ import annotations

import pytest

from reference.studies.seeds import between, cells, finals, head, seeds_of, spread
from tests.reference.studies.runs_of import outcome

FOUND = {("muon", 7): outcome(3.0), ("muon", 2): outcome(2.0), ("adamw", 2): outcome(4.0)}


def test_seeds_are_in_order_and_losses_follow_them() -> None:
    assert seeds_of(FOUND) == (2, 7)
    assert finals(FOUND, "muon") == [2.0, 3.0]


def test_every_cell_has_its_head() -> None:
    losses = finals(FOUND, "muon")
    assert dict(zip(head(seeds_of(FOUND)), cells(losses), strict=True)) == {
        "seed 2": "2.0000",
        "seed 7": "3.0000",
        "mean": "2.5000",
    }


def test_one_seed_has_no_spread_and_two_have_the_unbiased_one() -> None:
    assert spread([3.0]) == 0
    assert spread([1.0, 3.0]) == pytest.approx(2**0.5)


def test_equal_numbers_are_shown_once() -> None:
    assert between([0.5, 0.5001], ".2f") == "0.50"
    assert between([0.6, 0.5], ".2f") == "0.50 to 0.60"
