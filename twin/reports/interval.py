"""How far a prediction may lie off: 80 % intervals from published runs that were held against the
twin.

A residual is ln(measured / predicted) of a published run that a fit saw or that lies near one that
it saw (`scenarios/published/residuals.json`, written by `twin validate --residuals`); runs that
judge the twin are never among them. An interval reaches as far to both sides as the weighted 80 %
quantile of |residual| does (conformal prediction with weights: Barber et al., Annals of Statistics
51, 2023, section 3.1, without the weight of the run that is asked about, which a weighted handful
of families would make infinite: what holds is counted instead,
`twin.evidence.validate.intervals.held`). Each family of near copies has the weight of one run, and
half of it for every thing that it does not share: the calibration profile, the GPU, a GPU of about
its speed, the precision of products, experts or none. Beyond the sizes that runs of such GPUs had,
intervals widen with every octave, and with every level that the nearest runs are away: their
profiles were fitted, and another was not.

What follows from the step alone has the step's interval. Exposed communication and bubble are
measured by nobody, so theirs hold whatever part of the step's own miss may be theirs: all of it.
Breaks for software and hardware unlike all that was published; where no published GPU comes within
a factor of four in speed, there is no interval.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, inf, log2
from pathlib import Path
from typing import Any, Final, Literal

from twin.loading.files import shipped_folder
from twin.scenario import Scenario

FILE: Final = "residuals.json"
"""Beside the published rows that they come from."""
LEVEL: Final = 0.8
"""Share of measured values that intervals are meant to hold."""
AKIN: Final = 1.5
"""GPUs are akin whose dense BF16 peaks differ by less than this factor: OURS; H100, H800 and H200
are, A100 and B200 are neither."""
UNLIKE: Final = 4.0
"""Beyond this factor to all of them a GPU is like none: OURS."""
DECAY: Final = 0.5
"""Weight of a run for each thing in which it differs: OURS. Profiles were fitted on some of their
own families, whose residuals are therefore too small: a smaller weight of all others would trust
them."""
FEWEST: Final = 5
"""Families below which a fifth of them is no whole one: no interval."""
AWAY: Final = 0.25
"""By how much a width grows for every level that the nearest runs are away: OURS."""
OCTAVE: Final = 0.1
"""By how much a width grows for every octave outside of the sizes seen: OURS."""
SIZES: Final = ("gpus", "hidden", "sequence")
"""What runs may be outside of the range of."""

Metric = Literal["step_seconds", "peak_device_bytes"]


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What makes runs alike: the GPU and its dense BF16 FLOP/s, the calibration profile, which
    stands for a software stack, the precision of products, experts or none; and its sizes."""

    gpu: str
    peak: float
    calibration: str
    precision: str
    experts: bool
    gpus: int
    hidden: int
    sequence: int


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


@dataclass(frozen=True, slots=True)
class Known:
    """All residuals."""

    residuals: tuple[Residual, ...] = ()


@dataclass(frozen=True, slots=True)
class Reach:
    """How far ln(measured / predicted) lies off at most with a chance of 80 %. `level`: 0 where
    runs of the same profile tell it, 1 of the same GPU, 2 of one akin, 3 of others. `outside`: the
    sizes beyond those seen, and by how many octaves in all."""

    size: float
    level: int
    outside: tuple[str, ...]
    octaves: float


def circumstances(scenario: Scenario) -> Circumstances:
    """Of a scenario."""
    gpu = scenario.cluster.node.gpu
    return Circumstances(
        gpu=gpu.name,
        peak=gpu.bf16_dense,
        calibration=scenario.calibration.name,
        precision=scenario.train.precision,
        experts=scenario.model.moe is not None,
        gpus=scenario.cluster.gpus,
        hidden=scenario.model.hidden,
        sequence=scenario.train.sequence,
    )


