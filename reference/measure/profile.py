"""From points to the numbers of a calibration profile: what is measured, what is fitted, how far
the fit is from its points.

Products: efficiency, ramp and launch on dense forward and input-gradient products; then, with these
held, a factor and a launch for groups, and a factor for gradients of weights. Attention: share and
ramp by direction. Kernels bound by memory: share and launch of each kind. Dispatch as measured.
Residuals are logarithms of predicted over measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final, Literal

import numpy as np

from reference.machine import Machine
from reference.measure import laws
from reference.measure.case import BF16
from reference.measure.ceilings import Best
from reference.measure.laws import AttentionLaw, Ceilings, MatmulLaw
from reference.measure.point import Point, Statistic
from reference.measure.solve import Array, Solution, Unknown, solve
from twin.units import Dimension

SHARE: Final = (1e-3, 1.0)
RAMP: Final = (1e-2, 1e5)
"""Bounds of the twin's fields; a ramp at its least is written as none."""
LAUNCH: Final = (1e-9, 1.0)
"""Bounds of seconds."""
FEWEST: Final = 4
"""Points below which nothing is fitted."""

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Number:
    """One number of a part: its value in SI units, its dimension if it has one, the range in which
    it may lie, how it is known, and what it rests on."""

    value: float
    low: float
    high: float
    note: str
    kind: Literal["measured", "fitted", "assumed"] = "fitted"
    dimension: Dimension | None = None


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
class Profile:
    """The numbers of a calibration by their keys, and the errors behind them."""

    numbers: dict[Key, Number]
    spans: dict[Key, tuple[int, int]]
    whole_tiles: bool
    residuals: tuple[Residuals, ...]


def fit_profile(
    points: Sequence[Point], machine: Machine, best: Best, statistic: Statistic
) -> Profile:
    """The profile of a machine. Raises `LookupError` naming the groups that are missing."""
    _require(points)
    share, launch, moved = _memory_bound(points, SUMS, best.bandwidth, statistic)
    kinds, rest = _kinds(points, best.bandwidth, statistic)
    reached = best.bandwidth * share.value
    ceilings = Ceilings(best.peak, reached, machine.units, launch.value)
    law, whole_tiles, residuals = _matmuls(points, ceilings, machine, statistic)
    numbers: dict[Key, Number] = {
        ("gemm",): _rate(_of(points, "gemm", "gemm_input"), best.peak, statistic, "dense"),
        ("grouped_gemm",): _grouped_rate(points, best.peak, law, statistic),
        **{("matmuls", "bf16", *key): number for key, number in law.items()},
    }
    found = [moved, *rest, *residuals]
    for direction in ("forward", "backward"):
        law, errors = _attention(points, direction, ceilings, statistic)
        for end, number in zip(("", "_ramp", "_width", "_launch"), law, strict=True):
            numbers[(f"attention_{direction}{end}",)] = number
        found.append(errors)
    numbers |= {("bandwidth",): share, ("launch",): launch, **kinds}
    numbers[("dispatch",)] = _dispatch(points, statistic)
    return Profile(numbers, _spans(points), whole_tiles, tuple(found))


def _require(points: Sequence[Point]) -> None:
    wanted = {
        "launch": _of(points, "launch"),
        "bandwidth": _of(points, *SUMS),
        "gemm": _of(points, "gemm"),
        "attention": _of(points, "attention_forward"),
    }
    missing = [name for name, own in wanted.items() if not own]
    if missing:
        raise LookupError(", ".join(missing))


def _of(points: Sequence[Point], *ops: str) -> list[Point]:
    """The bf16 points of some operations."""
    return [point for point in points if point.op in ops and point.dtype == BF16]


def _seconds(points: Sequence[Point], statistic: Statistic) -> Array:
    return np.array([point.timing.seconds(statistic) for point in points])


def _dispatch(points: Sequence[Point], statistic: Statistic) -> Number:
    """The host's time per kernel."""
    own = _of(points, "dispatch", "dispatch_gemm", "dispatch_autograd") or _of(points, "launch")
    times = _seconds(own, statistic) / [point.kernels for point in own]
    note = "the host's time per elementwise kernel; the range holds products and autograd"
    ends = float(times.min()), float(times.max())
    return Number(float(times[0]), *ends, note, "measured", "seconds")


SUMS: Final = ("add", "accumulate")
"""What stands for all kernels bound by memory that have no kind of their own. A copy is the
ceiling, and no kernel of a step."""
KINDS: Final[dict[str, tuple[str, ...]]] = {
    "norm": ("rms_norm", "rms_norm_backward"),
    "activation": ("swiglu", "swiglu_backward"),
    "rotary": ("rope",),
    "cast": ("fp8_cast",),
    "gather": ("spread", "gather"),
    "routing": ("route", "route_backward"),
    "loss": ("loss", "loss_backward"),
    "update": ("adamw",),
}
"""Operations of each kind that the twin tells apart (`twin.spec.calibration.StreamingSpec`)."""


