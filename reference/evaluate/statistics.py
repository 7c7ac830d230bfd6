"""Confidence intervals over questions, which are a sample of those that might have been asked
(Miller 2024, "Adding Error Bars to Evals", arXiv:2411.00640); and several answers as one number.

A share of single yes-or-no cases has Wilson's interval (1927). Values that repeat within a group
(several samples of a question, several questions on one text) have a cluster-robust standard error
(Miller, section 2.2). It is put into Wilson's form by the effective number of cases, as Franco,
Little, Louis and Slud recommend ("Comparative Study of Confidence Intervals for Proportions in
Complex Sample Surveys", 2019). Below some ten groups it covers less than it says. Ratios and
differences have Student's interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb, sqrt
from statistics import NormalDist
from typing import Final

from scipy.special import stdtrit

LEVEL: Final = 0.95
"""Coverage of every interval."""
Groups = Mapping[str, Sequence[float]]
"""Values by group."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and its 95 % interval."""

    value: float
    low: float | None
    """None where a single group says nothing about the spread."""
    high: float | None
    cases: int
    how: str
    """`wilson`, `clustered wilson`, `clustered t` or `paired t`."""


def grouped(pairs: Iterable[tuple[str, float]]) -> dict[str, list[float]]:
    """Values by group, in the order in which groups first come."""
    groups: dict[str, list[float]] = {}
    for group, value in pairs:
        groups.setdefault(group, []).append(value)
    return groups


def student(freedom: int) -> float:
    """Half the width of Student's two-sided interval of `LEVEL`, in standard errors."""
    return float(stdtrit(freedom, 0.5 + LEVEL / 2))


def wilson(value: float, cases: float, z: float) -> tuple[float, float]:
    """Wilson's interval of a share `value` of so many cases, within 0 and 1."""
    wide = 1 + z * z / cases
    middle = (value + z * z / (2 * cases)) / wide
    half = z / wide * sqrt(value * (1 - value) / cases + z * z / (4 * cases * cases))
    # At 0 and 1 one end is exact, which rounding must not move.
    low = 0.0 if value == 0 else max(0.0, middle - half)
    return low, 1.0 if value == 1 else min(1.0, middle + half)


def share(groups: Groups, draws: int | None = None) -> Interval:
    """The mean of values in 0 to 1; `draws` is the number of yes-or-no trials behind the values,
    where it is larger than theirs."""
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
    low, high = wilson(mean, effective, student(len(groups) - 1))
    return Interval(mean, low, high, count, "clustered wilson")


def ratio(
    groups: Mapping[str, Sequence[tuple[float, float]]], how: str = "clustered t"
) -> Interval:
    """The sum of the first numbers over that of the second ones; the mean where those are 1 (delta
    method: Cochran 1977, "Sampling Techniques", section 6.4)."""
    pairs = [pair for group in groups.values() for pair in group]
    below = sum(second for _, second in pairs)
    value = sum(first for first, _ in pairs) / below
    if len(groups) < 2:
        return Interval(value, None, None, len(pairs), how)
    residuals = {
        name: [(first - value * second) * len(pairs) / below for first, second in group]
        for name, group in groups.items()
    }
    half = student(len(groups) - 1) * sqrt(_variance(residuals, 0.0))
    return Interval(value, value - half, value + half, len(pairs), how)


def _variance(groups: Groups, mean: float) -> float:
    """Cluster-robust variance of the mean, with the factor G/(G-1) of few groups."""
    count = sum(map(len, groups.values()))
    total = sum(sum(value - mean for value in group) ** 2 for group in groups.values())
    return total / count**2 * len(groups) / (len(groups) - 1)


def pass_at(k: int, samples: int, right: int) -> float:
    """The chance that k of the samples, drawn without replacement, contain a right one: unbiased
    for the chance of k new samples (Chen et al. 2021, arXiv:2107.03374, equation 1).

    Whole numbers keep it exact. Raises ValueError for k above the number of samples.
    """
    if not 1 <= k <= samples:
        raise ValueError(f"pass@{k} needs at least {k} samples, and there are {samples}")
    return 1 - comb(samples - right, k) / comb(samples, k)


def most_voted(answers: Sequence[str | None]) -> int | None:
    """Index of the first sample with the most frequent answer (Wang et al. 2022, arXiv:2203.11171);
    None where no sample has an answer."""
    given = [answer for answer in answers if answer is not None]
    if not given:
        return None
    return answers.index(max(dict.fromkeys(given), key=given.count))


def best_of(verified: Sequence[float]) -> int:
    """Index of the sample that a verifier scores highest, the first of equals."""
    return max(range(len(verified)), key=lambda at: (verified[at], -at))
