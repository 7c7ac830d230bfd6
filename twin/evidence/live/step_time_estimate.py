"""How long a step takes, and how long what is left will take, each with how sure that is.

Medians describe one step, since a few slow ones must not move them; what is left is a sum, so it
takes the mean. Both allow for neighbouring steps that are alike: blocks of `LENGTH` steps are taken
for independent (non-overlapping batch means: Law, Simulation Modeling and Analysis, section 9.5.3),
which is too hopeful where a machine stays slow for longer than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, sqrt
from statistics import NormalDist, fmean, median, variance
from typing import Final

LEVEL: Final = 0.8
"""Of every interval here, as of those of predictions."""
LENGTH: Final = 5
"""Steps of a block."""
FEWEST: Final = 20
"""Steps without which nothing is said of spread."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """The median seconds of a step, its interval at `LEVEL` (None: too few steps), and the steps it
    was taken over."""

    seconds: float
    interval: tuple[float, float] | None
    steps: int


@dataclass(frozen=True, slots=True)
class Remaining:
    """Seconds until the last step is done, with an interval at `LEVEL` (None: too few steps)."""

    seconds: float
    interval: tuple[float, float] | None
    steps: int
    """That are left."""


def step_time(seconds: Sequence[float]) -> StepTime | None:
    """The median of some steps with its interval from order statistics (the sign test's; Conover,
    Practical Nonparametric Statistics, section 3.2), whatever the distribution is: for n
    independent steps the ranks n/2 -+ z sqrt(n)/2, here with n divided by how much less n alike
    neighbours say. None without steps."""
    if not seconds:
        return None
    middle, count = median(seconds), len(seconds)
    if count < FEWEST:
        return StepTime(middle, None, count)
    ordered = sorted(seconds)
    reach = NormalDist().inv_cdf((1 + LEVEL) / 2) * sqrt(count * _alike(seconds)) / 2
    low = max(1, floor(count / 2 - reach))
    high = min(count, ceil(count / 2 + reach) + 1)
    return StepTime(middle, (ordered[low - 1], ordered[high - 1]), count)


def remaining(seconds: Sequence[float], left: int, work: float | None = None) -> Remaining | None:
    """What `left` steps will take that are like these N: left x mean, and as its variance

        s^2 left (1 + left / N),   s^2 = LENGTH x variance of the means of blocks,

    the first part for how the steps to come vary, the second for how well their mean is known.
    Quantiles are Student's t of the blocks. `work` counts in steps like these where the coming ones
    are shorter or longer (by default `left`). None without steps."""
    if not seconds:
        return None
    work, count = float(left) if work is None else work, len(seconds)
    expected = work * fmean(seconds)
    means = _block_means(seconds)
    if count < FEWEST:
        return Remaining(expected, None, left)
    spread = LENGTH * variance(means)
    reach = student((1 + LEVEL) / 2, len(means) - 1) * sqrt(spread * work * (1 + work / count))
    return Remaining(expected, (max(0.0, expected - reach), expected + reach), left)


def student(share: float, freedom: int) -> float:
    """The quantile of Student's t (Abramowitz and Stegun 26.7.5, three terms): within 0.01 at
    0.9 from 3 degrees of freedom on."""
    z = NormalDist().inv_cdf(share)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def _alike(seconds: Sequence[float]) -> float:
    """By how much the variance of a mean of these steps exceeds that of independent ones, at
    least 1. Taken of signs around the median, so that outliers have no say."""
    middle = median(seconds)
    signs = [float(one > middle) - float(one < middle) for one in seconds]
    if (single := variance(signs)) == 0:
        return 1.0
    return max(1.0, LENGTH * variance(_block_means(signs)) / single)


def _block_means(values: Sequence[float]) -> list[float]:
    """Of whole blocks, counted from the end: the newest steps say most."""
    first = len(values) % LENGTH
    return [fmean(values[at : at + LENGTH]) for at in range(first, len(values), LENGTH)]
