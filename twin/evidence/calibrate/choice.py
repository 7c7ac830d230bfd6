"""Which numbers a few rows can tell: sets of factors, judged by the rows that a fit has not seen.

Each set is fitted with every row left out once (`Ridge.without`), and the row predicted by the twin
under what the others say. A larger set is taken only where it lowers the mean error by more than
one standard error of the rows' differences (Breiman et al. 1984, CART, section 3.4.3). The error
that is reported is nested: for each row the set is chosen anew by the others alone (leaving two
out), since the best of several errors flatters whoever chose it (Stone 1974; Cawley and Talbot
2010).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, log
from typing import Final

import numpy as np

from twin.evidence.calibrate.factors import Array, Factor, named
from twin.evidence.calibrate.ridge import Ridge, solve

ROWS_PER_NUMBER: Final = 3
"""Rows that each fitted number needs (OURS): with two, one bad row decides it."""

TOLD: Final = 0.1
"""Of a factor's spread, what rows must take away for it to be tried beside others: beside more it
would take less."""

Predict = Callable[[int, dict[Factor, float]], float]
"""Logarithm of predicted over measured of one row, under some factors."""


@dataclass(frozen=True, slots=True)
class JudgedFactors:
    """A set of factors with its fit, and the error of each row under the fit on the others."""

    factors: tuple[Factor, ...]
    ridge: Ridge
    left_out: Array

    @property
    def names(self) -> tuple[str, ...]:
        """What the factors are called."""
        return tuple(factor.name for factor in self.factors)

    @property
    def mean(self) -> float:
        """Mean of the absolute errors of rows left out."""
        return float(np.mean(np.abs(self.left_out)))

    def values(self, x: Array | None = None) -> dict[Factor, float]:
        """The factors themselves, at the optimum or at some logarithms."""
        at = self.ridge.x if x is None else x
        return {f: float(v) for f, v in zip(self.factors, np.exp(at), strict=True)}


@dataclass(frozen=True, slots=True)
class ChosenFactors:
    """The set that the rows can tell, all that were tried (the base alone first), and for each row
    the error of the whole procedure without it."""

    best: JudgedFactors
    tried: tuple[JudgedFactors, ...]
    left_out: Array

    @property
    def before(self) -> Array:
        """The errors of the base, which has seen no row."""
        return self.tried[0].ridge.errors

    @property
    def distance(self) -> float | None:
        """The error, as a logarithm, that four of five further rows stay below: the smallest error
        of a row left out that is at least as large as 80 % of n + 1 of them (jackknife; Barber et
        al. 2021, Predictive Inference with the Jackknife+). None below four rows."""
        ordered = np.sort(np.abs(self.left_out))
        place = ceil(0.8 * (len(ordered) + 1))
        return float(ordered[place - 1]) if place <= len(ordered) else None


def choose(
    predict: Predict,
    rows: int,
    sets: Sequence[tuple[Factor, ...]],
    bounds: Callable[[Sequence[Factor]], tuple[Array, Array]],
    *,
    forced: bool = False,
) -> ChosenFactors:
    """Fits every set that so many rows allow, and takes the one that they can tell. `sets` go from
    few factors to many; the base, without any, is always among them. Where the answer is `forced`,
    it is the last set, whatever rows left out say of it."""
    allowed = [own for own in sets if own and len(own) <= rows // ROWS_PER_NUMBER]
    tried: list[JudgedFactors] = []
    silent: set[Factor] = set()
    for factors in ((), *allowed):
        if silent & set(factors):
            continue
        tried.append(_judged(predict, rows, factors, bounds(factors), tried))
        silent |= {
            f for f, learned in zip(factors, tried[-1].ridge.learned, strict=True) if learned < TOLD
        }
    if forced:
        return ChosenFactors(tried[-1], tuple(tried), tried[-1].left_out)
    scores = np.array([np.abs(one.left_out) for one in tried])
    best = tried[_simplest(scores, tried)]
    return ChosenFactors(best, tuple(tried), _nested(tried, rows))


def _judged(
    predict: Predict,
    rows: int,
    factors: tuple[Factor, ...],
    bounds: tuple[Array, Array],
    before: Sequence[JudgedFactors],
) -> JudgedFactors:
    def errors(x: Array) -> Array:
        values = {f: float(v) for f, v in zip(factors, np.exp(x), strict=True)}
        return np.array([predict(row, values) for row in range(rows)])

    spreads = [factor.spread for factor in factors]
    starts = (np.clip(start, *bounds) for start in _starts(factors, before))
    ridges = [solve(errors, spreads, bounds, start) for start in starts]
    ridge = min(ridges, key=lambda one: one.cost)
    judged = JudgedFactors(factors, ridge, ridge.errors)
    if not factors:
        return judged
    left_out = [predict(row, judged.values(ridge.without(row))) for row in range(rows)]
    return JudgedFactors(factors, ridge, np.array(left_out))


def _starts(factors: Sequence[Factor], before: Sequence[JudgedFactors]) -> list[Array]:
    """What the largest set within this one came to, with every start of factors that it does not
    have."""
    inner = [one for one in before if set(one.factors) <= set(factors)]
    near = max(inner, key=lambda one: len(one.factors), default=None)
    known = dict(zip(near.factors, near.ridge.x, strict=True)) if near else {}
    each = [[known[f]] if f in known else [log(start) for start in f.starts] for f in factors]
    return [np.array(start, dtype=np.float64) for start in product(*each)]


def _simplest(scores: Array, tried: Sequence[JudgedFactors]) -> int:
    """The set to take, given the absolute errors of rows left out (sets x rows)."""
    taken = 0
    for index in sorted(range(len(tried)), key=lambda i: (len(tried[i].factors), i)):
        gained = scores[taken] - scores[index]
        larger = len(tried[index].factors) > len(tried[taken].factors)
        spread = np.std(gained, ddof=1) / np.sqrt(len(gained)) if len(gained) > 1 else 0.0
        if np.mean(gained) > (spread if larger else 0.0):
            taken = index
    return taken


def _nested(tried: Sequence[JudgedFactors], rows: int) -> Array:
    """For each row its error under the set that the other rows choose, fitted on them."""
    chosen: list[float] = []
    for row in range(rows):
        others = [other for other in range(rows) if other != row]
        scores = np.array([_two_out(one, row, others) for one in tried])
        chosen.append(float(tried[_simplest(scores, tried)].left_out[row]))
    return np.array(chosen)


def _two_out(judged: JudgedFactors, row: int, others: Sequence[int]) -> Array:
    """Absolute errors of the other rows, each under the fit without it and without `row`."""
    ridge = judged.ridge
    if not judged.factors:
        return np.abs(ridge.errors[list(others)])
    return np.array([abs(ridge.linear(ridge.without(row, other))[other]) for other in others])


def sets_of(factors: Sequence[Factor], *names: str) -> tuple[tuple[Factor, ...], ...]:
    """Sets of factors by their names, several joined with `+`."""
    return tuple(named(factors, one.split("+")) for one in names)
