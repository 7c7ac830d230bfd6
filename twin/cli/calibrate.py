"""`twin calibrate`: what do our own measurements say?"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twin import units
from twin.cli.answer import answered, progress_bar, training
from twin.cli.output import Output
from twin.errors import Problem, UsageError
from twin.evidence.calibrate import require_scipy
from twin.evidence.calibrate.calibrate import calibrate as run
from twin.evidence.calibrate.factors import SECONDS
from twin.evidence.calibrate.missing import VERSION as MISSING_VERSION
from twin.evidence.calibrate.missing import Missing, what_is_missing
from twin.evidence.calibrate.request import CalibrationRequest
from twin.evidence.calibrate.result import Calibration, Errors, RowError
from twin.evidence.calibrate.step_fit import Difference, NumberChange, difference
from twin.evidence.calibrate.write import write
from twin.loading import load_any, load_part
from twin.reports.table import Table, headed

_FEW = 8
"""Numbers that only step times tell: the first ones."""
_ROWS = 40
"""Rows that a terminal is shown; of more, the worst ones, and classes as a whole."""


def calibrate(  # noqa: PLR0913  one parameter per option of the command line
    *,
    source: Path | None,
    base: str | None,
    gpu: str | None,
    defaults: str | None,
    sets: list[str],
    factors: str | None,
    name: str | None,
    path: Path | None,
    diff: str | None,
    scenario: str | None,
    missing: str | None,
    output: Output,
) -> int | None:
    """A profile, node and fabric from your own measurements; or what to measure next."""
    if missing is not None:
        return _missing(missing, sets, output)
    if source is None:
        message = "nothing to calibrate from"
        fix = "name a folder of measurements; --what-is-missing SCENARIO lists what to measure"
        raise UsageError([Problem("TW350", "", message, fix)])
    require_scipy()

    wanted = tuple(word.strip() for word in factors.split(",") if word.strip()) if factors else None
    request = CalibrationRequest(source, base, gpu, defaults, tuple(sets or ()), wanted, name)
    found = run(request, _teller(output))
    other = _difference(found, diff, source, scenario) if diff else None
    _answer(found, other, _written(found, path), output)
    return None


def _answer(
    found: Calibration, other: Difference | None, written: list[Path], output: Output
) -> None:
    """Print a calibration, and how it differs from another profile."""
    document: dict[str, Any] = found.to_json() | {"written": [str(file) for file in written]}
    document["difference"] = other.to_json() if other else None
    tables = [*calibration_tables(found), *([difference_table(other)] if other else [])]
    output.answer(document, [_verdict(found)], tables)
    if found.notes:
        output.message("\n".join(f"Note: {note}." for note in found.notes))
    for file in written:
        output.message(f"Written: {file}")


def _missing(path: str, sets: list[str], output: Output) -> int | None:
    """Measurements that would narrow a scenario's interval."""
    run = answered(path, sets, output, step_of="explain")
    interval = run.report.intervals["step_seconds"]
    if interval is None:
        message = f"the step of {run.scenario.name} has no interval that could be narrowed"
        fix = "no published run is on a GPU like its: calibrate from whatever you can measure"
        raise UsageError([Problem("TW365", "", message, fix)])
    with progress_bar(output, "ranges") as progress:
        found = what_is_missing(run.scenario, run.report.step_ns / 1e9, interval, progress)
    head = {
        "version": MISSING_VERSION,
        "kind": "what is missing",
        "name": run.scenario.name,
        "hash": run.report.hash,
    }
    told = [_missing_words(found)]
    output.answer({**head, **found.to_json()}, told, missing_tables(found))
    return None


def _missing_words(found: Missing) -> str:
    """By how much the interval narrows."""
    usual = f"The step's interval is -+{found.half:.0%}"
    if not found.measurements:
        return f"{usual}, about as narrow as measurements make it."
    first = found.measurements[0]
    return f"{usual}; {first.words} ({first.minutes:g} min) would make it -+{first.half:.0%}."


def missing_tables(found: Missing) -> list[Table]:
    """Measurements in the order of what a minute takes away, their commands, and what no
    measurement tells."""
    heads = ("measurement", "minutes", "takes away", "interval then", "tells")
    table = headed("What to measure next", *heads, left=(0, 4))
    for one in found.measurements:
        few = ", ".join(path.rpartition("calibration.")[2] for path in one.numbers[:3])
        more = f" and {len(one.numbers) - 3} more" if len(one.numbers) > 3 else ""
        cells = (f"{one.minutes:g}", f"{one.share:.0%}", f"-+{one.half:.1%}", few + more)
        table.add_row(one.words, *cells)
    table.caption = (
        "Each alone, of the interval's square; what takes most away per minute comes first.\n"
        "Put the files into one folder and run `twin calibrate FOLDER -o .`"
    )
    commands = headed("Commands", "measurement", "command", left=(0, 1))
    for one in found.measurements:
        commands.add_row(one.words, one.command)
    if not found.others:
        return [table, commands]
    others = headed("What only step times tell", "number", "explains", left=(0,))
    for path, share in found.others[:_FEW]:
        others.add_row(path, f"{share:.1%}")
    return [table, commands, others]


