"""Learning rates tuned with equal effort."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2, sqrt

import pytest

from reference.studies.outcome import Outcome
from reference.studies.tuning import at_end, best, candidate, tune
from tests.reference.studies.runs_of import outcome

Asked = Sequence[tuple[str, float]]
OPTIMA = {"left": 1e-3, "inside": 4e-3}


def bowl(asked: Asked) -> dict[tuple[str, float], Outcome]:
    """Losses with one minimum over the logarithm of the rate."""
    return {(name, rate): outcome(3 + log2(rate / OPTIMA[name]) ** 2) for name, rate in asked}


def test_a_best_rate_at_an_end_is_followed_until_it_lies_inside() -> None:
    tried = tune(["left", "inside"], [2e-3, 4e-3, 8e-3], bowl, rounds=5)
    assert best(tried["left"]) == pytest.approx(1e-3)
    assert not at_end(tried["left"])


def test_nobody_gets_more_runs_than_another() -> None:
    tried = tune(["left", "inside"], [2e-3, 4e-3, 8e-3], bowl, rounds=5)
    assert len(tried["left"]) == len(tried["inside"]) == 5


def test_no_run_is_added_where_all_best_rates_lie_inside() -> None:
    assert len(tune(["inside"], [2e-3, 4e-3, 8e-3], bowl, rounds=5)["inside"]) == 3


def test_rounds_bound_the_effort() -> None:
    assert len(tune(["left"], [8e-3, 16e-3], bowl, rounds=1)["left"]) == 3


def test_the_next_candidate_of_a_best_rate_inside_lies_towards_its_better_neighbour() -> None:
    tried = {1e-3: outcome(3.5), 2e-3: outcome(3.0), 4e-3: outcome(3.1)}
    assert candidate(tried) == pytest.approx(sqrt(2e-3 * 4e-3))


def test_a_run_that_diverged_is_never_the_best() -> None:
    diverged = outcome(held_out=[(10, float("nan"))])
    object.__setattr__(diverged, "ended", "diverged")
    assert best({1e-3: diverged, 2e-3: outcome(9.0)}) == 2e-3
