"""What every answer has in common, whatever was simulated: the head of its report.

Whether a run is as its scenario expects, judged on raw values and never on rounded ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, ClassVar, Final

from twin.planning.types import Warning
from twin.reports.table import Notes, ranged, show
from twin.sources import Kind, Source
from twin.spec.expect import FIGURES, FITS, Expectation
from twin.spec.kpis import WITH_FAILURES, Kpi

Interval = tuple[float, float]

UNCALIBRATED = frozenset(
    (
        "calibration-of-another-gpu",
        "calibration-without-fp8",
        "calibration-without-fp4",
        "assumed-calibration",
    )
)
"""Codes of the warnings that say that times lie outside the calibrated range."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Circumstances of a run: seconds on the wall clock, the command that repeats it, and whether
    the physical answer alone is asked for, without the correction by published runs."""

    wall_seconds: float | None = None
    command: str | None = None
    physics: bool = False


UNTIMED: Final = RunInfo()
"""Of an answer that nobody timed, and no command gives."""


@dataclass(frozen=True, slots=True)
class CatalogUse:
    """Where the scenario's catalog numbers come from: a digest of all of them with their sources,
    how many there are of each kind, and the cited works."""

    digest: str
    numbers: Mapping[Kind, int]
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the answer came from, and the command that gives it again (None where there is
    none)."""

    twin_version: str
    created: str
    wall_seconds: float | None
    calibration: str
    fidelity: str
    events: int
    catalog: CatalogUse
    reproduce: str | None
    details: Mapping[str, Any]
    """What only this kind of work has to say, such as the micro-batches that were simulated."""

    def to_json(self) -> dict[str, Any]:
        """The section of the JSON report."""
        plain = asdict(self)
        return plain | plain.pop("details")


def provenance(
    calibration: str, fidelity: str, events: int, catalog: CatalogUse, run: RunInfo, **details: Any
) -> Provenance:
    """The provenance of an answer that was made just now, by this version."""
    return Provenance(
        twin_version=version("twin"),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        wall_seconds=run.wall_seconds,
        calibration=calibration,
        fidelity=fidelity,
        events=events,
        catalog=catalog,
        reproduce=run.command,
        details=details,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The head of a report: what was asked, the key figures and how sure they are."""

    kind: ClassVar[str] = "step"
    version: ClassVar[int] = 1
    """Of the JSON document; it grows when a key changes its meaning or leaves."""
    uncalibrated_codes: ClassVar[frozenset[str]] = UNCALIBRATED

    name: str
    scenario: Mapping[str, Any]
    """The resolved scenario as a planner would write it: quantities are text with units."""
    hash: str
    fits: bool
    kpis: Mapping[str, float | None]
    intervals: Mapping[str, Interval | None]
    """80 % interval per key figure; None where there is none, and a warning says why."""
    warnings: tuple[Warning, ...]
    expectations: tuple[Judgement, ...]
    """What the scenario expects, in its order."""
    provenance: Provenance

    def ranged(self, kpi: Kpi) -> str:
        """A key figure with its unit and its 80 % interval, as every door writes it."""
        return ranged(self.kpis[kpi.key], self.intervals.get(kpi.key), kpi.unit)

    @property
    def decisive(self) -> Mapping[str, str]:
        """Days and cost, each by the key figure that decides: with failures where those are known,
        so that a plan has one answer."""
        known = self.kpis
        return {key: other if known.get(other) else key for key, other in WITH_FAILURES.items()}

    @property
    def verdict(self) -> str:
        """The answer in plain sentences."""
        raise NotImplementedError

    @property
    def possible(self) -> bool:
        """Whether it can run at all, however much memory it takes."""
        return True

    @property
    def may_differ(self) -> bool:
        """Whether `fits` may turn out otherwise, as far as published peaks tell."""
        return False

    @property
    def uncalibrated(self) -> tuple[Warning, ...]:
        """Why the times lie outside the calibrated range; empty where they do not."""
        codes = self.uncalibrated_codes
        return tuple(warning for warning in self.warnings if warning.code in codes)

    def body(self) -> dict[str, Any]:
        """What the document has between its head and its tail."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """The report as one JSON document of plain data (the public contract)."""
        return {
            "version": self.version,
            "kind": self.kind,
            "name": self.name,
            "hash": self.hash,
            "fits": self.fits,
            "verdict": self.verdict,
            "kpis": dict(self.kpis),
            "intervals": {
                key: list(span) if span else None for key, span in self.intervals.items()
            },
            **self.body(),
            "calibrated": not self.uncalibrated,
            "expectations": [asdict(judgement) for judgement in self.expectations],
            "warnings": [asdict(warning) for warning in self.warnings],
            "scenario": dict(self.scenario),
            "provenance": self.provenance.to_json(),
        }


__all__ = ["FITS", "Judgement", "expectation_notes", "judge", "sentence"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """One expectation, judged. `value` and `bound` are in the figure's own unit; `passed` is None
    where this verb does not answer the figure, and False where its value is unknown."""

    text: str
    figure: str
    bound: float | bool
    value: float | bool | None
    passed: bool | None


def judge(
    expectations: Iterable[Expectation], values: Mapping[str, float | bool | None]
) -> tuple[Judgement, ...]:
    """Every expectation against the figures that are known; what is not among `values` is left
    open."""
    return tuple(_judged(one, values) for one in expectations)


def _judged(one: Expectation, values: Mapping[str, float | bool | None]) -> Judgement:
    value = values.get(one.figure)
    passed = (value is not None and one.holds(value)) if one.figure in values else None
    return Judgement(one.text, one.figure, one.bound, value, passed)


def sentence(judgement: Judgement) -> str:
    """What came of an expectation: `step_seconds < 25s: failed, it is 33.1 s.`"""
    if judgement.passed is None:
        return f"{judgement.text}: not answered here."
    word = "holds" if judgement.passed else "failed"
    return f"{judgement.text}: {word}, it is {_value(judgement)}."


def _value(judgement: Judgement) -> str:
    """The value as people read it, and how far it is from its bound where both read the same."""
    value, bound = judgement.value, judgement.bound
    if value is None or isinstance(value, bool):
        return "unknown" if value is None else str(value).lower()
    unit = FIGURES[judgement.figure].unit
    shown = show(value, unit)
    if shown != show(bound, unit) or not bound:
        return shown
    return f"{shown} ({100 * (value / bound - 1):+.2g} % of its bound)"


def expectation_notes(judgements: Iterable[Judgement]) -> list[Notes]:
    """What came of each expectation, a line each; nothing where there are none."""
    lines = tuple(sentence(judgement) for judgement in judgements)
    return [Notes("Expectations", lines)] if lines else []
