"""pass@k against counting, and what several samples come to."""

from __future__ import annotations

from itertools import combinations
from math import comb

import pytest

from reference.evaluate.statistics import best_of, most_voted, pass_at


@pytest.mark.parametrize("samples", [1, 4, 7])
def test_pass_at_k_counts_the_draws_that_hold_a_right_one(samples):
    for right in range(samples + 1):
        for k in range(1, samples + 1):
            draws = list(combinations([at < right for at in range(samples)], k))
            assert pass_at(k, samples, right) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_pass_at_k_is_unbiased_for_k_new_samples_and_the_plain_plug_in_is_not():
    samples, k, p = 8, 3, 0.2
    weights = [comb(samples, c) * p**c * (1 - p) ** (samples - c) for c in range(samples + 1)]
    truth = 1 - (1 - p) ** k
    found = sum(w * pass_at(k, samples, c) for c, w in enumerate(weights))
    plug_in = sum(w * (1 - (1 - c / samples) ** k) for c, w in enumerate(weights))
    assert found == pytest.approx(truth, abs=1e-12)
    assert abs(plug_in - truth) > 0.02


def test_pass_at_more_than_there_are_samples_is_refused():
    with pytest.raises(ValueError, match="at least 5"):
        pass_at(5, 4, 1)


def test_most_of_the_samples_decide_and_the_first_of_equals():
    assert most_voted(["4", "5", "5", None]) == 1
    assert most_voted(["4", "5", "5", "4"]) == 0
    assert most_voted([None, None]) is None


def test_the_verifier_chooses_the_best_and_the_first_of_equals():
    assert best_of([0.0, 1.0, 1.0]) == 1
