"""Iterations side by side: key figures, phases and fields of each candidate against the first.

Phases of both sides are compared one by one. Their differences sum to the iteration's only where
phases follow one another: one step off, rollouts and training lie beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from twin.plan.types import Warning
from twin.report.compare import (
    FieldDifference,
    KpiDelta,
    against_first,
    differences,
    kpi_changes,
)
from twin.report.numbers import digits, duration
from twin.rl.iteration.report import KIND, IterationReport
from twin.rl.iteration.types import PHASES, Phase
from twin.rl.rollout.compare import other_work
from twin.spec.kpis import ITERATION_KPIS

VERSION: Final = 1
"""Version of the JSON document."""


@dataclass(frozen=True, slots=True)
class IterationDelta:
    """One candidate against the baseline."""

    name: str
    hash: str
    fits: bool
    kpis: Mapping[str, KpiDelta]
    phases: Mapping[Phase, float]
    """Difference of the mean seconds of each phase."""
    fields: tuple[FieldDifference, ...]
    notes: tuple[Warning, ...]
    """Why the two may not be comparable."""

    def to_json(self) -> dict[str, Any]:
        """The candidate's part of the JSON document."""
        return {
            "name": self.name,
            "hash": self.hash,
            "fits": self.fits,
            "kpis": {key: asdict(delta) for key, delta in self.kpis.items()},
            "phases": dict(self.phases),
            "fields": [asdict(field) for field in self.fields],
            "notes": [asdict(note) for note in self.notes],
        }


@dataclass(frozen=True, slots=True)
class IterationComparison:
    """Iterations side by side; the first report is the baseline."""

    reports: tuple[IterationReport, ...]
    deltas: tuple[IterationDelta, ...]

    def to_json(self) -> dict[str, Any]:
        """The comparison as one JSON document. Which edit made the difference is not split."""
        first, *_ = self.reports
        return {
            "version": VERSION,
            "kind": KIND,
            "baseline": {"name": first.name, "hash": first.hash},
            "candidates": [delta.to_json() for delta in self.deltas],
            "reports": [report.to_json() for report in self.reports],
            "attribution": None,
        }


def compare(reports: Sequence[IterationReport]) -> IterationComparison:
    """Two or more iterations side by side, the first as baseline.

    Raises ValueError for fewer than two reports.
    """
    return IterationComparison(tuple(reports), against_first(reports, _delta))


def difference(baseline: IterationReport, delta: IterationDelta) -> str:
    """One sentence on a candidate."""
    found = delta.kpis["iteration_seconds"]
    unfit = "" if delta.fits else " (it does not fit)"
    if not found.delta or found.relative is None:
        return f"{delta.name}{unfit}: an iteration takes as long as in {baseline.name}."
    sign = 1 if found.delta > 0 else -1
    phase = max(delta.phases, key=lambda one: sign * delta.phases[one])
    part = delta.phases[phase]
    return (
        f"{delta.name}{unfit}: an iteration is {duration(abs(found.delta))} "
        f"({digits(100 * abs(found.relative))} %) {'slower' if sign > 0 else 'faster'} than in "
        f"{baseline.name}; the phase that changes most is {PHASES[phase]} "
        f"({'-' if part < 0 else '+'}{duration(abs(part))})."
    )


def _delta(baseline: IterationReport, candidate: IterationReport) -> IterationDelta:
    fields = differences(baseline.scenario, candidate.scenario)
    return IterationDelta(
        name=candidate.name,
        hash=candidate.hash,
        fits=candidate.fits,
        kpis=kpi_changes(ITERATION_KPIS, baseline.kpis, candidate.kpis),
        phases={
            phase: candidate.phases.get(phase, 0.0) - baseline.phases.get(phase, 0.0)
            for phase in PHASES
        },
        fields=fields,
        notes=other_work(fields),
    )
