"""Updates side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from twin.kinds.weight_update.bound import WORDS
from twin.kinds.weight_update.report import UpdateReport
from twin.kinds.weight_update.types import Stage
from twin.planning.types import Warning
from twin.reports.side_by_side import Kind, SideBySide, side_by_side
from twin.spec.kpis import UPDATE_KPIS

UpdateComparison: TypeAlias = SideBySide[UpdateReport]


def compare(reports: Sequence[UpdateReport]) -> UpdateComparison:
    """Two or more updates side by side, the first as baseline; differences of their stages sum to
    that of the updates.

    Raises ValueError for fewer than two reports.
    """
    return side_by_side(UPDATES, reports)


def _seconds(report: UpdateReport) -> Mapping[Stage, float]:
    return {stage: ns / 1e9 for stage, ns in report.breakdown_ns.items()}


def _notes(baseline: UpdateReport, candidate: UpdateReport) -> tuple[Warning, ...]:
    if baseline.travel.checkpoint_bytes == candidate.travel.checkpoint_bytes:
        return ()
    message = "Checkpoints of other sizes travel: compare bytes per second, not seconds."
    return (Warning("different-work", message),)


UPDATES: Final[Kind[UpdateReport]] = Kind(
    name="weight_update",
    subject="the update is",
    length="update_seconds",
    kpis=UPDATE_KPIS,
    parts="breakdown",
    changes_most="what changes most is",
    words=WORDS,
    seconds=_seconds,
    notes=_notes,
)