def reach(at: Circumstances, metric: str, known: Known) -> Reach | None:
    """How far a prediction may lie off; None where nothing is known that is like it."""
    own = [one for one in known.residuals if one.metric == metric]
    level = nearest_level(at, own)
    if level is None or len({one.family for one in own}) < FEWEST:
        return None
    outside = beyond(at, own)
    return Reach(width(at, own), level, tuple(outside), sum(outside.values()))


def width(at: Circumstances, residuals: Sequence[Residual]) -> float:
    """The weighted quantile of |residual|, wider by levels away and octaves outside."""
    away = nearest_level(at, residuals) or 0
    grown = 1.0 + AWAY * away + OCTAVE * sum(beyond(at, residuals).values())
    return grown * quantile([abs(one.value) for one in residuals], weighted(at, residuals))


def weighted(at: Circumstances, residuals: Sequence[Residual]) -> list[float]:
    """Weights of residuals: of a family together 1 where all is shared."""
    sizes: dict[str, int] = {}
    for one in residuals:
        sizes[one.family] = sizes.get(one.family, 0) + 1
    return [DECAY ** differences(at, one.at) / sizes[one.family] for one in residuals]


def differences(one: Circumstances, other: Circumstances) -> int:
    """In how many things two runs differ."""
    return (
        level_of(one, other) + (one.precision != other.precision) + (one.experts != other.experts)
    )


def level_of(one: Circumstances, other: Circumstances) -> int:
    """0 of one profile and GPU, 1 of one GPU, 2 of one akin, 3 of another."""
    if one.gpu == other.gpu:
        return int(one.calibration != other.calibration)
    return 2 if _factor(one, other) < AKIN else 3


def nearest_level(at: Circumstances, residuals: Sequence[Residual]) -> int | None:
    """The nearest level of any; None where the GPU is like none of them."""
    if all(_factor(at, one.at) > UNLIKE for one in residuals):
        return None
    return min(level_of(at, one.at) for one in residuals)


def _factor(one: Circumstances, other: Circumstances) -> float:
    return max(one.peak / other.peak, other.peak / one.peak)


def quantile(sizes: Sequence[float], weights: Sequence[float]) -> float:
    """The least size that 80 % of the weight stays within."""
    needed, found = LEVEL * sum(weights), 0.0
    for size, weight in sorted(zip(sizes, weights, strict=True)):
        found += weight
        if found >= needed - 1e-12:
            return size
    return max(sizes, default=inf)


def beyond(at: Circumstances, residuals: Sequence[Residual]) -> dict[str, float]:
    """Sizes outside of those seen on GPUs as near as there are, in octaves."""
    level = nearest_level(at, residuals)
    near = [
        one.at for one in residuals if level is not None and level_of(at, one.at) <= max(level, 2)
    ]
    found: dict[str, float] = {}
    for name in SIZES if near else ():
        own, seen = getattr(at, name), [getattr(one, name) for one in near]
        octaves = max(log2(own / max(seen)), log2(min(seen) / own), 0.0)
        if octaves > 0.0:
            found[name] = octaves
    return found


@cache
def shipped() -> Known:
    """The residuals of this installation; none where there is no file."""
    file = shipped_folder() / "published" / FILE
    return read(file) if file.is_file() else Known()


def read(file: Path) -> Known:
    """Residuals from a file that `write` wrote."""
    said = json.loads(file.read_text(encoding="utf-8"))
    return Known(
        tuple(
            Residual(
                one["id"],
                one["family"],
                one["metric"],
                one["fitted"],
                one["residual"],
                one["measured"],
                one["flop"],
                _at(one),
            )
            for one in said["residuals"]
        )
    )


def _at(said: Mapping[str, Any]) -> Circumstances:
    return Circumstances(**{name: said[name] for name in Circumstances.__slots__})


def spread(value: float, size: float) -> tuple[float, float]:
    """The interval of a value whose logarithm may lie off by a size."""
    return value * exp(-size), value * exp(size)
