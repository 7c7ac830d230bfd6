"""What published runs tell of a prediction: a correction of its centre, and an 80 % interval.

A residual is ln(measured / predicted) of a published run that a fit saw or that lies near one that
it saw (`scenarios/published/residuals.json`, written by `twin validate --residuals`); runs that
judge the twin are never among them. Predictions are of fits that have not seen the run's source,
because a planner's run is of no source that a fit saw. Residuals of a family of near copies, cut
off at `LIMIT`, have the median y. The model has random coefficients:

    y = x . (b + b_software + b_source) + e,   x = (1, host, exchange, memory, experts, Blackwell)

with host, exchange and memory-bound time as shares of the step. All coefficients are normal around
zero with the spreads `SPREADS`, times `SOFTWARE` and `SOURCE` for the two groups, and e with
`FAMILY`. The correction is the best linear prediction of x . (b + b_software) (Henderson 1975,
Biometrics 31:423; Rasmussen and Williams 2006, equations 2.25 and 2.26): many families of one
source count about as much as one, and thin evidence moves little. Cutting off bounds what one
source can move (Huber 1964). Every source is predicted by the others (equation 5.12, by blocks).
An interval reaches as far as the standard deviation of the prediction times the quantile of those
misses in their own standard deviations (Lei et al. 2018, JASA 113:1094), where every source weighs
the same. Of n sources the quantile is that of 80 % (1 + 1 / n), because the run itself is one more
source (Vovk et al. 2005).

A second set of residuals (`scenarios/published/blind.json`) is of sources that the twin met blind:
predicted before anything changed because of them. It tells of runs whose software nobody named.
How their step is spent enters no coefficient: over 50 blind sources, each left out, intervals that
know it score no better (1.50 against 1.47). All of it breaks for software and hardware unlike all
that was published; where no published GPU comes within a factor of four in speed, there is no
interval.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from math import exp, hypot, inf
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from twin.loading.files import shipped_folder
from twin.planning.types import Plan
from twin.reports.breakdown import COMMUNICATION, KERNELS
from twin.reports.op_totals import memory_share
from twin.reports.table import digits, duration

if TYPE_CHECKING:
    from pathlib import Path

FILES: Final = ("residuals.json", "blind.json")
"""Beside the published rows that they come from."""
LEVEL: Final = 0.8
"""Share of measured values that intervals are meant to hold."""
NORMAL: Final = 1.2816
"""Standard deviations of a normal value that hold that share."""
LIMIT: Final[Mapping[str, float]] = {"step_seconds": 0.1, "peak_device_bytes": 0.0}
"""Where a residual is cut off before it moves a centre; 0: the centre stays. OURS: no evidence of
one source moves a step by more."""
SPREADS: Final = (0.02, 0.3, 0.4, 0.3, 0.06, 0.06)
"""Standard deviations of the coefficients, in the order of `x`. These, `SOFTWARE`, `SOURCE` and
`FAMILY`: the least interval score (Gneiting and Raftery 2007, equation 43) on sources of the
evidence, each left out; flat within a factor of 1.5 (2026-11-24)."""
SOFTWARE: Final = 0.7
"""Spread of the coefficients of one software around those of all."""
SOURCE: Final = 0.7
"""The same of one source."""
FAMILY: Final = 0.04
"""Standard deviation of a family around its source."""
AKIN: Final = 1.5
"""GPUs are of one generation whose dense BF16 peaks differ by less than this factor: OURS; H100,
H800 and H200 are, A100 and B200 are neither."""
BLACKWELL: Final = 1.5e15
"""Dense BF16 FLOP/s from which on a GPU is a Blackwell or later."""
UNLIKE: Final = 4.0
"""Beyond this factor to all of them a GPU is like none: OURS."""
FEWEST: Final = 5
"""Families below which a fifth of them is no whole one: no interval."""
BUSY: Final = 2 / 3
"""Share of the step from which on kernels bind it: OURS."""

Metric = Literal["step_seconds", "peak_device_bytes"]
Regime = Literal["host", "exchange", "memory", "kernels"]
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What makes runs alike: the GPU and its dense BF16 FLOP/s, the software, experts or none; and
    the shares of the step that wait for the host or for exchange, or that memory binds."""

    gpu: str
    peak: float
    software: str
    precision: str
    experts: bool
    gpus: int
    host: float
    exchange: float
    memory: float
    assumed: bool = False
    """Whether nobody named the software, so that words or the layout chose it."""

    @property
    def regime(self) -> Regime:
        """What binds the step: kernels where little else takes time, or the largest of the rest."""
        if self.host + self.exchange + self.memory <= 1 - BUSY:
            return "kernels"
        rest: dict[Regime, float] = {
            "host": self.host, "exchange": self.exchange, "memory": self.memory
        }  # fmt: skip
        return max(rest, key=lambda name: rest[name])

    def x(self, metric: str) -> tuple[float, ...]:
        """What coefficients multiply; how a step is spent moves no peak, and tells nothing of
        software that nobody named."""
        newer, silent = float(self.peak >= BLACKWELL), metric == "peak_device_bytes" or self.assumed
        shares = (0.0, 0.0, 0.0) if silent else (self.host, self.exchange, self.memory)
        return 1.0, *shares, float(self.experts), newer


