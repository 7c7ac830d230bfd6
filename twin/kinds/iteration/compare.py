"""Iterations side by side. Differences of their phases sum to the iteration's only where phases
follow one another: one step off, rollouts and training lie beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from twin.kinds.iteration.report import KIND, IterationReport
from twin.kinds.iteration.types import PHASES, Phase
from twin.kinds.rollouts.compare import other_work
from twin.planning.types import Warning
from twin.reports.compare import differences
from twin.reports.side_by_side import Kind, SideBySide, side_by_side
from twin.spec.kpis import ITERATION_KPIS


def compare(reports: Sequence[IterationReport]) -> SideBySide[IterationReport]:
    """Two or more iterations side by side, the first as baseline.

    Raises ValueError for fewer than two reports.
    """
    return side_by_side(ITERATIONS, reports)


def _phases(report: IterationReport) -> Mapping[Phase, float]:
    return report.phases


def _notes(baseline: IterationReport, candidate: IterationReport) -> tuple[Warning, ...]:
    return other_work(differences(baseline.scenario, candidate.scenario))


ITERATIONS: Final[Kind[IterationReport]] = Kind(
    name=KIND,
    subject="an iteration is",
    length="iteration_seconds",
    kpis=ITERATION_KPIS,
    parts="phases",
    changes_most="the phase that changes most is",
    words=PHASES,
    seconds=_phases,
    notes=_notes,
)
