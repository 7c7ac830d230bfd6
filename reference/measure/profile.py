"""From points to the numbers of a calibration profile: what is measured, what is fitted, how far
the fit is from its points.

Products: efficiency, ramp and launch on dense forward and input-gradient products; then, with these
held, a factor and a launch for groups, and a factor for gradients of weights. Attention: share and
ramp by direction. Kernels bound by memory: share and launch of each kind. Dispatch as measured.
Residuals are logarithms of predicted over measured.

Where host and device are one thread, functions have items of their own (`reference.measure.host`),
which a step adds to its kernels. Then a fit holds them, and finds what bytes and FLOP take beyond.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil
from typing import Final

import numpy as np
from numpy.typing import NDArray

from reference.machine import Machine
from reference.measure import fitting
from reference.measure.beside import fit_beside
from reference.measure.clock import Statistic
from reference.measure.fitting import (
    FEWEST,
    Array,
    AttentionLaw,
    Ceilings,
    FittedLaw,
    MatmulLaw,
    Number,
    Residuals,
    Unknown,
    fit,
)
from reference.measure.limits import DeviceLimits
from reference.measure.points import BF16, ITEM, STACK, MeasuredPoint
from twin.loading import load_part

SHARE: Final = (1e-3, 1.0)
RAMP: Final = (1e-2, 1e5)
"""Bounds of the twin's fields."""
LAUNCH: Final = (1e-9, 1.0, "seconds")
"""Bounds of seconds."""
SUMS: Final = ("add", "accumulate")
"""These stand for all kernels bound by memory that have no kind of their own. A copy is the
ceiling, and no kernel of a step."""
KINDS: Final[dict[str, tuple[str, ...]]] = {
    "norm": ("rms_norm", "rms_norm_backward"),
    "activation": (
        *("swiglu", "swiglu_backward"),
        *("weighted_swiglu", "weighted_swiglu_backward"),
    ),
    "rotary": ("rope", "rope_backward"),
    "cast": ("fp8_cast",),
    "gather": ("spread", "gather", "order", "order_backward"),
    "routing": ("route", "route_backward"),
    "loss": ("loss", "loss_backward"),
    "update": ("adamw",),
    "gradient_norm": ("gradient_norm",),
}
"""Operations of each kind that the twin tells apart (`twin.spec.calibration.StreamingSpec`)."""
ITEMS: Final = {
    "rms_norm": "norm",
    "swiglu": "swiglu",
    "weighted_swiglu": "weighted_swiglu",
    "rope": "latent_attention",
    "order": "experts_order",
    "route": "router",
    "loss": "loss",
    "attention_forward": "attention",
}
"""The item of the host of an operation, forward; that of its gradients has the same ending."""
BACK: Final = "_backward"
BLOCK: Final = "attention_block"
"""The item of a block of queries."""
TORCH: Final = ("loss",)
"""Kinds whose operations are PyTorch's own, not kernels of the reference."""
HELD: Final[dict[tuple[str, ...], dict[str, Unknown]]] = {
    ("grouped",): {
        "grouped": Unknown(0.8, *SHARE),
        "group_launch": Unknown(1e-6, *LAUNCH),
    },
    ("gemm_weight", "grouped_weight"): {"weight_gradient": Unknown(0.8, *SHARE)},
}
"""Numbers of the law of products that are fitted on some operations when the first are known."""

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """The numbers of a calibration by their keys, and the errors behind them."""

    numbers: dict[Key, Number]
    spans: dict[Key, tuple[int, int]]
    whole_tiles: bool
    residuals: tuple[Residuals, ...]


@dataclass(frozen=True, slots=True)
class _Points:
    """The bf16 points of some operations, with the statistic that fits take."""

    every: Sequence[MeasuredPoint]
    statistic: Statistic
    host: Mapping[str, float]
    """Seconds of the items of a thread that is host and device in one; empty elsewhere."""

    def of(self, *ops: str) -> _Points:
        own = [point for point in self.every if point.op in ops and point.dtype == BF16]
        return _Points(own, self.statistic, self.host)

    @property
    def known(self) -> Array | None:
        """Seconds of the items of each point; None where one has none."""
        names = [_item(point.op) for point in self.every]
        if not names or not all(name in self.host for name in names):
            return None
        return np.array([self.host[name] for name in names])

    @property
    def backward(self) -> NDArray[np.bool_]:
        """Which of them are gradients."""
        return np.array([point.op.endswith(BACK) for point in self.every])

    @property
    def seconds(self) -> Array:
        return np.array([point.timing.seconds(self.statistic) for point in self.every])

    @property
    def kernels(self) -> Array:
        return np.array([float(point.kernels) for point in self.every])

    def __len__(self) -> int:
        return len(self.every)


