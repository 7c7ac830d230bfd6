"""Logistic regression on few features, by Newton's method: small judges that are trained in
milliseconds, the same on every machine to rounding.

Legend: R rows, F features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Logistic:
    """Weights of features, and of the constant behind them."""

    weights: tuple[float, ...]

    def chance(self, features: Sequence[float]) -> float:
        """That a row is of the class that was 1."""
        total = float(np.dot(self.weights, (*features, 1.0)))
        return float(1 / (1 + np.exp(-np.clip(total, -50, 50))))


def fit(rows: Sequence[Sequence[float]], labels: Sequence[float], ridge: float = 1e-4) -> Logistic:
    """The weights that make labels likeliest, less `ridge` times half their squares (not of the
    constant); labels are 0 to 1. Hastie, Tibshirani, Friedman 2009, section 4.4.1."""
    features_RF: Floats = np.c_[np.asarray(rows, dtype=np.float64), np.ones(len(rows))]
    label_R = np.asarray(labels, dtype=np.float64)
    price_F = np.full(features_RF.shape[1], ridge * len(rows))
    price_F[-1] = 1e-9 * len(rows)
    weight_F = np.zeros(features_RF.shape[1])
    for _ in range(50):
        chance_R = 1 / (1 + np.exp(-np.clip(features_RF @ weight_F, -50, 50)))
        slope_F = features_RF.T @ (chance_R - label_R) + price_F * weight_F
        curve_FF = (features_RF.T * (chance_R * (1 - chance_R))) @ features_RF + np.diag(price_F)
        step_F = np.linalg.solve(curve_FF, slope_F)
        weight_F = weight_F - step_F
        if np.abs(step_F).max() < 1e-9:
            break
    return Logistic(tuple(map(float, weight_F)))


def auroc(scores: Sequence[float], labels: Sequence[bool]) -> float:
    """The chance that a row of the class scores higher than another, ties half (Hanley and McNeil
    1982, Radiology 143). Raises ValueError without rows of both kinds."""
    good = np.asarray([one for one, label in zip(scores, labels, strict=True) if label])
    bad = np.sort([one for one, label in zip(scores, labels, strict=True) if not label])
    if not len(good) or not len(bad):
        raise ValueError("both classes are needed")
    below = np.searchsorted(bad, good, "left") + np.searchsorted(bad, good, "right")
    return float(below.mean() / 2 / len(bad))


def auroc_error(area: float, good: int, bad: int) -> float:
    """The standard error of an AUROC of so many rows of each class (the same paper, equation 1,
    with Q1 and Q2 of its exponential model)."""
    first, second = area / (2 - area), 2 * area * area / (1 + area)
    square = area * (1 - area) + (good - 1) * (first - area**2) + (bad - 1) * (second - area**2)
    return float(np.sqrt(max(0.0, square) / (good * bad)))
