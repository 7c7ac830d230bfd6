"""The whole run as data: its phases, what they come to, and its calendar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final

from twin.errors import Problem
from twin.kinds.phases.check import PhaseCheck
from twin.planning.types import Warning
from twin.reports import Report
from twin.reports.expect import Judgement
from twin.reports.with_data import Generated

VERSION: Final = 1
"""Version of the JSON document."""


@dataclass(frozen=True, slots=True)
class Span:
    """Days from the start of the run."""

    begin: float
    end: float

    def to_json(self, start: date | None) -> dict[str, Any]:
        """The days, and the dates on which they fall where the first is known."""
        return {
            "from_day": self.begin,
            "to_day": self.end,
            "from": _day(start, self.begin),
            "to": _day(start, self.end),
        }


def _day(start: date | None, days: float) -> str | None:
    return None if start is None else (start + timedelta(days=int(days))).isoformat()


@dataclass(frozen=True, slots=True)
class Dates:
    """When a phase is trained; None: what is before it or the phase itself has no time."""

    without_failures: Span | None
    with_failures: Span | None


@dataclass(frozen=True, slots=True)
class PhaseSaves:
    """Checkpoints of one phase."""

    number: int
    """The last is saved as the phase ends, since the next has another layout."""
    bytes: float
    """Of one: weights and optimizer states, each once."""
    every_seconds: float | None
    """Work between two; None: only at the end."""


@dataclass(frozen=True, slots=True)
class PhaseRun:
    """One phase, costed: as it is written, or as the nearest plan that can run and fits."""

    check: PhaseCheck
    report: Report | None
    """Of the step that is costed; None where nothing is."""
    kpis: Mapping[str, float | None]
    """Key figures of this phase: those of a step as they are, days and dollars of its tokens."""
    steps: float
    """Tokens of the phase over the batch that is costed."""
    saves: PhaseSaves | None
    data_bytes: float

    @property
    def name(self) -> str:
        """What reports call it."""
        return self.check.name

    @property
    def costed(self) -> str | None:
        """What is costed: the phase `as written`, the `nearest` plan, or None."""
        if self.report is None:
            return None
        return "as written" if self.check.fits else "nearest"

    def to_json(self) -> dict[str, Any]:
        """The phase in plain data."""
        report, saves = self.report, self.saves
        return {
            **self.check.to_json(),
            "steps": self.steps,
            "costed": self.costed,
            "hash": report.hash if report else None,
            "kpis": dict(self.kpis),
            "step_ns": report.step_ns if report else None,
            "breakdown_ns": dict(report.breakdown_ns) if report else None,
            "checkpoints": saves.number if saves else None,
            "checkpoint_bytes": saves.bytes if saves else None,
            "data_bytes": self.data_bytes,
        }


@dataclass(frozen=True, slots=True)
class WholeRun:
    """A run in phases, answered."""

    name: str
    hash: str
    tokens: int
    gpus: int
    fidelity: str
    phases: tuple[PhaseRun, ...]
    kpis: Mapping[str, float | None]
    """What the phases come to; None: unknown."""
    intervals: Mapping[str, tuple[float, float] | None]
    """80 % intervals, as if all phases erred together."""
    dates: tuple[Dates, ...]
    start: date | None
    interval_source: str
    """Where the time between two checkpoints comes from."""
    bytes_per_token: float
    bytes_source: str
    expectations: tuple[Judgement, ...]
    warnings: tuple[Warning, ...]
    wall_seconds: float
    twin_version: str
    reproduce: str | None
    generated: Generated | None = None
    """What generating the data of the run takes, before its first phase."""

    @property
    def fits(self) -> bool:
        """Whether every phase can run as written, and fits."""
        return all(phase.check.fits for phase in self.phases)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why phases cannot run as written."""
        return tuple(one for phase in self.phases for one in phase.check.problems)

    @property
    def data_bytes(self) -> float:
        """Bytes that all phases read."""
        return sum(phase.data_bytes for phase in self.phases)

    @property
    def checkpoints(self) -> int | None:
        """How many all phases save; None where one is not known."""
        found = [phase.saves.number for phase in self.phases if phase.saves]
        return sum(found) if len(found) == len(self.phases) else None

    @property
    def checkpoint_bytes(self) -> float | None:
        """Bytes of all checkpoints, if all are kept."""
        if self.checkpoints is None:
            return None
        return sum(phase.saves.number * phase.saves.bytes for phase in self.phases if phase.saves)

    def to_json(self) -> dict[str, Any]:
        """The versioned document."""
        return {
            "version": VERSION,
            "name": self.name,
            "hash": self.hash,
            "fits": self.fits,
            "tokens": self.tokens,
            "gpus": self.gpus,
            "kpis": dict(self.kpis),
            "intervals": {key: list(one) if one else None for key, one in self.intervals.items()},
            "phases": [phase.to_json() for phase in self.phases],
            "checkpoints": {
                "number": self.checkpoints,
                "bytes": self.checkpoint_bytes,
                "every_seconds": [
                    phase.saves.every_seconds if phase.saves else None for phase in self.phases
                ],
                "source": self.interval_source,
            },
            "data_bytes": self.data_bytes,
            "data": {"bytes_per_token": self.bytes_per_token, "source": self.bytes_source},
            "generated": self.generated.to_json() if self.generated else None,
            "calendar": [
                self._dated(phase, one) for phase, one in zip(self.phases, self.dates, strict=True)
            ],
            "expectations": [_judged(one) for one in self.expectations],
            "warnings": [{"code": one.code, "message": one.message} for one in self.warnings],
            "provenance": {
                "twin_version": self.twin_version,
                "fidelity": self.fidelity,
                "wall_seconds": self.wall_seconds,
                "reproduce": self.reproduce,
            },
        }

    def _dated(self, phase: PhaseRun, one: Dates) -> dict[str, Any]:
        both = {"without_failures": one.without_failures, "with_failures": one.with_failures}
        dates = {key: span.to_json(self.start) if span else None for key, span in both.items()}
        return {"phase": phase.name, **dates}


def _judged(one: Judgement) -> dict[str, Any]:
    return {
        "text": one.text,
        "figure": one.figure,
        "bound": one.bound,
        "value": one.value,
        "passed": one.passed,
    }