def fit_profile(
    points: Sequence[MeasuredPoint],
    machine: Machine,
    limits: DeviceLimits,
    statistic: Statistic,
    *,
    eager: bool = False,
) -> Profile:
    """The profile of a machine under the reference's kernels; `eager`: under PyTorch's own. Raises
    `LookupError` naming the groups that are missing."""
    own, core = _Points(points, statistic, _host(points)), "sdpa" if eager else "attention"
    wanted = {"launch": ("launch",), "bandwidth": SUMS, "gemm": ("gemm",)}
    wanted["attention"] = (f"{core}_forward",)
    if missing := [name for name, ops in wanted.items() if not own.of(*ops)]:
        raise LookupError(", ".join(missing))
    sums, moved = _memory_bound(own.of(*SUMS), limits.bandwidth, "bandwidth and launch")
    share, launch = sums["bandwidth"], sums["launch"]
    reached = limits.bandwidth * share.value
    ceilings = Ceilings(limits.peak, reached, machine.units, launch.value)
    law, whole_tiles, residuals = _matmuls(own, ceilings, tiled=machine.kind == "cuda")
    numbers: dict[Key, Number] = {
        ("gemm",): _rate(own.of("gemm", "gemm_input"), limits.peak, "dense"),
        ("grouped_gemm",): _grouped_rate(own.of("grouped"), limits.peak, law["efficiency"]),
        **{("matmuls", "bf16", name): number for name, number in law.items()},
    }
    kinds: list[Residuals] = []
    streaming: dict[Key, Number] = {}
    for kind, ops in KINDS.items():
        if eager and kind not in TORCH:
            continue
        if len(found := own.of(*ops)) >= FEWEST:
            named = f"{kind}, bandwidth and launch"
            fitted = _memory_bound if found.known is None else _beyond_host
            of_kind, errors = fitted(found, limits.bandwidth, named)
            streaming |= {("streaming", kind, name): one for name, one in of_kind.items()}
            kinds.append(errors)
    attention: list[Residuals] = []
    for direction in ("forward", "backward"):
        found = _attention(own.of(f"{core}_{direction}"), ceilings)
        listed = found.numbers(_lengths(own.of(f"{core}_{direction}")))
        for end, number in zip(("", "_ramp", "_width", "_launch"), listed, strict=True):
            numbers[(f"attention_{direction}{end}",)] = number
        attention.append(found.residuals(f"attention, {direction}"))
    numbers |= {("bandwidth",): share, ("launch",): launch, **streaming}
    numbers[("dispatch",)] = _dispatch(own)
    if steady := own.of("gemm_sustained").every:
        numbers[("sustained",)] = _sustained(steady[0], law, (ceilings, whole_tiles))
    numbers |= fit_beside(points, machine.units)
    every = (moved, *kinds, *residuals, *attention)
    return Profile(numbers, _spans(own), whole_tiles, every)


def _sustained(
    point: MeasuredPoint, law: dict[str, Number], where: tuple[Ceilings, bool]
) -> Number:
    """What is left of a product's speed when it runs without pause."""
    ceilings, whole = where
    short = MatmulLaw(*(law[name].value for name in ("efficiency", "ramp", "launch")))
    work = fitting.products([point], ceilings.sms, whole)
    alone = float(fitting.product_seconds(work, short, ceilings)[0])
    timing = point.timing
    value, low, high = (min(1.0, alone / one) for one in (timing.median, timing.most, timing.least))
    note = "the law of short products over a product of 8,192 without pause, at its power limit"
    return Number(value, low, high, note, "measured")


def _dispatch(points: _Points) -> Number:
    """The host's time per kernel."""
    own = points.of("dispatch", "dispatch_gemm", "dispatch_autograd") or points.of("launch")
    times = own.seconds / own.kernels
    note = "the host's time per elementwise kernel; the range holds products and autograd"
    ends = float(times.min()), float(times.max())
    return Number(float(times[0]), *ends, note, "measured", "seconds")


