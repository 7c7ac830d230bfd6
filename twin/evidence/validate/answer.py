"""What the twin answers to a published row: one `RowResult` per thing that was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache, wraps
from pathlib import Path
from typing import Any, Concatenate, Final, Literal, ParamSpec

from twin.errors import TwinError
from twin.evidence.validate.suite import PublishedRow, Unreadable, Use
from twin.loading.files import read_data
from twin.reports.interval import Circumstances
from twin.reports.tuned_step import TunedStep

P = ParamSpec("P")

Status = Literal["predicted", "not_expressible"]
_JSON: Final = (
    "id", "metric", "predicted", "measured", "error", "interval", "use", "status", "reason",
    "category", "source", "model", "gpu", "gpus", "precision", "reproducible", "stack",
    "calibration", "assumed", "left_out", "expected", "software", "regime",
)  # fmt: skip
"""Keys of a row of the JSON document, in their order."""


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
    """Whether a training row's model has experts; None of rows that name no model to simulate."""
    software: str = ""
    """The software part of a training row."""
    regime: str = ""
    """What binds the simulated step (`twin.reports.interval`)."""
    expected: float | None = None
    """Predicted and corrected by what all other sources tell."""
    at: Circumstances | None = None
    """What makes a training row like others, as it was simulated now."""
    tuned: TunedStep | None = None
    """Where words chose a typical stack: its step under the tuned one, which intervals hold."""

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
        values = asdict(self) | {"error": self.error}
        return {name: values[name] for name in _JSON}


Answers = Callable[Concatenate[PublishedRow, P], tuple[RowResult, ...]]
"""What answers rows of a category."""


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


def answering(
    metric: str, nothing: str, garbled: str | None = None
) -> Callable[[Callable[Concatenate[PublishedRow, P], Iterator[RowResult]]], Answers[P]]:
    """Makes a generator of results answer rows whatever they hold. A row that it cannot read, or
    whose scenario is invalid, is refused under `metric` with the reason; one without results with
    `nothing`; one on whose values it fails with `garbled`, if given."""

    def decorated(
        results: Callable[Concatenate[PublishedRow, P], Iterator[RowResult]],
    ) -> Answers[P]:
        @wraps(results)
        def answers(row: PublishedRow, *args: P.args, **more: P.kwargs) -> tuple[RowResult, ...]:
            try:
                found = tuple(results(row, *args, **more))
            except Unreadable as error:
                return (refused(row, metric, str(error)),)
            except TwinError as error:
                return (refused(row, metric, error.problems[0].message),)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                if garbled is None:
                    raise
                return (refused(row, metric, garbled),)
            return found or (refused(row, metric, nothing),)

        return answers

    return decorated


@cache
def not_predicted() -> dict[str, dict[str, Any]]:
    """Rows that are not predicted, and why (`not_predicted.yaml`); by reason, or by category."""
    return read_data(Path(__file__).with_name("not_predicted.yaml"))


def reason_of(section: str, name: str) -> str | None:
    """Why a row is not predicted; None where it is."""
    found = not_predicted()[section].items()
    return next((reason for reason, names in found if name in names), None)
