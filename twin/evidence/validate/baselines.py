"""What two simpler models say of the same rows: a twin that does not beat them is not worth its
engine.

Both know the model's FLOP of a step on one GPU, and the training rows that a fit may see
(`use: fit`), and nothing of layouts. `nearest` runs a row at the FLOP rate of the fitted row of the
same GPU that is most like it: the same precision before others, then the least distance in the
logarithms of parameters x batch x sequence (as FLOP per GPU and step) and of GPUs. `efficiency`
runs all rows of a GPU and precision at one share of its peak, the median of the fitted rows' own;
of a GPU without fitted rows in that precision, that of its other precisions; of one without any,
that of all GPUs. A row that is fitted is not told its own time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import log
from statistics import median
from typing import Final, Literal

from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.scenario_parts import gpu_spec
from twin.evidence.validate.suite import Unreadable
from twin.reports.interval import Residual
from twin.spec.cluster import GpuSpec

Baseline = Literal["nearest", "efficiency"]
BASELINES: Final[tuple[Baseline, ...]] = ("nearest", "efficiency")
STEP: Final = "step_seconds"


@dataclass(frozen=True, slots=True)
class FittedRow:
    """A fitted row: what ran, and the FLOP/s that each GPU did of the model's."""

    id: str
    gpu: str
    precision: str
    gpus: int
    flop: float
    rate: float


def known(residuals: Iterable[Residual]) -> tuple[FittedRow, ...]:
    """What baselines may see: steps of rows that a fit saw."""
    return tuple(
        FittedRow(
            one.id, one.at.gpu, one.at.precision, one.at.gpus, one.flop, one.flop / one.measured
        )
        for one in residuals
        if one.fitted and one.metric == STEP and one.flop
    )


def answers(
    baseline: Baseline, asked: Iterable[RowResult], rows: Sequence[FittedRow]
) -> tuple[RowResult, ...]:
    """The same questions as a baseline answers them; what it cannot say is left out."""
    said = ((one, predict(baseline, one, rows)) for one in asked if one.predicted is not None)
    return tuple(replace(one, predicted=seconds, interval=None) for one, seconds in said if seconds)


def predict(baseline: Baseline, one: RowResult, rows: Sequence[FittedRow]) -> float | None:
    """Seconds of a step that a baseline says; None where it knows nothing to say it from."""
    others = [row for row in rows if row.id != one.id]
    if one.metric != STEP or not one.flop or not others:
        return None
    rate = nearest(one, others) if baseline == "nearest" else efficiency(one, others)
    return None if rate is None else one.flop / rate


def nearest(one: RowResult, rows: Sequence[FittedRow]) -> float | None:
    """FLOP/s of the most similar row of the same GPU; None of a GPU without rows."""
    gpu = _gpu(one.gpu)
    own = [row for row in rows if gpu is not None and row.gpu == gpu.name]
    return min(own, key=lambda row: (*_distance(one, row), row.id)).rate if own else None


def _distance(one: RowResult, row: FittedRow) -> tuple[bool, float]:
    assert one.flop is not None, "asked of rows with a step only"
    apart = abs(log(one.flop / row.flop)) + abs(log((one.gpus or 1) / row.gpus))
    return row.precision != one.precision, apart


def efficiency(one: RowResult, rows: Sequence[FittedRow]) -> float | None:
    """FLOP/s at the share of the peak that is usual for the GPU and precision."""
    gpu, peak = _gpu(one.gpu), _peak(one.gpu, one.precision)
    if gpu is None or peak is None:
        return None
    own = [row for row in rows if row.gpu == gpu.name]
    same = [row for row in own if row.precision == one.precision]
    peaks = ((row, _peak(row.gpu, row.precision)) for row in same or own or rows)
    shares = [row.rate / top for row, top in peaks if top is not None]
    return median(shares) * peak if shares else None


def _peak(gpu: str, precision: str) -> float | None:
    """Dense FLOP/s of a GPU of the catalog; None of another, or of a precision it lacks."""
    spec = _gpu(gpu)
    if spec is None:
        return None
    return spec.fp8_dense if precision == "fp8" else spec.bf16_dense


def _gpu(name: str) -> GpuSpec | None:
    try:
        return gpu_spec(name)
    except Unreadable:
        return None
