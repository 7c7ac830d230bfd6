"""Least squares of logarithmic errors, with the simulator in the loop.

min over x of sum_i rho(log(predicted_i(x) / measured_i)), rho soft-L1 with a scale of 10 %, so that
a few rows that ran badly do not drag the rest (scipy.optimize.least_squares, trust region
reflective, bounded by physics).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import log
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from twin.calibrate.rows import Row

SOFT: Final = 0.1
"""Log error beyond which a row counts less than its square."""


@dataclass(frozen=True, slots=True)
class Free:
    """One number to fit: its field in the profile, its unit, where to start (each value once: a
    floor that does not bind has no slope, so one start can miss the optimum), and its bounds."""

    field: str
    unit: str
    starts: tuple[float, ...]
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Fit:
    """Fitted values with standard errors (Gauss-Newton, s^2 (J^T J)^-1), and the log error of each
    row."""

    values: dict[str, float]
    errors: dict[str, float]
    residuals: dict[str, float]


def fit(rows: tuple[Row, ...], free: tuple[Free, ...]) -> Fit:
    """The values of the free numbers that bring the twin closest to the rows, the best over all
    starts."""

    def residuals(x: NDArray[np.float64]) -> NDArray[np.float64]:
        profile = overrides(free, x)
        return np.array([log(row.predicted(profile) / row.measured) for row in rows])

    low, high = np.array([f.low for f in free]), np.array([f.high for f in free])
    solutions = [
        least_squares(
            residuals,
            np.array(start),
            bounds=(low, high),
            x_scale=(high - low) / 5,
            loss="soft_l1",
            f_scale=SOFT,
            diff_step=np.full(len(free), 1e-3),
            xtol=1e-4,
            ftol=1e-4,
        )
        for start in product(*(f.starts for f in free))
    ]
    solution = min(solutions, key=lambda one: one.cost)
    spread = 2 * solution.cost / (len(rows) - len(free))
    jacobian = cast("NDArray[np.float64]", solution.jac)
    covariance = np.linalg.pinv(jacobian.T @ jacobian) * spread
    last = residuals(solution.x)
    return Fit(
        {f.field: float(v) for f, v in zip(free, solution.x, strict=True)},
        {f.field: float(v**0.5) for f, v in zip(free, np.diag(covariance), strict=True)},
        {row.name: float(r) for row, r in zip(rows, last, strict=True)},
    )


def overrides(free: tuple[Free, ...], values: NDArray[np.float64]) -> tuple[str, ...]:
    """The free numbers as overrides of a scenario's profile."""
    pairs = zip(free, values, strict=True)
    return tuple(f"calibration.{f.field}={value:.9f}{f.unit}" for f, value in pairs)
