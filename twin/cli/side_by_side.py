"""What `twin compare` says of weight updates, rollouts and iterations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table

from twin.cli.columns import headed
from twin.cli.output import DOES_NOT_FIT, NOT_AS_EXPECTED, Output
from twin.reports.numbers import changed, show

if TYPE_CHECKING:
    from twin.reports.limits import Limit
    from twin.reports.side_by_side import SideBySide
    from twin.spec.kpis import Kpi


def refuse_limits(limits: Sequence[Limit], what: str, kpis: Sequence[Kpi]) -> None:
    """Raise `UsageError` TW152 for limits on figures that this kind of scenario has not."""
    from twin.errors import Problem, UsageError

    known = [kpi.key for kpi in kpis]
    fix = f"write one of: {', '.join(known)}"
    problems = [
        Problem("TW152", "", f"{what} has no `{limit.kpi.key}`", fix)
        for limit in limits
        if limit.kpi.key not in known
    ]
    if problems:
        raise UsageError(problems)


def say(comparison: SideBySide[Any], limits: Sequence[Limit], output: Output) -> int:
    """Print what differs, in a sentence for each candidate and a table; the exit code."""
    from twin.reports.limits import failures, sentence

    beyond = failures(comparison, tuple(limits))
    output.document(comparison.to_json() | {"failures": [asdict(one) for one in beyond]})
    words = map(comparison.sentence, comparison.deltas)
    for text in (*words, *_notes(comparison), *map(sentence, beyond)):
        output.sentence(text)
    if output.tables:
        output.show(_table(comparison))
    if not all(report.fits for report in comparison.reports):
        return DOES_NOT_FIT
    return NOT_AS_EXPECTED if beyond else 0


def _notes(comparison: SideBySide[Any]) -> list[str]:
    return [f"{delta.name}: {note.message}" for delta in comparison.deltas for note in delta.notes]


def _table(comparison: SideBySide[Any]) -> Table:
    first, *_ = comparison.reports
    table = headed("Key figures", "", first.name, *(delta.name for delta in comparison.deltas))
    for kpi in comparison.kind.kpis:
        cells = [show(first.kpis[kpi.key], kpi.unit)]
        for delta in comparison.deltas:
            found = delta.kpis[kpi.key]
            change = f" ({changed(found.delta, found.relative, kpi.unit)})" if found.delta else ""
            cells.append(show(found.candidate, kpi.unit) + change)
        table.add_row(kpi.label, *cells)
    return table
