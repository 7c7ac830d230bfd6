"""The tables of `twin calibrate`: numbers, sets of factors, rows, what a trace leaves unmapped."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from twin import units
from twin.evidence.calibrate.factors import SECONDS
from twin.evidence.calibrate.result import Calibration, Errors, RowError
from twin.evidence.calibrate.step_fit import Difference, NumberChange

_ROWS = 40
"""Rows that a terminal is shown; of more, the worst ones, and classes as a whole."""


def calibration_tables(found: Calibration) -> list[Table]:
    """Everything that is there to show."""
    parts = [_numbers(found), _trials(found), _errors(found), _rows(found.rows)]
    return [*parts, _others(found)] if found.others else parts


def _numbers(found: Calibration) -> Table:
    table = _table(
        "Numbers that were fitted",
        "number",
        "base >",
        "fitted >",
        "range >",
        "factor",
        "rows took >",
    )
    for one in found.found:
        low, high = sorted((one.low, one.high))
        table.add_row(
            one.path,
            _value(one.path, one.before),
            _value(one.path, one.after),
            f"{_value(one.path, low)} to {_value(one.path, high)}",
            one.factor,
            f"{max(0.0, one.learned):.0%}",
        )
    if not found.found:
        table.add_row("none: the rows say nothing that the base does not", *[""] * 5)
    return table


def _trials(found: Calibration) -> Table:
    table = _table(
        "What was tried", "rows of", "numbers", "error of rows left out >", "determined >", ""
    )
    for one in found.tried:
        words = ", ".join(f"{name} x {value:.3g}" for name, value in one.factors.items())
        taken = "taken" if one.taken else ""
        table.add_row(
            one.task, words or "the base", f"{one.left_out:.1%}", f"{one.determined:.1f}", taken
        )
    return table


def _errors(found: Calibration) -> Table:
    table = _table("Errors", "rows", "", "count >", "mean >", "median >", "worst >", "bias >")
    shown = (
        ("fitted", "base", found.errors("before", "fit")),
        ("fitted", "fit", found.errors("after", "fit")),
        ("fitted", "each left out", found.errors("left_out", "fit")),
        ("unseen", "base", found.errors("before", "check")),
        ("unseen", "fit", found.errors("after", "check")),
    )
    for rows, under, errors in shown:
        if errors is not None:
            table.add_row(rows, under, *_error_cells(errors))
    if found.interval:
        low, high = found.interval
        table.caption = (
            f"A further step like these lies within {low:+.1%} and {high:+.1%}, four of five times."
        )
    return table


def _error_cells(errors: Errors) -> list[str]:
    sizes = (errors.mean, errors.median, errors.worst)
    return [str(errors.rows), *(f"{size:.1%}" for size in sizes), f"{errors.bias:+.1%}"]


def _rows(rows: Sequence[RowError]) -> Table:
    title = "Rows"
    shown = list(rows)
    if len(rows) > _ROWS:
        title = f"Rows: the {_ROWS} worst of {len(rows)}"
        shown = sorted(rows, key=lambda row: -abs(row.after))[:_ROWS]
    table = _table(title, "row", "of", "use", "measured >", "base >", "fit >", "left out >")
    for row in shown:
        out = "" if row.left_out is None else f"{row.left_out:+.1%}"
        measured = units.format_quantity(row.measured, "seconds", 3)
        table.add_row(
            row.name, row.task, row.use, measured, f"{row.before:+.1%}", f"{row.after:+.1%}", out
        )
    return table


def _others(found: Calibration) -> Table:
    table = _table("Time that is not mapped", "name", "why", "calls >", "share >")
    for name, why, calls, share in found.others:
        table.add_row(name[:60], why, f"{calls:,}", f"{share:.1%}")
    return table


def difference_table(difference: Difference) -> Table:
    """Every number that differs, and what it is worth."""
    title = f"From {difference.old} to {difference.new}"
    timed = difference.seconds is not None
    last = ["alone, a step takes >"] if timed else []
    table = _table(title, "number", "old >", "new >", "ratio >", *last)
    for change in difference.changes:
        table.add_row(*_change(change, timed=timed))
    if difference.seconds:
        old, new = (units.format_quantity(s, "seconds", 4) for s in difference.seconds)
        table.caption = f"The scenario's step: {old} with the old profile, {new} with the new one."
    return table


def _change(change: NumberChange, *, timed: bool) -> list[str]:
    old, new = (
        "none" if value is None else _value(change.path, value)
        for value in (change.old, change.new)
    )
    cells = [change.path, old, new, f"x {change.ratio:.3g}" if change.ratio else ""]
    if timed:
        seconds = change.seconds
        cells.append("" if seconds is None else f"{seconds:+.3g} s")
    return cells


def _value(path: str, value: float) -> str:
    if path.rpartition(".")[2] in SECONDS:
        return units.format_quantity(value, "seconds", 3)
    return f"{value:.4g}"


def _table(title: str, *columns: str) -> Table:
    """An empty table; columns that end in `>` are numbers."""
    table = Table(title=title, title_justify="left", title_style="bold", caption_justify="left")
    for column in columns:
        name = column.removesuffix(" >")
        table.add_column(name, justify="right" if column.endswith(">") else "left")
    return table
