"""What an interval of a prediction rests on. It is never made up: where nothing is known of the
error, there is none, and a prediction without an interval is never a hit.

The report's own intervals come from its calibration. Where it has none, predictions that were
sealed and checked before say how far such predictions lie off: with the residuals r = ln(measured /
predicted) of n of them, the interval reaches the ceil(0.8 (n + 1))-th smallest |r| to both sides.
The next one then falls inside with a chance of at least 80 %, whatever the distribution, if it is
like them (split conformal prediction: Lei et al., JASA 113, 2018, 1094-1111, theorem 2.2). It
breaks where it is not: other hardware, other layouts than were checked, a twin that has changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, exp
from typing import Annotated, Final, Literal

from pydantic import Field

from twin.reports import Report
from twin.reports.report import Interval

_LEVEL: Final = 0.8
_AS_THE_STEP: Final = ("step_seconds", "days", "gpu_hours", "cost_usd")
"""Key figures that grow with the step."""
_AS_ITS_INVERSE: Final = (
    "tokens_per_second",
    "tokens_per_second_per_gpu",
    "mfu",
    "hfu",
    "model_tflops_per_gpu",
)
"""Those that shrink with it."""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The report's intervals."""

    kind: Literal["report"] = "report"

    def intervals(self, report: Report) -> dict[str, Interval | None]:
        """By key figure."""
        return dict(report.intervals)

    def words(self) -> str:
        """In a sentence."""
        return "an interval of its calibration"


@dataclass(frozen=True, slots=True)
class NoInterval:
    """Nothing is known of the error."""

    kind: Literal["none"] = "none"

    def intervals(self, report: Report) -> dict[str, Interval | None]:
        """None for any key figure."""
        return dict.fromkeys(report.kpis)

    def words(self) -> str:
        """In a sentence."""
        return "without an interval: nothing is known of its error"


@dataclass(frozen=True, slots=True)
class Checked:
    """Predictions that were checked before: how far the interval reaches to both sides, as a factor
    above 1, and the digests of their seals."""

    factor: float
    seals: tuple[str, ...]
    kind: Literal["checked"] = "checked"

    def intervals(self, report: Report) -> dict[str, Interval | None]:
        """Of the step, and of what follows from it alone."""
        found: dict[str, Interval | None] = dict.fromkeys(report.kpis)
        for key in (*_AS_THE_STEP, *_AS_ITS_INVERSE):
            value = report.kpis.get(key)
            if value is not None:
                found[key] = (value / self.factor, value * self.factor)
        return found

    def words(self) -> str:
        """In a sentence."""
        return f"an interval of {len(self.seals)} predictions that were checked before"


Basis = Annotated[Calibrated | NoInterval | Checked, Field(discriminator="kind")]


def checked(residuals: Mapping[str, float]) -> Checked | None:
    """The basis that earlier residuals give, by the digests of their seals; None of fewer than
    four, whose interval would have no end."""
    factor = reach(tuple(residuals.values()))
    return None if factor is None else Checked(exp(factor), tuple(residuals))


def reach(residuals: Sequence[float]) -> float | None:
    """How far ln(measured / predicted) lies off, at most, with a chance of 80 %."""
    place = ceil(_LEVEL * (len(residuals) + 1))
    return sorted(map(abs, residuals))[place - 1] if 0 < place <= len(residuals) else None