def _kinds(
    points: Sequence[Point], bandwidth: float, statistic: Statistic
) -> tuple[dict[Key, Number], list[Residuals]]:
    """Each kind that was measured in enough sizes."""
    numbers: dict[Key, Number] = {}
    residuals: list[Residuals] = []
    for kind, ops in KINDS.items():
        if len(_of(points, *ops)) < FEWEST:
            continue
        share, launch, errors = _memory_bound(points, ops, bandwidth, statistic)
        numbers[("streaming", kind, "bandwidth")] = share
        numbers[("streaming", kind, "launch")] = launch
        residuals.append(replace(errors, name=f"{kind}, bandwidth and launch"))
    return numbers, residuals


def _memory_bound(
    points: Sequence[Point], ops: Sequence[str], bandwidth: float, statistic: Statistic
) -> tuple[Number, Number, Residuals]:
    """The share of the memory's bandwidth that kernels reach which wait for it, and what each adds
    beside: over sizes from a few tokens to many."""
    own = _of(points, *ops)
    moved = np.array([point.bytes for point in own]) / bandwidth
    kernels = np.array([point.kernels for point in own])
    measured = _seconds(own, statistic)

    def predict(at: Array) -> Array:
        return moved / at[0] + kernels * at[1]

    start = max(1e-8, float((measured / kernels).min()))
    solution = solve(predict, measured, [Unknown(0.5, *SHARE), Unknown(start, *LAUNCH)])
    alone = np.maximum(measured - kernels * solution.values[1], 0.1 * measured)
    by_op = {op: _middle(moved / alone, own, op) for op in sorted({point.op for point in own})}
    worst, top = min(by_op, key=by_op.__getitem__), max(by_op, key=by_op.__getitem__)
    apart = f"median of {worst} {by_op[worst]:.2g}, of {top} {by_op[top]:.2g}"
    told = apart if worst != top else f"median {by_op[top]:.2g}"
    note = (
        f"{len(own)} kernels; {told} (above 1: operands in a cache). Bytes are those of one fused "
        "kernel"
    )
    share = _fitted(solution, 0, SHARE, note)
    launch = replace(_fitted(solution, 1, LAUNCH, note), dimension="seconds")
    return share, launch, _residuals("bandwidth and launch", solution)


def _middle(values: Array, points: Sequence[Point], op: str) -> float:
    return float(np.median([v for v, p in zip(values, points, strict=True) if p.op == op]))


def _matmuls(
    points: Sequence[Point], ceilings: Ceilings, machine: Machine, statistic: Statistic
) -> tuple[dict[Key, Number], bool, list[Residuals]]:
    """The law of bf16 products. Whole tiles or a split inner sum, whichever is closer; a CPU has no
    such tiles."""
    dense = _of(points, "gemm", "gemm_input")
    choices = (False, True) if machine.kind == "cuda" else (False,)
    tried = {whole: _dense(dense, ceilings, whole, statistic) for whole in choices}
    whole = min(tried, key=lambda one: tried[one].cost)
    solution = tried[whole]
    law = MatmulLaw(*solution.values)
    note = f"{len(dense)} dense products, forward and for the input's gradient"
    scales: tuple[tuple[float, float], ...] = (SHARE, RAMP, LAUNCH)
    names: tuple[tuple[str, Dimension | None], ...] = (
        ("efficiency", None),
        ("ramp", None),
        ("launch", "seconds"),
    )
    numbers: dict[Key, Number] = {}
    for i, (name, dimension) in enumerate(names):
        number = _fitted(solution, i, scales[i], note)
        numbers[(name,)] = replace(number, dimension=dimension)
    residuals = [_residuals("bf16 products", solution)]
    for unknown, ops in (((GROUPED, GROUP_LAUNCH), ("grouped",)), ((WEIGHT,), _WEIGHTS)):
        own, name = _of(points, *ops), unknown[0].name
        if len(own) < FEWEST:
            assumed = f"assumed: fewer than {FEWEST} points"
            numbers[(name,)] = Number(1.0, 0.5, 1.0, assumed, "assumed")
            continue
        solution = _rest(unknown, own, law, ceilings, whole, statistic)
        for i, one in enumerate(unknown):
            number = _fitted(solution, i, one.bounds, f"{len(own)} products, the law held")
            numbers[(one.name,)] = replace(number, dimension=one.dimension)
            law = replace(law, **{one.name: solution.values[i]})
        residuals.append(_residuals(f"bf16 products, {name}", solution))
    return numbers, whole, residuals


@dataclass(frozen=True, slots=True)
class _Rest:
    """A number of the law that is fitted when the first ones are known."""

    name: str
    bounds: tuple[float, float]
    start: float
    dimension: Dimension | None = None


GROUPED: Final = _Rest("grouped", SHARE, 0.8)
GROUP_LAUNCH: Final = _Rest("group_launch", LAUNCH, 1e-6, "seconds")
WEIGHT: Final = _Rest("weight_gradient", SHARE, 0.8)


