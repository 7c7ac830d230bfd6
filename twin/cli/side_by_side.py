"""What `twin compare` says of weight updates, and of iterations of reinforcement learning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

from rich.table import Table

from twin.cli.columns import headed
from twin.cli.output import DOES_NOT_FIT, NOT_AS_EXPECTED, Output
from twin.report.numbers import changed, show

if TYPE_CHECKING:
    from twin.plan.types import Warning
    from twin.report.compare import KpiDelta
    from twin.report.limits import Limit
    from twin.spec.kpis import Kpi


class _Answer(Protocol):
    """The report of a scenario, of whatever kind."""

    @property
    def name(self) -> str: ...
    @property
    def fits(self) -> bool: ...
    @property
    def kpis(self) -> Mapping[str, float | None]: ...


class _Change(Protocol):
    """A candidate against the baseline."""

    @property
    def name(self) -> str: ...
    @property
    def hash(self) -> str: ...
    @property
    def kpis(self) -> Mapping[str, KpiDelta]: ...
    @property
    def notes(self) -> Sequence[Warning]: ...


class _Comparison(Protocol):
    """Reports side by side, the first as baseline."""

    @property
    def reports(self) -> Sequence[_Answer]: ...
    @property
    def deltas(self) -> Sequence[_Change]: ...
    def to_json(self) -> dict[str, Any]: ...


def refuse_limits(limits: Sequence[Limit], kpis: Sequence[Kpi], kind: str) -> None:
    """Raise `UsageError` TW152 for limits on figures that this kind has not."""
    from twin.errors import Problem, UsageError

    known = [kpi.key for kpi in kpis]
    fix = f"write one of: {', '.join(known)}"
    problems = [
        Problem("TW152", "", f"{kind} has no `{limit.kpi.key}`", fix)
        for limit in limits
        if limit.kpi.key not in known
    ]
    if problems:
        raise UsageError(problems)


def say(
    comparison: _Comparison,
    words: Sequence[str],
    kpis: Sequence[Kpi],
    limits: Sequence[Limit],
    output: Output,
) -> int:
    """Print what differs, in a sentence for each candidate and a table; the exit code."""
    from twin.report.limits import failures, sentence

    beyond = failures(comparison, tuple(limits))
    output.document(comparison.to_json() | {"failures": [asdict(one) for one in beyond]})
    for text in (*words, *_notes(comparison), *map(sentence, beyond)):
        output.sentence(text)
    if output.tables:
        output.show(_table(comparison, kpis))
    if not all(report.fits for report in comparison.reports):
        return DOES_NOT_FIT
    return NOT_AS_EXPECTED if beyond else 0


def _notes(comparison: _Comparison) -> list[str]:
    return [f"{delta.name}: {note.message}" for delta in comparison.deltas for note in delta.notes]


def _table(comparison: _Comparison, kpis: Sequence[Kpi]) -> Table:
    first, *_ = comparison.reports
    table = headed("Key figures", "", first.name, *(delta.name for delta in comparison.deltas))
    for kpi in kpis:
        cells = [show(first.kpis[kpi.key], kpi.unit)]
        for delta in comparison.deltas:
            found = delta.kpis[kpi.key]
            change = f" ({changed(found.delta, found.relative, kpi.unit)})" if found.delta else ""
            cells.append(show(found.candidate, kpi.unit) + change)
        table.add_row(kpi.label, *cells)
    return table