def _host(points: Sequence[MeasuredPoint]) -> dict[str, float]:
    """Seconds by item, where a thread is host and device in one: a GPU's host has no such items."""
    own = {p.op.removeprefix(ITEM): p.timing.median for p in points if p.op.startswith(ITEM)}
    return own if BLOCK in own else {}


def _item(op: str) -> str:
    back = op.endswith(BACK)
    forward = op.removesuffix(BACK) + "_forward" * (back and op.startswith("attention"))
    return ITEMS.get(forward, "") + BACK * back


def _beyond_host(own: _Points, bandwidth: float, name: str) -> tuple[dict[str, Number], Residuals]:
    """The share of the memory's bandwidth that functions reach beside their items, and how much
    less of it their gradients do."""
    moved = np.array([point.bytes for point in own.every]) / bandwidth
    measured, known, backward = own.seconds, own.known, own.backward
    assert known is not None, "functions have items"

    def predict(at: Array) -> Array:
        return known + moved / (at[0] * np.where(backward, at[1], 1.0))

    found = fit(predict, measured, [Unknown(0.2, *SHARE), Unknown(0.5, *SHARE)])
    share, less = found.numbers(f"{len(own)} functions in place, their items held")
    each = known / own.kernels
    ends = float(each.min()), float(each.max())
    note = "for a step without its stack: the items of the functions"
    launch = Number(float(np.median(each)), *ends, note, "measured", "seconds")
    return {"bandwidth": share, "backward": less, "launch": launch}, found.residuals(name)


def _memory_bound(own: _Points, bandwidth: float, name: str) -> tuple[dict[str, Number], Residuals]:
    """The share of the memory's bandwidth that kernels reach which wait for it, and what each adds
    beside: over sizes from a few tokens to many."""
    moved = np.array([point.bytes for point in own.every]) / bandwidth
    measured, kernels = own.seconds, own.kernels

    def predict(at: Array) -> Array:
        return moved / at[0] + kernels * at[1]

    start = max(1e-8, float((measured / kernels).min()))
    found = fit(predict, measured, [Unknown(0.5, *SHARE), Unknown(start, *LAUNCH)])
    alone = np.maximum(measured - kernels * found.values[1], 0.1 * measured)
    shares: dict[str, list[float]] = {}
    for point, value in zip(own.every, moved / alone, strict=True):
        shares.setdefault(point.op, []).append(float(value))
    by_op = {op: float(np.median(shares[op])) for op in sorted(shares)}
    worst, top = min(by_op, key=by_op.__getitem__), max(by_op, key=by_op.__getitem__)
    apart = f"median of {worst} {by_op[worst]:.2g}, of {top} {by_op[top]:.2g}"
    told = apart if worst != top else f"median {by_op[top]:.2g}"
    share, launch = found.numbers(
        f"{len(own)} kernels; {told} (above 1: operands in a cache). Bytes are those of one fused "
        "kernel"
    )
    return {"bandwidth": share, "launch": launch}, found.residuals(name)


def _matmuls(
    points: _Points, ceilings: Ceilings, *, tiled: bool
) -> tuple[dict[str, Number], bool, list[Residuals]]:
    """The law of bf16 products. Whole tiles or a split inner sum, whichever is closer; a CPU has no
    such tiles."""
    dense = points.of("gemm", "gemm_input")
    choices = (False, True) if tiled else (False,)
    tried = {whole: _dense(dense, ceilings, whole) for whole in choices}
    whole = min(tried, key=lambda each: tried[each].cost)
    found = tried[whole]
    note = f"{len(dense)} dense products, forward and for the input's gradient"
    numbers: dict[str, Number] = dict(
        zip(("efficiency", "ramp", "launch"), found.numbers(note), strict=True)
    )
    law, residuals = MatmulLaw(*found.values), [found.residuals("bf16 products")]
    for ops, unknowns in HELD.items():
        own, name = points.of(*ops), next(iter(unknowns))
        if len(own) < FEWEST:
            numbers[name] = Number(1.0, 0.5, 1.0, f"assumed: fewer than {FEWEST} points", "assumed")
            continue
        found = _held(own, unknowns, law, (ceilings, whole))
        law = replace(law, **dict(zip(unknowns, found.values, strict=True)))
        listed = found.numbers(f"{len(own)} products, the law held")
        numbers |= dict(zip(unknowns, listed, strict=True))
        residuals.append(found.residuals(f"bf16 products, {name}"))
    return numbers, whole, residuals


