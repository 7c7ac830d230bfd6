"""Intervals against closed forms and drawn truths; pass@k against counting; votes."""

from __future__ import annotations

import random
from itertools import combinations
from math import comb

import pytest
from scipy import stats

from reference.evaluate.statistics import (
    best_of,
    grouped,
    most_voted,
    pass_at,
    ratio,
    share,
    wilson,
)

Z = 1.959963984540054


@pytest.mark.parametrize(("right", "cases"), [(0, 10), (1, 10), (5, 10), (10, 10), (81, 263)])
def test_wilsons_interval_is_scipys(right, cases):
    wanted = stats.binomtest(right, cases).proportion_ci(0.95, method="wilson")
    assert wilson(right / cases, cases, Z) == pytest.approx((wanted.low, wanted.high), abs=1e-12)


def test_single_yes_or_no_cases_have_wilsons_interval():
    found = share(grouped((str(at), float(at < 3)) for at in range(10)))
    assert found.how == "wilson"
    assert (found.low, found.high) == pytest.approx(wilson(0.3, 10, Z))


def test_copies_of_a_case_in_its_group_add_no_certainty():
    one = share(grouped((str(at), float(at < 8)) for at in range(20)))
    many = share(grouped((str(at), float(at < 8)) for at in range(20) for _ in range(50)))
    assert _width(many) > 0.95 * _width(one)


def _width(found):
    return found.high - found.low


def test_one_group_alone_has_no_interval():
    assert share({"a": [0.0, 1.0]}).low is None
    assert ratio({"a": [(1.0, 2.0)]}).low is None


def _covered(draw, truth: float, times: int = 400) -> float:
    chance = random.Random(17)
    found = [draw(chance) for _ in range(times)]
    return sum(one.low <= truth <= one.high for one in found) / times


@pytest.mark.parametrize("truth", [0.05, 0.3, 0.5])
def test_95_of_100_intervals_of_single_cases_hold_the_truth(truth):
    def draw(chance):
        return share(grouped((str(at), float(chance.random() < truth)) for at in range(60)))

    assert 0.92 <= _covered(draw, truth) <= 0.985


def test_95_of_100_intervals_of_repeated_samples_hold_the_truth():
    # Questions differ: each has its own chance, from a beta distribution with mean 0.3.
    def draw(chance):
        hard = [chance.betavariate(0.6, 1.4) for _ in range(40)]
        return share(
            {
                str(at): [sum(chance.random() < p for _ in range(4)) / 4]
                for at, p in enumerate(hard)
            },
            160,
        )

    assert 0.92 <= _covered(draw, 0.3) <= 0.985


def test_95_of_100_intervals_of_grouped_cases_hold_the_truth_and_plain_ones_do_not():
    def texts(chance):
        hard = [chance.betavariate(0.6, 1.4) for _ in range(30)]
        return {
            str(at): [float(chance.random() < p) for _ in range(5)] for at, p in enumerate(hard)
        }

    def plain(chance):
        values = [one for group in texts(chance).values() for one in group]
        return share({str(at): [one] for at, one in enumerate(values)})

    assert 0.92 <= _covered(lambda chance: share(texts(chance)), 0.3) <= 0.985
    assert _covered(plain, 0.3) < 0.88


def test_95_of_100_intervals_of_ratios_and_paired_differences_hold_the_truth():
    def bits(chance):
        sizes = [chance.uniform(50, 500) for _ in range(25)]
        return ratio(
            {str(at): [(size * chance.gauss(2.0, 0.4), size)] for at, size in enumerate(sizes)}
        )

    def paired(chance):
        hard = [chance.gauss(0, 5) for _ in range(25)]
        return ratio(
            {
                str(at): [((base + 1 + chance.gauss(0, 1)) - base, 1.0)]
                for at, base in enumerate(hard)
            },
            "paired t",
        )

    assert 0.92 <= _covered(bits, 2.0) <= 0.985
    assert 0.92 <= _covered(paired, 1.0) <= 0.985


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
