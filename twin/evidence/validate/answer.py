"""What the twin answers to a published row: one `RowResult` per thing that was measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from twin.evidence.validate.suite import PublishedRow, Unreadable, Use

Status = Literal["predicted", "not_expressible"]


@dataclass(frozen=True, slots=True)
class RowResult:
    """One metric of one row, predicted beside measured, in SI units.

    `reason` says why there is no prediction, `assumed` what a prediction takes for granted, `stack`
    is the software whose habits and calibration it has. `pair` holds what rows must share to be
    told apart by one choice only, and `choices` those choices (`twin.evidence.validate.pairs`).
    """

    id: str
    metric: str
    use: Use
    category: str
    source: str
    model: str
    gpu: str
    precision: str
    gpus: int | None = None
    reproducible: bool = False
    status: Status = "predicted"
    predicted: float | None = None
    measured: float | None = None
    interval: tuple[float, float] | None = None
    reason: str = ""
    stack: str = ""
    assumed: tuple[str, ...] = ()
    left_out: float | None = None
    """Predicted by a fit that has not seen the row (`twin.evidence.validate.leave_one_out`)."""
    flop: float | None = None
    """Model FLOP of the step on one GPU, for baselines that know no more."""
    calibration: str = ""
    """The profile whose numbers a training row is priced with."""
    experts: bool | None = None
    """Whether a training row's model has experts; None of rows that name no model to play."""

    @property
    def error(self) -> float | None:
        """Predicted over measured, less one."""
        if self.predicted is None or self.measured is None:
            return None
        return self.predicted / self.measured - 1.0

    @property
    def family(self) -> tuple[str, str, str, str]:
        """Rows that are near copies of each other: source, model, GPU, precision."""
        return self.source, self.model, self.gpu, self.precision

    @property
    def covered(self) -> bool | None:
        """Whether the measured value lies within the interval; None without one."""
        if self.interval is None or self.measured is None:
            return None
        return self.interval[0] <= self.measured <= self.interval[1]

    def to_json(self) -> dict[str, Any]:
        """The row of the JSON document (DESIGN.md, "twin validate")."""
        return {
            "id": self.id,
            "metric": self.metric,
            "predicted": self.predicted,
            "measured": self.measured,
            "error": self.error,
            "interval": self.interval,
            "use": self.use,
            "status": self.status,
            "reason": self.reason,
            "category": self.category,
            "source": self.source,
            "model": self.model,
            "gpu": self.gpu,
            "gpus": self.gpus,
            "precision": self.precision,
            "reproducible": self.reproducible,
            "stack": self.stack,
            "calibration": self.calibration,
            "assumed": self.assumed,
            "left_out": self.left_out,
        }


def blank(row: PublishedRow, metric: str) -> RowResult:
    """An answer to a row without a prediction yet."""
    return RowResult(
        row.id, metric, row.use, row.category, row.source, row.model, row.gpu, row.precision,
        row.gpus, row.reproducible,
    )  # fmt: skip


def refused(row: PublishedRow, metric: str, reason: str) -> RowResult:
    """An answer that says why there is none; of a row that cannot be read, too."""
    try:
        known = blank(row, metric)
    except Unreadable:
        known = RowResult(
            row.id, metric, row.use, row.category, row.source, row.model, "", row.precision
        )
    return replace(known, status="not_expressible", reason=reason)