def _dense(own: _Points, ceilings: Ceilings, whole: bool) -> FittedLaw:
    """Efficiency, ramp and launch, from two starts: a long ramp and a low efficiency can look like
    a short one and a high efficiency."""
    work = fitting.products(own.every, ceilings.sms, whole)

    def predict(at: Array) -> Array:
        return fitting.product_seconds(work, MatmulLaw(*map(float, at)), ceilings)

    launch = max(1e-9, min(float(own.seconds.min()) / 2, ceilings.launch))
    ends = Unknown(0.7, *SHARE), Unknown(launch, *LAUNCH)
    starts = [[ends[0], Unknown(ramp, *RAMP), ends[1]] for ramp in (10.0, 500.0)]
    return fit(predict, own.seconds, *starts)


def _held(
    own: _Points, unknowns: dict[str, Unknown], law: MatmulLaw, where: tuple[Ceilings, bool]
) -> FittedLaw:
    """Some numbers of the law, everything else held."""
    ceilings, whole = where
    work = fitting.products(own.every, ceilings.sms, whole)

    def predict(at: Array) -> Array:
        found = dict(zip(unknowns, map(float, at), strict=True))
        return fitting.product_seconds(work, replace(law, **found), ceilings)

    return fit(predict, own.seconds, list(unknowns.values()))


def _attention(own: _Points, ceilings: Ceilings) -> FittedLaw:
    """Share of the peak on long sequences of wide heads, the ramp of short ones and the width of
    narrow ones, and the launch."""

    loops = _loops(own)

    def predict(at: Array) -> Array:
        law = AttentionLaw(*map(float, at))
        return loops + fitting.attention_seconds(own.every, law, ceilings)

    least = float((own.seconds / own.kernels).min())
    starts = [
        [Unknown(0.3, *SHARE), Unknown(ramp, *RAMP), Unknown(width, *RAMP), Unknown(start, *LAUNCH)]
        for ramp, width, start in product((1.0, 300.0), (1.0, 100.0), (ceilings.launch, least / 2))
    ]
    return fit(predict, own.seconds, *starts)


def _loops(own: _Points) -> Array:
    """Seconds of the host's loop over blocks of queries but for the first, whose time is a
    launch."""
    if own.known is None:
        return np.zeros(len(own))
    blocks = [_blocks(point.shape["tokens"]) for point in own.every]
    each = own.host[BLOCK + BACK * bool(own.backward[0])]
    return each * (np.array(blocks) - 1.0)


def _blocks(tokens: int) -> int:
    """Of a sequence, as the stack cuts it."""
    host = load_part("software", STACK).spec.host
    assert host is not None, "the stack of a CPU has a host"
    cuts = host.operations["attention_flash"].query_blocks
    return ceil(tokens / next(rows for longest, rows in cuts if tokens <= longest))


def _lengths(own: _Points) -> str:
    lengths = [point.shape["tokens"] for point in own.every]
    return f"{len(own)} kernels, {min(lengths):,} to {max(lengths):,} tokens"


def _rate(own: _Points, peak: float, what: str) -> Number:
    """Share of the peak of the larger half of some products, by FLOP."""
    large = sorted(own.every, key=lambda point: point.flop)[len(own) // 2 :]
    shares = np.clip([point.rate(own.statistic) / peak for point in large], *SHARE)
    value, low, high = (float(v) for v in np.quantile(shares, (0.5, 0.1, 0.9)))
    note = f"only for products without a shape; median of the larger {len(large)} {what} products"
    return Number(value, low, high, note, "measured")


def _grouped_rate(own: _Points, peak: float, dense: Number) -> Number:
    if own:
        return _rate(own, peak, "grouped")
    note = "assumed as dense: no grouped product ran"
    return Number(dense.value, SHARE[0], 1.0, note, "assumed")


def _spans(points: _Points) -> dict[Key, tuple[int, int]]:
    """Sides and inner sums of the products measured."""
    own = points.of("gemm", "gemm_input", "grouped").every
    sides = [point.shape[side] for point in own for side in ("rows", "cols")]
    inner = [point.shape["inner"] for point in own]
    spans = {"sides": (min(sides), max(sides)), "inner": (min(inner), max(inner))}
    return {("matmuls", "bf16", name): span for name, span in spans.items()}