_WEIGHTS: Final = ("gemm_weight", "grouped_weight")


def _dense(
    points: Sequence[Point], ceilings: Ceilings, whole: bool, statistic: Statistic
) -> Solution:
    """Efficiency, ramp and launch, from two starts: a long ramp and a low efficiency can look like
    a short one and a high efficiency."""
    work = laws.products(points, ceilings.sms, whole)
    measured = _seconds(points, statistic)

    def predict(at: Array) -> Array:
        return laws.product_seconds(work, MatmulLaw(*map(float, at)), ceilings)

    launch = max(1e-9, min(float(measured.min()) / 2, ceilings.launch))
    solutions = [
        solve(
            predict,
            measured,
            [Unknown(0.7, *SHARE), Unknown(ramp, *RAMP), Unknown(launch, *LAUNCH)],
        )
        for ramp in (10.0, 500.0)
    ]
    return min(solutions, key=lambda one: one.cost)


def _rest(
    unknown: Sequence[_Rest],
    points: Sequence[Point],
    law: MatmulLaw,
    ceilings: Ceilings,
    whole: bool,
    statistic: Statistic,
) -> Solution:
    """Some numbers of the law, everything else held."""
    work = laws.products(points, ceilings.sms, whole)

    def predict(at: Array) -> Array:
        found = {one.name: float(value) for one, value in zip(unknown, at, strict=True)}
        return laws.product_seconds(work, replace(law, **found), ceilings)

    starts = [Unknown(one.start, *one.bounds) for one in unknown]
    return solve(predict, _seconds(points, statistic), starts)


def _attention(
    points: Sequence[Point], direction: str, ceilings: Ceilings, statistic: Statistic
) -> tuple[list[Number], Residuals]:
    """Share of the peak on long sequences of wide heads, the ramp of short ones and the width of
    narrow ones."""
    own = _of(points, f"attention_{direction}")

    def predict(at: Array) -> Array:
        return laws.attention_seconds(own, AttentionLaw(*map(float, at)), ceilings)

    measured = _seconds(own, statistic)
    least = float((measured / [point.kernels for point in own]).min())
    starts = product((1.0, 300.0), (1.0, 100.0), (ceilings.launch, least / 2))
    scales = (SHARE, RAMP, RAMP, LAUNCH)
    solution = min(
        (
            solve(
                predict, measured, [Unknown(x, *s) for x, s in zip((0.3, *at), scales, strict=True)]
            )
            for at in starts
        ),
        key=lambda one: one.cost,
    )
    note = f"{len(own)} kernels, {_lengths(own)} tokens"
    found = [_fitted(solution, i, scale, note) for i, scale in enumerate(scales)]
    found[-1] = replace(found[-1], dimension="seconds")
    return found, _residuals(f"attention, {direction}", solution)


def _lengths(points: Sequence[Point]) -> str:
    lengths = [point.shape["tokens"] for point in points]
    return f"{min(lengths):,} to {max(lengths):,}"


def _rate(points: Sequence[Point], peak: float, statistic: Statistic, what: str) -> Number:
    """Share of the peak of the larger half of some products, by FLOP."""
    large = sorted(points, key=lambda point: point.flop)[len(points) // 2 :]
    shares = np.clip([point.rate(statistic) / peak for point in large], *SHARE)
    value, low, high = (float(v) for v in np.quantile(shares, (0.5, 0.1, 0.9)))
    note = f"only for products without a shape; median of the larger {len(large)} {what} products"
    return Number(value, low, high, note, "measured")


def _grouped_rate(
    points: Sequence[Point], peak: float, law: dict[Key, Number], statistic: Statistic
) -> Number:
    own = _of(points, "grouped")
    if own:
        return _rate(own, peak, statistic, "grouped")
    value = law[("efficiency",)].value
    return Number(value, SHARE[0], 1.0, "assumed as dense: no grouped product ran", "assumed")


def _spans(points: Sequence[Point]) -> dict[Key, tuple[int, int]]:
    """Sides and inner sums of the products measured."""
    own = _of(points, "gemm", "gemm_input", "grouped")
    sides = [point.shape[side] for point in own for side in ("rows", "cols")]
    inner = [point.shape["inner"] for point in own]
    spans = {"sides": (min(sides), max(sides)), "inner": (min(inner), max(inner))}
    return {("matmuls", "bf16", name): span for name, span in spans.items()}


def _fitted(solution: Solution, index: int, bounds: tuple[float, float], note: str) -> Number:
    """A fitted number; its range are two standard errors, within its bounds."""
    value, error = solution.values[index], solution.errors[index]
    low, high = (float(np.clip(value + sign * 2 * error, *bounds)) for sign in (-1, 1))
    return Number(value, low, high, f"{note}; standard error {error:.2g}")


def _residuals(name: str, solution: Solution) -> Residuals:
    errors = np.expm1(np.abs(solution.residuals))
    return Residuals(name, len(errors), *(float(v) for v in np.quantile(errors, (0.5, 0.9))))