@dataclass(frozen=True, slots=True)
class Residual:
    """How a published run came out: ln(measured / predicted), of what family it is, and whether a
    fit saw it; what was measured (SI), and the model's FLOP of a step on one GPU."""

    id: str
    family: str
    metric: str
    fitted: bool
    value: float
    measured: float
    flop: float | None
    at: Circumstances
    left_out: float | None = None
    """The same by fits that have not seen the run's source; None where no fit has."""

    @property
    def source(self) -> str:
        """What the run is cited from."""
        return project(self.family.rsplit(" | ", 3)[0])

    @property
    def miss(self) -> float:
        """What an interval knows: `left_out` where a fit saw the source."""
        return self.value if self.left_out is None else self.left_out


def project(title: str) -> str:
    """A source without its table, release or year: what is left out together."""
    return title.partition(",")[0].partition(" (")[0]


@dataclass(frozen=True, slots=True)
class Known:
    """Residuals of runs whose software the twin knows; and of sources that it met blind."""

    residuals: tuple[Residual, ...] = ()
    blind: tuple[Residual, ...] = ()

    def without(self, source: str) -> Known:
        """All but those of a source, whatever its table or release."""
        own = project(source)
        sets = (self.residuals, self.blind)
        return Known(*(tuple(r for r in had if r.source != own) for had in sets))


@dataclass(frozen=True, slots=True)
class Reach:
    """Where ln(measured / predicted) lies with a chance of 80 %: within `size` of `centre`. Told by
    so many families of so many sources; `alike`: those of the same kind of model and generation;
    `blind`: of sources that the twin met blind.
    `other`: where another stack would put it, if the software is assumed; it lies inside, too."""

    centre: float
    size: float
    families: int
    sources: int
    alike: int
    blind: bool = False
    other: float | None = None

    @property
    def physics(self) -> Reach:
        """The same around the prediction as it is: the centre is one more thing that may be off."""
        return replace(self, centre=0.0, size=hypot(self.size, NORMAL * self.centre))

    @property
    def inverse(self) -> Reach:
        """Of one over the value."""
        other = None if self.other is None else -self.other
        return replace(self, centre=-self.centre, other=other)

    def spread(self, value: float) -> tuple[float, float]:
        """The interval of a predicted value."""
        ends = [self.centre - self.size, self.centre + self.size]
        ends += [] if self.other is None else [self.other]
        return value * exp(min(ends)), value * exp(max(ends))


@dataclass(frozen=True, slots=True)
class Correction:
    """What published runs make of a step: the physical answer, the factor, the expected answer, and
    the evidence."""

    physical: float
    factor: float
    expected: float
    families: int
    sources: int
    alike: int
    regime: Regime

    def to_json(self) -> dict[str, Any]:
        """The section of the JSON report."""
        return asdict(self)

    @property
    def words(self) -> str:
        """The physical answer, the correction and its evidence in one sentence."""
        share = 100.0 * abs(self.factor - 1.0)
        change = f"{digits(share)} % {'longer' if self.factor > 1 else 'shorter'}"
        return (
            f"Expected step: {duration(self.expected)}, {change} than the simulated "
            f"{duration(self.physical)}, as {self.families} families of published runs from "
            f"{self.sources} sources suggest ({self.alike} of such models and GPUs; this step is "
            f"bound by {self.regime})."
        )


def circumstances(plan: Plan, breakdown_ns: Mapping[str, int]) -> Circumstances:
    """Of a plan whose mean rank spends a step so; without a breakdown, all of it in kernels."""
    scenario = plan.scenario
    gpu, step = scenario.cluster.node.gpu, sum(breakdown_ns.values())
    share = {cause: ns / step for cause, ns in breakdown_ns.items()}
    kernels = sum(share.get(cause, 0.0) for cause in KERNELS) if share else 1.0
    return Circumstances(
        gpu=gpu.name,
        peak=gpu.bf16_dense,
        software=scenario.software.name if scenario.software else "",
        precision=scenario.train.precision,
        experts=scenario.model.moe is not None,
        gpus=scenario.cluster.gpus,
        host=round(share.get("host", 0.0), 4),
        exchange=round(sum(share.get(cause, 0.0) for cause in COMMUNICATION), 4),
        memory=round(share.get("optimizer", 0.0) + kernels * memory_share(plan), 4),
        assumed=scenario.software_assumed,
    )


@dataclass(frozen=True, slots=True)
class _Family:
    source: str
    software: str
    at: Circumstances
    x: tuple[float, ...]
    values: tuple[float, ...]


def _median(values: NDArray[np.float64]) -> float:
    """As NumPy's, which imports masked arrays first."""
    ordered, middle = np.sort(values), len(values) // 2
    return float(ordered[middle] + ordered[~middle]) / 2


