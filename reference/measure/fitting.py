"""Least squares of logarithmic errors: a few positive numbers between bounds, and how they are
written.

min over x of sum_i rho(r_i(x)) with r = log(predicted / measured) and rho the soft-L1 loss, so that
a few points that ran badly do not drag the rest. Levenberg-Marquardt in the logarithms of x
(Marquardt 1963, An Algorithm for Least-Squares Estimation of Nonlinear Parameters), points
reweighted before every step (Holland, Welsch 1977). It finds the optimum near its start: where
there may be another one, give several starts. At a bound it stops up to 0.3 % of the loss above the
optimum of `scipy.optimize.least_squares`, which is not used since the committed profiles are of
this one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from twin.units import Dimension

Array = NDArray[np.float64]

SOFT: Final = 0.1
"""Log error beyond which a point counts less than its square, as in the twin's own fits."""
FEWEST: Final = 4
"""Points below which nothing is fitted."""
STEPS: Final = 200
"""Steps at most; a fit of three numbers takes about twenty."""


@dataclass(frozen=True, slots=True)
class Number:
    """One number of a part: its value in SI units, the range in which it may lie, what it rests on,
    how it is known, and its dimension if it has one."""

    value: float
    low: float
    high: float
    note: str
    kind: Literal["measured", "fitted", "assumed"] = "fitted"
    dimension: Dimension | None = None


def exactly(
    value: float,
    note: str,
    dimension: Dimension | None,
    kind: Literal["measured", "assumed"] = "measured",
) -> Number:
    """A number without a range."""
    return Number(value, value, value, note, kind, dimension)


@dataclass(frozen=True, slots=True)
class Residuals:
    """How far a fit is from its points, as shares."""

    name: str
    points: int
    median: float
    ninetieth: float

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.points} points, median error {self.median:.1%}, "
            f"90th percentile {self.ninetieth:.1%}"
        )


@dataclass(frozen=True, slots=True)
class Unknown:
    """One number to find: where to start, and its bounds, all above zero."""

    start: float
    low: float
    high: float
    dimension: Dimension | None = None


@dataclass(frozen=True, slots=True)
class FittedLaw:
    """Values with standard errors (Gauss-Newton), and the log error of each point."""

    unknowns: tuple[Unknown, ...]
    values: tuple[float, ...]
    errors: tuple[float, ...]
    logs: Array
    cost: float

    def numbers(self, note: str) -> list[Number]:
        """The values; their ranges are two standard errors, within the bounds."""
        found: list[Number] = []
        for unknown, value, error in zip(self.unknowns, self.values, self.errors, strict=True):
            low = max(unknown.low, value - 2 * error)
            high = min(unknown.high, value + 2 * error)
            said = f"{note}; standard error {error:.2g}"
            found.append(Number(value, low, high, said, "fitted", unknown.dimension))
        return found

    def residuals(self, name: str) -> Residuals:
        """The errors as shares."""
        errors = np.expm1(np.abs(self.logs))
        return Residuals(name, len(errors), *(float(v) for v in np.quantile(errors, (0.5, 0.9))))


def fit(
    predict: Callable[[Array], Array], measured: Array, *starts: Sequence[Unknown]
) -> FittedLaw:
    """The values that bring `predict` (seconds of each point) closest to what was measured: the
    best that is found from several starts."""
    return min((_fit(predict, measured, start) for start in starts), key=lambda each: each.cost)


def _fit(
    predict: Callable[[Array], Array], measured: Array, unknowns: Sequence[Unknown]
) -> FittedLaw:
    low, high = np.log([u.low for u in unknowns]), np.log([u.high for u in unknowns])
    x = np.clip(np.log([u.start for u in unknowns]), low, high)

    def logs(at: Array) -> Array:
        return np.log(predict(np.exp(at)) / measured)

    def slope(at: Array) -> Array:
        """Derivatives by differences, inwards where a bound is near."""
        columns: list[Array] = []
        for i in range(len(at)):
            near, far = at.copy(), at.copy()
            near[i], far[i] = max(low[i], at[i] - 1e-4), min(high[i], at[i] + 1e-4)
            columns.append((logs(far) - logs(near)) / (far[i] - near[i]))
        return np.stack(columns, axis=1)

    r, damping = logs(x), 1e-2
    for _ in range(STEPS):
        step = _step(slope(x), r, damping)
        trial = np.clip(x + step, low, high)
        tried = logs(trial)
        if _loss(tried) < _loss(r):
            gained = _loss(r) - _loss(tried)
            x, r, damping = trial, tried, max(damping / 5, 1e-9)
            if gained < 1e-13 * max(1.0, _loss(r)) and float(np.abs(step).max()) < 1e-9:
                break
        elif damping > 1e9:
            break
        else:
            damping *= 4
    last, spread = slope(x), _loss(r) / max(1, len(r) - len(x))
    variances = np.diag(np.linalg.pinv(last.T @ last) * spread)
    values = np.exp(x)
    errors = values * np.sqrt(np.clip(variances, 0.0, None))
    return FittedLaw(tuple(unknowns), tuple(values.tolist()), tuple(errors.tolist()), r, _loss(r))


def _loss(r: Array) -> float:
    return float(np.sum(2 * SOFT**2 * (np.sqrt(1 + (r / SOFT) ** 2) - 1)))


def _step(slope: Array, r: Array, damping: float) -> Array:
    weights = 1 / np.sqrt(1 + (r / SOFT) ** 2)
    normal = slope.T @ (slope * weights[:, None])
    scale = np.diag(np.maximum(np.diag(normal), 1e-12))
    right = slope.T @ (weights * r)
    return np.asarray(-np.linalg.solve(normal + damping * scale, right), dtype=np.float64)
