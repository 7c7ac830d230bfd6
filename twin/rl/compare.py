"""Updates side by side: key figures, breakdown and fields of each candidate against the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from twin.plan.types import Warning
from twin.report.compare import (
    FieldDifference,
    KpiDelta,
    against_first,
    differences,
    kpi_changes,
)
from twin.report.numbers import digits, duration
from twin.rl.bound import WORDS
from twin.rl.report import UpdateReport
from twin.rl.types import STAGES, Stage
from twin.spec.kpis import UPDATE_KPIS

VERSION = 1
"""Version of the JSON document."""


@dataclass(frozen=True, slots=True)
class UpdateDelta:
    """One candidate against the baseline; `breakdown_ns` sums to `update_delta_ns` exactly."""

    name: str
    hash: str
    fits: bool
    kpis: Mapping[str, KpiDelta]
    update_delta_ns: int
    breakdown_ns: Mapping[Stage, int]
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
            "update_delta_ns": self.update_delta_ns,
            "breakdown_ns": dict(self.breakdown_ns),
            "breakdown": {stage: ns / 1e9 for stage, ns in self.breakdown_ns.items()},
            "fields": [asdict(field) for field in self.fields],
            "notes": [asdict(note) for note in self.notes],
        }


@dataclass(frozen=True, slots=True)
class UpdateComparison:
    """Updates side by side; the first report is the baseline."""

    reports: tuple[UpdateReport, ...]
    deltas: tuple[UpdateDelta, ...]

    def to_json(self) -> dict[str, Any]:
        """The comparison as one JSON document. Which edit made the difference is not split."""
        first = self.deltas[0]
        return {
            "version": VERSION,
            "kind": "weight_update",
            "baseline": {"name": self.reports[0].name, "hash": self.reports[0].hash},
            "update_delta_ns": first.update_delta_ns,
            "breakdown_ns": dict(first.breakdown_ns),
            "candidates": [delta.to_json() for delta in self.deltas],
            "reports": [report.to_json() for report in self.reports],
            "attribution": None,
        }


def compare(reports: Sequence[UpdateReport]) -> UpdateComparison:
    """Two or more updates side by side, the first as baseline.

    Raises ValueError for fewer than two reports.
    """
    return UpdateComparison(tuple(reports), against_first(reports, _delta))


def difference(baseline: UpdateReport, delta: UpdateDelta) -> str:
    """One sentence on a candidate."""
    change = delta.update_delta_ns
    unfit = "" if delta.fits else " (it does not fit)"
    if not change:
        return f"{delta.name}{unfit}: the update takes as long as in {baseline.name}."
    share = digits(100 * abs(change) / baseline.update_ns)
    sign = 1 if change > 0 else -1
    stage = max(STAGES, key=lambda one: sign * delta.breakdown_ns[one])
    part = delta.breakdown_ns[stage]
    return (
        f"{delta.name}{unfit}: the update is {duration(abs(change) / 1e9)} ({share} %) "
        f"{'slower' if change > 0 else 'faster'} than in {baseline.name}; the largest part is "
        f"{WORDS[stage]} ({'-' if part < 0 else '+'}{duration(abs(part) / 1e9)})."
    )


def _delta(baseline: UpdateReport, candidate: UpdateReport) -> UpdateDelta:
    return UpdateDelta(
        name=candidate.name,
        hash=candidate.hash,
        fits=candidate.fits,
        kpis=kpi_changes(UPDATE_KPIS, baseline.kpis, candidate.kpis),
        update_delta_ns=candidate.update_ns - baseline.update_ns,
        breakdown_ns={
            stage: candidate.breakdown_ns[stage] - baseline.breakdown_ns[stage] for stage in STAGES
        },
        fields=differences(baseline.scenario, candidate.scenario),
        notes=_notes(baseline, candidate),
    )


def _notes(baseline: UpdateReport, candidate: UpdateReport) -> tuple[Warning, ...]:
    if baseline.travel.checkpoint_bytes == candidate.travel.checkpoint_bytes:
        return ()
    message = "Checkpoints of other sizes travel: compare bytes per second, not seconds."
    return (Warning("different-work", message),)
