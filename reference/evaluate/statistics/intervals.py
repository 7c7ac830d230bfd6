"""Confidence intervals over questions, which are a sample of those that might have been asked
(Miller 2024, "Adding Error Bars to Evals", arXiv:2411.00640).

A share of single yes-or-no cases has Wilson's interval (1927). What repeats within a group (several
samples of a question, several questions on one text) has a cluster-robust standard error (Miller,
section 2.2), put into Wilson's form by the effective number of cases, as Franco, Little, Louis and
Slud recommend ("Comparative Study of Confidence Intervals for Proportions in Complex Sample
Surveys", 2019): below some ten groups it covers less than it says. Ratios and differences have
Student's interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import pi, sqrt, tan
from statistics import NormalDist
from typing import Final

LEVEL: Final = 0.95
"""Of every interval."""
Groups = Mapping[str, Sequence[float]]
"""Values by the group that they belong to."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate, where the truth lies in 95 % of such samples, and of how many cases."""

    value: float
    low: float | None
    """None where one group alone says nothing of its spread."""
    high: float | None
    cases: int
    how: str
    """`wilson`, `clustered wilson`, `clustered t` or `paired t`."""


def grouped(pairs: Iterable[tuple[str, float]]) -> dict[str, list[float]]:
    """Values by group, in the order in which groups first come."""
    found: dict[str, list[float]] = {}
    for group, value in pairs:
        found.setdefault(group, []).append(value)
    return found


def student(probability: float, freedom: int) -> float:
    """The quantile of Student's distribution: exact for 1 and 2 degrees of freedom, else by
    Abramowitz and Stegun 26.7.5, off by 0.002 of it at most from 3 on at 0.975."""
    if freedom == 1:
        return tan(pi * (probability - 0.5))
    if freedom == 2:
        tail = 4 * probability * (1 - probability)
        return 2 * (probability - 0.5) * sqrt(2 / tail)
    z = NormalDist().inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


def wilson(value: float, cases: float, z: float) -> tuple[float, float]:
    """Where a share that was `value` of so many cases may lie, both ends within 0 and 1."""
    wide = 1 + z * z / cases
    middle = (value + z * z / (2 * cases)) / wide
    half = z / wide * sqrt(value * (1 - value) / cases + z * z / (4 * cases * cases))
    # At 0 and 1 one end is exact, which rounding must not move.
    low = 0.0 if value == 0 else max(0.0, middle - half)
    return low, 1.0 if value == 1 else min(1.0, middle + half)


def share(groups: Groups, draws: int | None = None) -> Interval:
    """The mean of values in 0 to 1; `draws` are the yes-or-no trials that they are made of, where
    these are more than the values."""
    values = [value for group in groups.values() for value in group]
    mean, count = sum(values) / len(values), len(values)
    single = all(len(group) == 1 for group in groups.values())
    if single and set(values) <= {0.0, 1.0}:
        z = NormalDist().inv_cdf(0.5 + LEVEL / 2)
        return Interval(mean, *wilson(mean, count, z), count, "wilson")
    if len(groups) == 1:
        return Interval(mean, None, None, count, "clustered wilson")
    variance = _variance(groups, mean)
    effective = mean * (1 - mean) / variance if variance else len(groups)
    effective = min(max(effective, 1.0), draws or count)
    t = student(0.5 + LEVEL / 2, len(groups) - 1)
    return Interval(mean, *wilson(mean, effective, t), count, "clustered wilson")


def ratio(
    groups: Mapping[str, Sequence[tuple[float, float]]], how: str = "clustered t"
) -> Interval:
    """The sum of the first numbers over that of the second ones, which is the mean where those are
    1 (the delta method: Cochran 1977, "Sampling Techniques", section 6.4)."""
    pairs = [pair for group in groups.values() for pair in group]
    below = sum(second for _, second in pairs)
    value = sum(first for first, _ in pairs) / below
    rest = {
        name: [(first - value * second) * len(pairs) / below for first, second in group]
        for name, group in groups.items()
    }
    return _around(value, _variance(rest, 0.0), len(groups), len(pairs), how)


def _variance(groups: Groups, mean: float) -> float:
    """Of the mean, cluster-robust, with the factor G/(G-1) of few groups."""
    count = sum(map(len, groups.values()))
    if len(groups) < 2:
        return 0.0
    rest = sum(sum(value - mean for value in group) ** 2 for group in groups.values())
    return rest / count**2 * len(groups) / (len(groups) - 1)


def _around(mean: float, variance: float, groups: int, count: int, how: str) -> Interval:
    if groups < 2:
        return Interval(mean, None, None, count, how)
    half = student(0.5 + LEVEL / 2, groups - 1) * sqrt(variance)
    return Interval(mean, mean - half, mean + half, count, how)
