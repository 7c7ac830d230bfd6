"""Least squares of logarithmic errors, in numpy: a few positive numbers between bounds.

min over x of sum_i rho(r_i(x)) with r = log(predicted / measured) and rho the soft-L1 loss, so that
a few points that ran badly do not drag the rest. Levenberg-Marquardt in the logarithms of x
(Marquardt 1963, An Algorithm for Least-Squares Estimation of Nonlinear Parameters), points
reweighted before every step (Holland, Welsch 1977). It finds the optimum near its start: whoever
has reason to fear another one starts twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SOFT: Final = 0.1
"""Log error beyond which a point counts less than its square, as in the twin's own fits."""
STEPS: Final = 200
"""Steps at most; a fit of three numbers takes about twenty."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """One number to find: where to start, and its bounds, all above zero."""

    start: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Solution:
    """Values with standard errors (Gauss-Newton), and the log error of each point."""

    values: tuple[float, ...]
    errors: tuple[float, ...]
    residuals: tuple[float, ...]

    @property
    def cost(self) -> float:
        """The sum that was made small."""
        r = np.array(self.residuals)
        return float(np.sum(2 * SOFT**2 * (np.sqrt(1 + (r / SOFT) ** 2) - 1)))


def solve(predict: Callable[[Array], Array], measured: Array, found: Sequence[Unknown]) -> Solution:
    """The values that bring `predict` (seconds of each point) closest to what was measured."""
    low, high = np.log([u.low for u in found]), np.log([u.high for u in found])
    x = np.clip(np.log([u.start for u in found]), low, high)

    def residuals(at: Array) -> Array:
        return np.log(predict(np.exp(at)) / measured)

    r, damping = residuals(x), 1e-2
    for _ in range(STEPS):
        step = _step(_slope(residuals, x, low, high), r, damping)
        trial = np.clip(x + step, low, high)
        tried = residuals(trial)
        if _loss(tried) < _loss(r):
            gained = _loss(r) - _loss(tried)
            x, r, damping = trial, tried, max(damping / 5, 1e-9)
            if gained < 1e-13 * max(1.0, _loss(r)) and float(np.abs(step).max()) < 1e-9:
                break
        elif damping > 1e9:
            break
        else:
            damping *= 4
    slope = _slope(residuals, x, low, high)
    spread = _loss(r) / max(1, len(r) - len(x))
    covariance = np.linalg.pinv(slope.T @ slope) * spread
    values = np.exp(x)
    errors = values * np.sqrt(np.clip(np.diag(covariance), 0.0, None))
    return Solution(tuple(map(float, values)), tuple(map(float, errors)), tuple(map(float, r)))


def _loss(r: Array) -> float:
    return float(np.sum(2 * SOFT**2 * (np.sqrt(1 + (r / SOFT) ** 2) - 1)))


def _step(slope: Array, r: Array, damping: float) -> Array:
    weights = 1 / np.sqrt(1 + (r / SOFT) ** 2)
    normal = slope.T @ (slope * weights[:, None])
    scale = np.diag(np.maximum(np.diag(normal), 1e-12))
    right = slope.T @ (weights * r)
    return np.asarray(-np.linalg.solve(normal + damping * scale, right), dtype=np.float64)


def _slope(residuals: Callable[[Array], Array], x: Array, low: Array, high: Array) -> Array:
    """Derivatives by differences, inwards where a bound is near."""
    columns: list[Array] = []
    for i in range(len(x)):
        near, far = x.copy(), x.copy()
        near[i], far[i] = max(low[i], x[i] - 1e-4), min(high[i], x[i] + 1e-4)
        columns.append((residuals(far) - residuals(near)) / (far[i] - near[i]))
    return np.stack(columns, axis=1)