class _Fit:
    """The model of one metric, and how it predicts every source from the others."""

    def __init__(self, own: Sequence[Residual], metric: str) -> None:
        self.metric, self.blind, limit = metric, own[0].at.assumed, LIMIT[metric]
        self.families = _families(own, metric)
        y = np.array([_median(np.clip(one.values, -limit, limit)) for one in self.families])
        covariance = _covariance(self.families, self.families, SOURCE)
        covariance[np.diag_indices(len(y))] += FAMILY**2
        self.inverse = np.linalg.inv(covariance)
        self.solved = self.inverse @ y
        counts = {one.source: 0 for one in self.families}
        for one in self.families:
            counts[one.source] += 1
        self.counts = counts
        misses: list[tuple[float, float]] = []
        for source in counts:
            block = [n for n, one in enumerate(self.families) if one.source == source]
            left = np.linalg.inv(self.inverse[np.ix_(block, block)])
            centres = y[block] - left @ self.solved[block]
            for n, centre, variance in zip(block, centres, np.diag(left), strict=True):
                values = self.families[n].values
                share = 1 / (len(block) * len(values))
                misses += [(abs(one - centre) / variance**0.5, share) for one in values]
        self.deviations = quantile(misses, LEVEL * (1 + 1 / len(counts)))

    def predict(self, at: Circumstances) -> tuple[float, float]:
        """Centre and reach for a run of no known source."""
        one = _Family("", at.software, at, at.x(self.metric), ())
        shared = _covariance([one], self.families, 0.0)[0]
        own = _covariance([one], [one], SOURCE)[0, 0] + FAMILY**2
        variance = own - shared @ self.inverse @ shared
        return float(shared @ self.solved), float(np.sqrt(variance)) * self.deviations


@lru_cache(64)
def _fit(known: Known, metric: str, *, blind: bool) -> _Fit | None:
    own = [one for one in (known.blind if blind else known.residuals) if one.metric == metric]
    few = len({one.family for one in own}) < FEWEST
    return None if few else _Fit(own, metric)


def _families(own: Sequence[Residual], metric: str) -> tuple[_Family, ...]:
    found: dict[str, list[Residual]] = {}
    for one in own:
        found.setdefault(one.family, []).append(one)
    return tuple(
        _Family(
            rows[0].source,
            rows[0].at.software,
            rows[0].at,
            tuple(np.mean([one.at.x(metric) for one in rows], axis=0).tolist()),
            tuple(one.miss for one in rows),
        )
        for rows in found.values()
    )


def _covariance(ones: Sequence[_Family], others: Sequence[_Family], source: float) -> Array:
    """Of families: of what all share, of one software, of one source."""
    left, right = (np.array([one.x for one in own]) * SPREADS for own in (ones, others))
    software = np.array([[a.software == b.software for b in others] for a in ones])
    sources = np.array([[a.source == b.source for b in others] for a in ones])
    return (left @ right.T) * (1.0 + SOFTWARE**2 * software + source**2 * sources)


def reach(at: Circumstances, metric: str, known: Known) -> Reach | None:
    """Where a measured value lies; None where nothing is known that is like it."""
    fit = _fit(known, metric, blind=at.assumed) or _fit(known, metric, blind=False)
    if fit is None or all(_factor(at, one.at) > UNLIKE for one in fit.families):
        return None
    alike = sum(one.at.experts == at.experts and _factor(at, one.at) < AKIN for one in fit.families)
    at = replace(at, assumed=fit.blind)
    return Reach(*fit.predict(at), len(fit.families), len(fit.counts), alike, fit.blind)


def _factor(one: Circumstances, other: Circumstances) -> float:
    return max(one.peak / other.peak, other.peak / one.peak)


def quantile(sizes: Sequence[tuple[float, float]], level: float) -> float:
    """The least of some sizes with weights that so much of the weight stays within."""
    needed, found = level * sum(weight for _, weight in sizes), 0.0
    for size, weight in sorted(sizes):
        found += weight
        if found >= needed - 1e-12:
            return size
    return max((size for size, _ in sizes), default=inf)


@cache
def shipped() -> Known:
    """The residuals of this installation; none where there is no file."""
    files = (shipped_folder() / "published" / name for name in FILES)
    return Known(*(read(file) if file.is_file() else () for file in files))


def read(file: Path) -> tuple[Residual, ...]:
    """Residuals from a file, as `twin validate --residuals` writes it."""
    return tuple(
        Residual(
            one["id"],
            one["family"],
            one["metric"],
            one["fitted"],
            one["residual"],
            one["measured"],
            one["flop"],
            _at(one),
            one["left_out"],
        )
        for one in json.loads(file.read_text(encoding="utf-8"))["residuals"]
    )


def _at(said: Mapping[str, Any]) -> Circumstances:
    return Circumstances(**{name: said[name] for name in Circumstances.__slots__})
