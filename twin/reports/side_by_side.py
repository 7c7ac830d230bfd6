"""Answers of one kind side by side, whatever was run: key figures, parts of the time and fields of
each candidate against the first answer. Of training runs, which say more, it is
`twin.reports.compare`.

Parts of both sides are compared one by one; which edit made the difference is not split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from twin.planning.types import Warning
from twin.reports.compare import (
    FieldDifference,
    KpiDelta,
    against_first,
    differences,
    kpi_changes,
)
from twin.reports.numbers import digits, duration
from twin.spec.kpis import Kpi

VERSION: Final = 2
"""Version of the JSON document."""


class Answer(Protocol):
    """The report of a scenario, of whatever kind."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def hash(self) -> str: ...  # noqa: D102
    @property
    def fits(self) -> bool: ...  # noqa: D102
    @property
    def kpis(self) -> Mapping[str, float | None]: ...  # noqa: D102
    @property
    def scenario(self) -> Mapping[str, Any]: ...  # noqa: D102
    def to_json(self) -> dict[str, Any]: ...  # noqa: D102


A = TypeVar("A", bound=Answer)


@dataclass(frozen=True, slots=True)
class Kind(Generic[A]):
    """What is compared, and how it is spoken of."""

    name: str
    """In the document."""
    subject: str
    """`the update is`."""
    length: str
    """The key figure that says how long."""
    kpis: tuple[Kpi, ...]
    parts: str
    """Key of the parts of the time in the document."""
    changes_most: str
    """`the phase that changes most is`."""
    words: Mapping[Any, str]
    """Every part, in words."""
    seconds: Callable[[A], Mapping[Any, float]]
    """Of each part."""
    notes: Callable[[A, A], tuple[Warning, ...]]
    """Why two answers may not be comparable."""


@dataclass(frozen=True, slots=True)
class Change:
    """One candidate against the baseline."""

    name: str
    hash: str
    fits: bool
    kpis: Mapping[str, KpiDelta]
    parts: Mapping[str, float]
    """Difference of the seconds of each part."""
    fields: tuple[FieldDifference, ...]
    notes: tuple[Warning, ...]


@dataclass(frozen=True, slots=True)
class SideBySide(Generic[A]):
    """Answers side by side; the first one is the baseline."""

    kind: Kind[A]
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
            "candidates": [_renamed(asdict(one), self.kind.parts) for one in self.deltas],
            "reports": [one.to_json() for one in self.reports],
            "attribution": None,
        }

    def sentence(self, delta: Change) -> str:
        """What a candidate takes more or less than the baseline, and where."""
        kind, base = self.kind, self.reports[0].name
        found = delta.kpis[kind.length]
        unfit = "" if delta.fits else " (it does not fit)"
        if not found.delta or found.relative is None:
            return f"{delta.name}{unfit}: {kind.subject} as long as in {base}."
        sign = 1 if found.delta > 0 else -1
        most = max(delta.parts, key=lambda one: sign * delta.parts[one])
        part = delta.parts[most]
        return (
            f"{delta.name}{unfit}: {kind.subject} {duration(abs(found.delta))} "
            f"({digits(100 * abs(found.relative))} %) {'slower' if sign > 0 else 'faster'} than in "
            f"{base}; {kind.changes_most} {kind.words[most]} "
            f"({'-' if part < 0 else '+'}{duration(abs(part))})."
        )


def side_by_side(kind: Kind[A], answers: Sequence[A]) -> SideBySide[A]:
    """Two or more answers side by side, the first as baseline.

    Raises ValueError for fewer than two answers.
    """
    deltas = against_first(answers, partial(_change, kind))
    return SideBySide(kind, tuple(answers), deltas)


def _change(kind: Kind[A], baseline: A, candidate: A) -> Change:
    before, after = kind.seconds(baseline), kind.seconds(candidate)
    return Change(
        name=candidate.name,
        hash=candidate.hash,
        fits=candidate.fits,
        kpis=kpi_changes(kind.kpis, baseline.kpis, candidate.kpis),
        parts={part: after.get(part, 0.0) - before.get(part, 0.0) for part in kind.words},
        fields=differences(baseline.scenario, candidate.scenario),
        notes=kind.notes(baseline, candidate),
    )


def _renamed(change: dict[str, Any], parts: str) -> dict[str, Any]:
    """The candidate's part of the document."""
    return {parts if key == "parts" else key: value for key, value in change.items()}
