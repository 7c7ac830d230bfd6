"""Least squares of logarithmic errors, held near a base: what a few rows say beyond what is known.

    min over x of  sum_i rho(r_i(x)) / NOISE^2  +  sum_j (x_j / spread_j)^2

with r_i = log(predicted_i / measured_i), x_j the logarithm of a factor, and rho the soft-L1 loss,
so that a row that ran badly does not drag the rest: the most probable factors under log-normal
priors (ridge regression; Hoerl and Kennard 1970; MacKay 1992, Bayesian Interpolation). What rows do
not show stays at the base, so that any number of rows gives an answer, and more parameters than
rows do no harm beyond what the spreads allow. At the optimum the errors are nearly linear in x,
which makes leaving rows out cheap: `without` is one Newton step (Cook and Weisberg 1982, section
3.5), exact where r is linear.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
from scipy.optimize import least_squares

from twin.evidence.calibrate.factors import Array

NOISE: Final = 0.05
"""What a prediction still misses with the right numbers, as a logarithm (OURS): ten rows of one
layer are met within 4 %, forty iterations of many models within 8 % (docs/validation.md)."""
SOFT: Final = 0.1
"""Log error beyond which a row counts less than its square."""
STEP: Final = 0.01
"""Of the differences that stand for slopes: far above the nanoseconds that times are rounded to."""

Errors = Callable[[Array], Array]
"""Logarithms of predicted over measured, one per row, under logarithms of factors."""


@dataclass(frozen=True, slots=True)
class Ridge:
    """An optimum: logarithms of the factors x, errors r of the rows, slopes dr/dx, weights of the
    rows (1, less for those that miss by more than `SOFT`), spreads, and the bounds of x."""

    x: Array
    errors: Array
    slopes: Array
    weights: Array
    spreads: Array
    low: Array
    high: Array

    @property
    def hessian(self) -> Array:
        """Half the second derivative of the objective (Gauss-Newton)."""
        g = self._gains
        return g.T @ g + np.diag(1 / self.spreads**2)

    @property
    def cost(self) -> float:
        """The sum that was made small."""
        missed = 2 * SOFT**2 * (np.sqrt(1 + (self.errors / SOFT) ** 2) - 1)
        return float(np.sum(missed) / NOISE**2 + np.sum((self.x / self.spreads) ** 2))

    @property
    def deviations(self) -> Array:
        """Standard deviations of x once the rows are seen."""
        return np.sqrt(np.diag(np.linalg.inv(self.hessian)))

    @property
    def learned(self) -> Array:
        """How much of each spread the rows took away: 0 nothing, 1 all."""
        return 1 - self.deviations / self.spreads

    @property
    def determined(self) -> float:
        """How many numbers the rows determine, between 0 and their count (MacKay 1992, gamma)."""
        g = self._gains
        return float(np.trace(np.linalg.solve(self.hessian, g.T @ g)))

    def without(self, *rows: int) -> Array:
        """The optimum had these rows not been there."""
        if not len(self.x):
            return self.x
        g = self._gains[list(rows)]
        pull = np.sqrt(self.weights[list(rows)]) / NOISE * self.errors[list(rows)]
        step = np.linalg.solve(self.hessian - g.T @ g, g.T @ pull)
        return np.clip(self.x + step, self.low, self.high)

    def linear(self, x: Array) -> Array:
        """The errors under other factors, by the slopes."""
        return self.errors + self.slopes @ (x - self.x)

    @property
    def _gains(self) -> Array:
        return np.sqrt(self.weights)[:, None] * self.slopes / NOISE


def solve(
    errors: Errors, spreads: Sequence[float], bounds: tuple[Array, Array], start: Array
) -> Ridge:
    """The most probable factors, from `start` (trust region reflective, bounded)."""
    low, high = bounds
    widths = np.array(spreads, dtype=np.float64)
    if not len(widths):
        r = errors(start)
        return Ridge(start, r, np.zeros((len(r), 0)), _weights(r), widths, low, high)
    memory: dict[bytes, Array] = {}

    def known(x: Array) -> Array:
        key = x.tobytes()
        if key not in memory:
            memory[key] = errors(x)
        return memory[key]

    def residuals(x: Array) -> Array:
        return np.concatenate([known(x) / NOISE, x / widths])

    def jacobian(x: Array) -> Array:
        rows = slopes(known, x, high) / NOISE
        return np.concatenate([rows, np.diag(1 / widths)])

    # A bound at the start leaves no room for a first step; scipy wants one.
    inside = np.clip(start, low + 1e-6, np.maximum(high - 1e-6, low + 2e-6))
    # scipy does not know its own types.
    found = cast("Any", least_squares)(
        residuals,
        inside,
        jac=jacobian,
        bounds=(low, np.maximum(high, low + 3e-6)),
        loss=_loss(len(known(inside))),
        xtol=1e-4,
        ftol=1e-5,
    )
    x = np.asarray(found.x, dtype=np.float64)
    r = known(x)
    return Ridge(x, r, slopes(known, x, high), _weights(r), widths, low, high)


def slopes(errors: Errors, x: Array, high: Array) -> Array:
    """Derivatives of the errors, by differences away from the upper bound."""
    columns: list[Array] = []
    for j in range(len(x)):
        moved = x.copy()
        step = STEP if x[j] + STEP <= high[j] else -STEP
        moved[j] += step
        columns.append((errors(moved) - errors(x)) / step)
    return np.stack(columns, axis=1)


def _weights(r: Array) -> Array:
    """How much each row counts at the optimum (Holland and Welsch 1977)."""
    return 1 / np.sqrt(1 + (r / SOFT) ** 2)


def _loss(rows: int) -> Callable[[Array], Array]:
    """Soft-L1 for the rows, squares for what holds the factors near the base, in the form that
    scipy takes: the loss of squared residuals with two derivatives."""

    def loss(z: Array) -> Array:
        scale = (SOFT / NOISE) ** 2
        root = np.sqrt(1 + z[:rows] / scale)
        out = np.stack([z, np.ones_like(z), np.zeros_like(z)])
        out[0, :rows] = 2 * scale * (root - 1)
        out[1, :rows] = 1 / root
        out[2, :rows] = -0.5 / scale / root**3
        return out

    return loss
