"""Answers of one kind side by side, whatever was run: key figures, parts of the time and fields of
each candidate against the first answer. Of training runs, which say more, it is
`twin.reports.compare`.

Parts of both sides are compared one by one; which edit made the difference is not split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from twin.reports.compare import (
    CandidateDelta,
    against_first,
    differences,
    kpi_changes,
)
from twin.reports.head import Head
from twin.reports.numbers import changed, digits, duration, show
from twin.reports.table import Table, headed

if TYPE_CHECKING:
    from twin.kinds.base import Kind

VERSION: Final = 2
"""Version of the JSON document."""


A = TypeVar("A", bound=Head)


@dataclass(frozen=True, slots=True)
class Change(CandidateDelta):
    """One candidate against the baseline."""

    parts: Mapping[str, float]
    """Difference of the seconds of each part."""


@dataclass(frozen=True, slots=True)
class SideBySide(Generic[A]):
    """Answers side by side; the first one is the baseline."""

    kind: Kind
    reports: tuple[A, ...]
    deltas: tuple[Change, ...]
    """One per candidate, in the order given."""

    def to_json(self) -> dict[str, Any]:
        """The comparison as one JSON document."""
        first = self.reports[0]
        return {
            "version": VERSION,
            "kind": self.kind.name,
            "baseline": {"name": first.name, "hash": first.hash},
            "candidates": [_renamed(asdict(delta), self.kind.parts) for delta in self.deltas],
            "reports": [report.to_json() for report in self.reports],
            "attribution": None,
        }

    def sentences(self) -> list[str]:
        """What each candidate takes more or less than the baseline, then why two answers may not be
        comparable."""
        notes = [f"{delta.name}: {note.message}" for delta in self.deltas for note in delta.notes]
        return [*map(self.sentence, self.deltas), *notes]

    def tables(self) -> tuple[Table, ...]:
        """Key figures side by side."""
        first, *_ = self.reports
        table = headed("Key figures", "", first.name, *(delta.name for delta in self.deltas))
        for kpi in self.kind.kpis:
            cells = [show(first.kpis[kpi.key], kpi.unit)]
            for delta in self.deltas:
                figure = delta.kpis[kpi.key]
                change = changed(figure.delta, figure.relative, kpi.unit) if figure.delta else ""
                cells.append(f"{show(figure.candidate, kpi.unit)}{change and f' ({change})'}")
            table.add_row(kpi.label, *cells)
        return (table,)

    def sentence(self, delta: Change) -> str:
        """What a candidate takes more or less than the baseline, and where."""
        kind, base = self.kind, self.reports[0].name
        found = delta.kpis[kind.length]
        unfit = "" if delta.fits else " (it does not fit)"
        if not found.delta or found.relative is None:
            return f"{delta.name}{unfit}: {kind.subject} as long as in {base}."
        sign = 1 if found.delta > 0 else -1
        most = max(delta.parts, key=lambda part: sign * delta.parts[part])
        part = delta.parts[most]
        return (
            f"{delta.name}{unfit}: {kind.subject} {duration(abs(found.delta))} "
            f"({digits(100 * abs(found.relative))} %) {'slower' if sign > 0 else 'faster'} than in "
            f"{base}; {kind.changes_most} {kind.part_words(most)} "
            f"({'-' if part < 0 else '+'}{duration(abs(part))})."
        )


def side_by_side(kind: Kind, answers: Sequence[A]) -> SideBySide[A]:
    """Two or more answers side by side, the first as baseline.

    Raises ValueError for fewer than two answers.
    """
    deltas = against_first(answers, partial(_change, kind))
    return SideBySide(kind, tuple(answers), deltas)


def _change(kind: Kind, baseline: A, candidate: A) -> Change:
    before, after = kind.part_seconds(baseline), kind.part_seconds(candidate)
    return Change(
        name=candidate.name,
        hash=candidate.hash,
        fits=candidate.fits,
        kpis=kpi_changes(kind.kpis, baseline.kpis, candidate.kpis),
        parts={
            part: after.get(part, 0.0) - before.get(part, 0.0)
            for part in dict.fromkeys((*before, *after))
        },
        fields=differences(baseline.scenario, candidate.scenario),
        notes=kind.incomparable(baseline, candidate),
    )


def _renamed(change: dict[str, Any], parts: str) -> dict[str, Any]:
    """The candidate's part of the document."""
    return {parts if key == "parts" else key: value for key, value in change.items()}
