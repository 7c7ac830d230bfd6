"""Least squares of logarithmic errors: a few positive numbers between bounds, and how they are
written.

min over x of sum_i rho(r_i(x)) with r = log(predicted / measured) and rho the soft-L1 loss, so that
a few points that ran badly do not drag the rest. Levenberg-Marquardt in the logarithms of x
(Marquardt 1963, An Algorithm for Least-Squares Estimation of Nonlinear Parameters), points
reweighted before every step (Holland, Welsch 1977). It finds the optimum near its start: where
there may be another one, give several starts. At a bound it stops up to 0.3 % of the loss above the
optimum of `scipy.optimize.least_squares`, which is not used since the committed profiles are of
this one.

The laws by which the twin turns work into seconds, stated once more, over many points at once.

Matrix products: ((FLOP / (peak x efficiency) x tiles x (1 + ramp / inner))^3 + (bytes /
bandwidth)^3)^(1/3) + launch. Attention: max(FLOP / (peak x share / (1 + ramp x bytes / FLOP)),
bytes / bandwidth) + launches. Links: bytes sent / bandwidth + hops x latency. Where they break is
said beside the twin's statements (docs/kernels.md, docs/collectives.md); the tests hold both equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from reference.measure.points import MeasuredPoint
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


OVERLAP: Final = 3
"""Exponent that joins arithmetic and memory (docs/kernels.md)."""
TILE_ROWS: Final = (64, 128)
TILE_COLS: Final = (64, 128, 192, 256)
"""Sides of the tiles that one SM computes (CUTLASS, DeepGEMM)."""
START_HOPS: Final = 16
"""What starting any collective costs, in hops (docs/collectives.md)."""

Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What a device could do at best, and what of it fits take as given: FLOP/s, bytes/s that its
    kernels reach, SMs, and seconds per launch of kernels other than products."""

    peak: float
    bandwidth: float
    sms: int
    launch: float


@dataclass(frozen=True, slots=True)
class Products:
    """Matrix products as arrays: FLOP, bytes, inner sums, how much longer whole tiles take than
    the products are large, groups, and which are the gradient of a weight."""

    flop: Array
    bytes: Array
    inner: Array
    tiles: Array
    groups: Array
    weight: Array


def products(points: Sequence[MeasuredPoint], sms: int, whole_tiles: bool) -> Products:
    """The products behind points whose shape has rows (of a group), cols, inner, and groups."""
    shapes = [point.shape for point in points]
    tiles = [idle(shape, sms) if whole_tiles else 1.0 for shape in shapes]
    return Products(
        np.array([point.flop for point in points]),
        np.array([point.bytes for point in points]),
        np.array([float(shape["inner"]) for shape in shapes]),
        np.array(tiles),
        np.array([shape.get("groups", 1) for shape in shapes]),
        np.array([point.op.endswith("_weight") for point in points]),
    )


def idle(shape: Mapping[str, int], sms: int) -> float:
    """How much longer the SMs work than a product is large, with the best tile: the last round of
    tiles leaves some idle."""
    groups, rows, cols = shape.get("groups", 1), shape["rows"], shape["cols"]
    least = min(
        ceil(groups * ceil(rows / high) * ceil(cols / wide) / sms) * sms * high * wide
        for high in TILE_ROWS
        for wide in TILE_COLS
    )
    return least / (groups * rows * cols)


@dataclass(frozen=True, slots=True)
class MatmulLaw:
    """What is fitted of the products of one precision."""

    efficiency: float
    ramp: float
    launch: float
    grouped: float = 1.0
    group_launch: float = 0.0
    weight_gradient: float = 1.0


def product_seconds(work: Products, law: MatmulLaw, ceilings: Ceilings) -> Array:
    """Seconds of each product."""
    reached = np.full(len(work.flop), law.efficiency)
    several = work.groups > 1
    reached = np.where(several, reached * law.grouped, reached)
    reached = np.where(work.weight, reached * law.weight_gradient, reached)
    arithmetic = work.flop * work.tiles * (1 + law.ramp / work.inner) / (ceilings.peak * reached)
    memory = work.bytes / ceilings.bandwidth
    busy = (arithmetic**OVERLAP + memory**OVERLAP) ** (1 / OVERLAP)
    return busy + law.launch + np.where(several, work.groups * law.group_launch, 0.0)


@dataclass(frozen=True, slots=True)
class AttentionLaw:
    """What is fitted of one direction of attention."""

    share: float
    ramp: float
    width: float
    launch: float


def attention_seconds(
    points: Sequence[MeasuredPoint], law: AttentionLaw, ceilings: Ceilings
) -> Array:
    """Seconds of each attention kernel."""
    flop = np.array([point.flop for point in points])
    moved = np.array([point.bytes for point in points])
    launches = np.array([point.kernels * law.launch for point in points])
    wide = np.array([(point.shape["query_key"] + point.shape["value"]) / 2 for point in points])
    slower = 1 + law.ramp * moved / flop + law.width / wide
    arithmetic = flop * slower / (ceilings.peak * law.share)
    return np.maximum(arithmetic, moved / ceilings.bandwidth) + launches


def sent(kind: Collective, payload: float, ranks: int) -> tuple[float, int]:
    """Bytes that a rank sends, and serial hops, of a collective within one node: rings (Patarasuk
    and Yuan 2009), all-to-all directly."""
    share = payload * (ranks - 1) / ranks
    if kind == "all_to_all":
        return share, START_HOPS + 1
    passes = 2 if kind == "all_reduce" else 1
    return passes * share, START_HOPS + passes * (ranks - 1)