def _teller(output: Output) -> Any:
    """Says on stderr what a fit is doing, where a person watches."""
    if not output.progress:
        return None

    def tell(what: str) -> None:
        sys.stderr.write(f"\r\x1b[2K{what}")
        sys.stderr.flush()

    return tell


def _difference(found: Calibration, diff: str, source: Path, scenario: str | None) -> Difference:

    near = [source if source.is_dir() else source.parent, Path()]
    old = load_part("calibrations", diff, near).spec
    own = training(load_any(scenario)) if scenario else None
    return difference(old, found.profile, own)


def _written(found: Calibration, path: Path | None) -> list[Path]:
    if path is None:
        return []

    return write(found, path)


def _verdict(found: Calibration) -> str:
    """The answer in words."""
    if found.files:
        return _folder_verdict(found)
    before, after = found.errors("before", "fit"), found.errors("left_out", "fit")
    checks = found.errors("after", "check")
    numbers = f"{found.fitted} number{'' if found.fitted == 1 else 's'}"
    text = f"{found.name}: {numbers} fitted"
    if before and after:
        text += (
            f" on {before.rows} rows of {found.stamp.device}; rows left out are missed by "
            f"{after.mean:.1%}, {before.mean:.1%} by the base {found.stamp.base}"
        )
    if checks:
        text += f"; {checks.rows} rows that no fit saw by {checks.mean:.1%}"
    return text + "."


def _folder_verdict(found: Calibration) -> str:
    """How many numbers come from how many files, and by how much rows left out are missed."""
    used = sum(bool(file.took) for file in found.files)
    numbers = f"{len(found.found)} number{'' if len(found.found) == 1 else 's'}"
    text = f"{found.name}: {numbers} from {used} of {len(found.files)} files"
    tasks = {"transfers": "transfers", "steps": "step times"}
    groups: dict[str, list[float]] = {}
    for row in found.rows:
        if row.left_out is not None:
            groups.setdefault(tasks.get(row.task, "kernels"), []).append(abs(row.left_out))
    missed = [f"{what} by {sum(own) / len(own):.1%}" for what, own in groups.items()]
    if missed:
        text += f"; left out of their fit, {', '.join(missed)}"
    return text + "."


def _files(found: Calibration) -> Table:
    """Every file: what it was taken for, and what was not used of it."""
    heads = ("file", "recognised as", "took", "could not use")
    table = headed("Files", *heads, left=(0, 1, 2, 3))
    for file in found.files:
        cells = ("; ".join(file.took) or "nothing", "; ".join(file.unused))
        table.add_row(file.file, ", ".join(file.recognised), *cells)
    return table


def calibration_tables(found: Calibration) -> list[Table]:
    """Files, fitted numbers, trials, errors, rows, and the time of a trace that is not mapped."""
    parts = [_numbers(found), _trials(found), _errors(found), _rows(found.rows)]
    parts = [_files(found), *parts] if found.files else parts
    return [*parts, _others(found)] if found.others else parts


def _numbers(found: Calibration) -> Table:

    heads = ("number", "base", "fitted", "range", "factor", "rows took")
    table = headed("Numbers that were fitted", *heads, left=(0, 4))
    for number in found.found:
        low, high = sorted((number.low, number.high))
        table.add_row(
            number.path,
            _value(number.path, number.before),
            _value(number.path, number.after),
            f"{_value(number.path, low)} to {_value(number.path, high)}",
            number.factor,
            f"{max(0.0, number.learned):.0%}",
        )
    if not found.found:
        table.add_row("none: the rows say nothing that the base does not", *[""] * 5)
    return table


def _trials(found: Calibration) -> Table:

    heads = ("rows of", "numbers", "error of rows left out", "determined", "")
    table = headed("Fits that were tried", *heads, left=(0, 1, 4))
    for fit in found.tried:
        words = ", ".join(f"{name} x {value:.3g}" for name, value in fit.factors.items())
        taken = "taken" if fit.taken else ""
        table.add_row(
            fit.task, words or "the base", f"{fit.left_out:.1%}", f"{fit.determined:.1f}", taken
        )
    return table


def _errors(found: Calibration) -> Table:

    heads = ("rows", "", "count", "mean", "median", "worst", "bias")
    table = headed("Errors", *heads, left=(0, 1))
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
    heads = ("row", "of", "use", "measured", "base", "fit", "left out")
    table = headed(title, *heads, left=(0, 1, 2))
    for row in shown:
        out = "" if row.left_out is None else f"{row.left_out:+.1%}"
        measured = units.format_quantity(row.measured, "seconds", 3)
        table.add_row(
            row.name, row.task, row.use, measured, f"{row.before:+.1%}", f"{row.after:+.1%}", out
        )
    return table


def _others(found: Calibration) -> Table:

    table = headed("Time that is not mapped", "name", "why", "calls", "share", left=(0, 1))
    for name, why, calls, share in found.others:
        table.add_row(name[:60], why, f"{calls:,}", f"{share:.1%}")
    return table


def difference_table(difference: Difference) -> Table:
    """Every number that differs, and what it is worth."""

    title = f"From {difference.old} to {difference.new}"
    timed = difference.seconds is not None
    last = ["alone, a step takes"] if timed else []
    table = headed(title, "number", "old", "new", "ratio", *last)
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
