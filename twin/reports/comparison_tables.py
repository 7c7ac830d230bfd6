"""Steps side by side as tables: key figures, where the change went, which edit made it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from twin.reports.breakdown import CAUSE_WORDS
from twin.reports.compare import Comparison, FieldDifference, KpiDelta
from twin.reports.numbers import changed, duration, show
from twin.reports.table import Block, Notes, Table, headed, headless, warning_notes
from twin.spec.kpis import KPIS, OF_A_SITE, OF_FAILURES, Kpi

if TYPE_CHECKING:  # attributions are made further up
    from twin.explore.study.attribution import Attribution

_SHOWN_FIELDS: Final = 12
"""Differing scenario fields that a comparison lists before it counts the rest."""


def comparison_tables(
    comparison: Comparison, attributions: Sequence[Attribution] = ()
) -> tuple[Block, ...]:
    """Everything that a comparison has to say after its sentences."""
    parts: list[Block] = [
        legend(comparison),
        comparison_table(comparison),
        change_table(comparison),
    ]
    for index, attribution in enumerate(attributions, 1):
        parts += attribution_table(letter(index), attribution) if attribution.causes else ()
    for index, delta in enumerate(comparison.deltas, 1):
        parts.append(field_table(letter(index), delta.fields))
        if delta.notes:
            parts += warning_notes(delta.notes, f"Before comparing A and {letter(index)}")
    return tuple(parts)


def comparison_table(comparison: Comparison) -> Table:
    """Key figures side by side: the baseline A, then each candidate with its change in percent and
    whether that is better."""
    table = _lettered("Key figures", comparison, first=0)
    baseline = comparison.reports[0]
    for kpi in KPIS:
        values = [report.kpis[kpi.key] for report in comparison.reports]
        if kpi.key in OF_A_SITE | OF_FAILURES and not any(value is not None for value in values):
            continue
        cells = [
            _changed(kpi, delta.kpis[kpi.key], judged=delta.fits and comparison.reports[0].fits)
            for delta in comparison.deltas
        ]
        table.add_row(kpi.label, show(baseline.kpis[kpi.key], kpi.unit), *cells)
    return table


def change_table(comparison: Comparison) -> Table:
    """Seconds by cause of each candidate against the baseline's; the rows sum to the change of the
    step. Causes that moved by less than a microsecond everywhere are left out."""
    table = _lettered("Where the step's change went", comparison, first=1)
    for cause, words in CAUSE_WORDS.items():
        moved = [delta.breakdown_ns[cause] for delta in comparison.deltas]
        if any(abs(ns) >= 1000 for ns in moved):
            table.add_row(words, *(_signed(ns) for ns in moved))
    table.add_section()
    table.add_row("step", *(_signed(delta.step_delta_ns) for delta in comparison.deltas))
    return table


def attribution_table(candidate: str, found: Attribution) -> list[Block]:
    """Which edits make a candidate's step longer or shorter than the baseline's: one row per cause,
    which sum to the difference, and how several were told apart. A mark after a cause leads to the
    note below that explains it."""
    title = f"Which edit made the step of {candidate} other than that of A"
    table = headless(title, "left", "left", "left", "right")
    notes = dict.fromkeys(cause.note for cause in found.causes if cause.note)
    marks = {note: " " + "*" * number for number, note in enumerate(notes, 1)}
    for cause in found.causes:
        name = cause.name + marks.get(cause.note, "")
        table.add_row(name, cause.base, cause.other, _signed(cause.ns))
    table.add_section()
    table.add_row("step", "", "", _signed(found.delta_ns))
    method = (found.method,) if len(found.causes) > 1 else ()
    lines = (*method, *(f"{mark.strip()} {note}" for note, mark in marks.items()))
    return [table, *([Notes("", lines)] if lines else [])]


def legend(comparison: Comparison) -> Notes:
    """Which letter stands for which scenario."""
    rows = [f"{letter(i)}  {report.name}" for i, report in enumerate(comparison.reports)]
    return Notes("", (f"{rows[0]} (baseline)", *rows[1:]))


def letter(index: int) -> str:
    """A, B, C and so on; after Z come numbers, which nobody compares by eye."""
    return chr(ord("A") + index) if index < 26 else str(index + 1)


def field_table(candidate: str, fields: tuple[FieldDifference, ...]) -> Table:
    """The scenario fields in which a candidate differs from the baseline, as a planner writes
    them."""
    title = f"Fields that differ, A and {candidate} ({len(fields)})"
    table = headless(title, "left", "left", "left")
    for field in fields[:_SHOWN_FIELDS]:
        table.add_row(field.path, _written(field.baseline), _written(field.candidate))
    if len(fields) > _SHOWN_FIELDS:
        table.add_row(f"and {len(fields) - _SHOWN_FIELDS} more (--json lists all)", "", "")
    return table


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _lettered(title: str, comparison: Comparison, first: int) -> Table:
    """A table with one column per scenario, from the given one on."""
    letters = [letter(index) for index in range(first, len(comparison.reports))]
    return headed(title, "", *letters)


def _changed(kpi: Kpi, delta: KpiDelta, *, judged: bool) -> str:
    """A candidate's figure and its change; better or worse only where both plans can run."""
    value = show(delta.candidate, kpi.unit)
    if not delta.delta:
        return value
    change = changed(delta.delta, delta.relative, kpi.unit)
    return f"{value} ({change}, {delta.verdict})" if judged else f"{value} ({change})"


def _signed(ns: int) -> str:
    sign = "+" if ns > 0 else "-" if ns < 0 else ""
    return f"{sign}{duration(abs(ns) / 1e9)}"
