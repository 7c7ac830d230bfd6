"""`twin validate --suite`: published rows as scenarios, predicted, and scored; `--shipped`: the
answers that ship, scored the same way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from twin.cli.answer import progress_bar
from twin.cli.output import NOT_AS_EXPECTED, Output

if TYPE_CHECKING:
    from rich.console import RenderableType

    from twin.errors import UsageError
    from twin.evidence.validate import Answer, Row
    from twin.evidence.validate.pairs import Pair
    from twin.evidence.validate.summary import Family, Summary
    from twin.reports.interval import Known

VERSION: Final = 1
"""Version of the JSON document."""
PREDICTING: Final = (
    "--suite", "--processes", "--write", "--leave-one-out", "--residuals", "--answers",
)  # fmt: skip
"""Options that need rows to be predicted."""
_SHOWN: Final = 24
"""Lines of a table before it is cut."""


@dataclass(frozen=True, slots=True)
class Files:
    """What to write: a page, a table, scenarios, residuals, answers."""

    report: Path | None
    table: Path | None
    write: Path | None
    residuals: Path | None
    answers: Path | None


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked on the command line; the limit in percent."""

    suites: tuple[Path, ...]
    only: str | None
    processes: int | None
    leave_one_out: bool
    files: Files
    limit: float | None
    shipped: bool


def run(asked: Request, output: Output) -> int:
    """Answer, and return the exit code."""
    rows = () if asked.shipped else _rows(asked)
    summary = _shipped(asked, output) if asked.shipped else _made(rows, asked, output)
    output.document(
        {
            "version": VERSION,
            "rows": [one.to_json() for one in summary.answers],
            "summary": summary.to_json(),
        }
    )
    for line in _sentences(summary):
        output.sentence(line)
    if output.tables:
        output.show(*tables(summary))
    _write(asked.files, rows, summary, output)
    return NOT_AS_EXPECTED if asked.limit is not None and _is_beyond(summary, asked.limit) else 0


def _made(rows: Sequence[Row], asked: Request, output: Output) -> Summary:
    """What rows come to, predicted now."""
    from twin.evidence.validate.summary import summarize
    from twin.reports.interval import shipped

    answers = _answers(rows, asked, output)
    kept = asked.files.residuals
    told = shipped() if kept is None else _residuals(rows, answers, kept)
    return summarize(rows, answers, told, _left_out(rows) if asked.leave_one_out else ())


def _shipped(asked: Request, output: Output) -> Summary:
    """What the answers that ship come to. Raises `UsageError` where there are none."""
    from twin.evidence.validate import kept, overview

    told = kept.shipped()
    summary = None if told is None else told.summary
    if summary is not None and asked.only is not None:
        text = asked.only.lower()
        summary = summary.part(lambda one: _has((one.id, one.source, one.model, one.gpu), text))
    if told is None or summary is None or not summary.answers:
        raise _nothing(asked, 0 if told is None else len(told.summary.answers), "answer")
    if told.is_older:
        output.message(
            f"Predicted on {told.day} by twin {told.twin}: code, catalog or rows have changed "
            "since. Without --shipped they are predicted anew."
        )
    output.sentence(overview.sentence(summary))
    return summary


def _nothing(asked: Request, count: int, what: str) -> UsageError:
    from twin.errors import Problem, UsageError

    option = "--shipped" if asked.shipped else "--suite"
    why = f"no {what} of {count} has `{asked.only}` in its id, source, model or GPU"
    why = why if count else f"there is no {what}"
    return UsageError([Problem("TW381", "--only" if count else option, why)])


def _rows(asked: Request) -> tuple[Row, ...]:
    """Rows of all suites, those that were asked for. Raises `UsageError` where there is none."""
    from twin.evidence.validate import read_suite

    suites: tuple[Path | None, ...] = asked.suites or (None,)
    rows = tuple(row for suite in suites for row in read_suite(suite))
    wanted = tuple(row for row in rows if asked.only is None or _says(row, asked.only.lower()))
    if not wanted:
        raise _nothing(asked, len(rows), "row")
    return wanted


def _says(row: Row, text: str) -> bool:
    from twin.evidence.validate import Unreadable

    words = [row.id]
    with suppress(Unreadable):
        words += [row.source, row.model, row.gpu]
    return _has(words, text)


def _has(words: Iterable[str], text: str) -> bool:
    return any(text in word.lower() for word in words)


def _answers(rows: Sequence[Row], asked: Request, output: Output) -> tuple[Answer, ...]:
    from twin.evidence.validate import validate
    from twin.evidence.validate.validate import at_once

    processes = asked.processes or at_once()
    found: list[Answer] = []
    with progress_bar(output, f"{len(rows)} rows") as progress:
        for done, own in enumerate(validate(rows, processes), 1):
            found += own
            if progress is not None:
                progress(done / len(rows))
    return tuple(found)


def _left_out(rows: Sequence[Row]) -> tuple[Answer, ...]:
    from twin.evidence.validate.leave_one_out import leave_one_out

    return leave_one_out(rows)


def _residuals(rows: Sequence[Row], answers: Sequence[Answer], file: Path) -> Known:
    from twin.evidence.validate import intervals

    told = intervals.known(intervals.residuals(rows, answers))
    intervals.write(file, told)
    return told


def _write(wanted: Files, rows: Sequence[Row], summary: Summary, output: Output) -> None:
    """What was asked for as files."""
    from twin.evidence.validate import files, kept, report

    if wanted.residuals is not None:
        output.message(f"Written: {wanted.residuals}")
    if wanted.table is not None:
        files.write_table(wanted.table, summary)
        output.message(f"Written: {wanted.table}")
    if wanted.write is not None:
        count = files.write_scenarios(wanted.write, rows, summary.answers)
        output.message(f"Written: {count} scenarios in {wanted.write}")
    if wanted.answers is not None:
        kept.write(wanted.answers, kept.now(summary))
        output.message(f"Written: {wanted.answers}")
    if wanted.report is not None:
        report.write(wanted.report, summary)
        output.message(f"Written: {wanted.report}")


def _is_beyond(summary: Summary, limit: float) -> bool:
    """Whether in any metric the median of the families' medians is above a limit in percent."""
    medians: dict[str, list[float]] = {}
    for one in summary.families():
        medians.setdefault(one.group.metric, []).append(one.group.errors.median)
    return any(100.0 * median(own) > limit for own in medians.values())


def _sentences(summary: Summary) -> Iterator[str]:
    """The answer in words: one line per metric of rows that judge."""
    from twin.evidence.validate import score

    told = summary.to_json()["metrics"]["check"]
    refused = len({one.id for one in summary.refused})
    yield f"{summary.rows} rows; {refused} of them are not expressed."
    for metric, one in told.items():
        line = f"{metric}, {one['rows']} check rows of {one['families']} families: median error "
        line += f"{one['median_of_families']:.1%} over families, {one['median']:.1%} over rows, "
        line += f"mean {one['mean']:.1%}, largest {one['largest']:.1%}, bias {one['bias']:+.1%}"
        if one["intervals"]:
            line += f"; {one['covered']} of {one['intervals']} intervals of 80 % hold"
        yield f"{line}."
    for one in score.grouped(summary.left_out, score.category):
        line = f"{one.key[0]} rows, each left out of its fit: median error {one.errors.median:.1%}"
        yield f"{line}, largest {one.errors.largest:.1%} ({one.errors.rows} points)."


def tables(summary: Summary) -> tuple[RenderableType, ...]:
    """Families, the worst first; what is not expressed, and why; pairs."""
    return tuple(
        part
        for part in (
            _overview(summary),
            _bars(summary),
            *_families(summary),
            _refused(summary),
            _pairs([pair for pair in summary.pairs if pair.use == "check"]),
        )
        if part is not None
    )


def _table(title: str, *columns: str, words: int = 1) -> Any:
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for place, column in enumerate(columns):
        if place < words:
            table.add_column(column, overflow="fold")
        else:
            table.add_column(column, justify="right", no_wrap=True)
    return table


def _overview(summary: Summary) -> RenderableType | None:
    """How right the twin is, in a dozen lines."""
    from twin.evidence.validate.overview import COLUMNS, lines

    found = lines(summary)
    if not found:
        return None
    table = _table("How far what was measured is missed", *COLUMNS)
    for one in found:
        table.add_row(*one.cells())
    return table


def _bars(summary: Summary) -> RenderableType | None:
    told = [bar for bar in summary.bars if bar.value is not None]
    if not told:
        return None
    from twin.evidence.validate.report import limits, percent

    table = _table("Bars, of check rows", "Bar", "value", "limit", "rows", "")
    for bar in told:
        table.add_row(
            bar.name, percent(bar.value), limits(bar), str(bar.rows), "met" if bar.met else "missed"
        )
    return table


def _families(summary: Summary) -> Iterator[RenderableType]:
    from twin.evidence.validate.report import percent, signed

    by_metric: dict[str, list[Family]] = {}
    for one in summary.families():
        by_metric.setdefault(one.group.metric, []).append(one)
    for metric, own in by_metric.items():
        title = f"{metric} by family, the worst first"
        table = _table(title, "Family", "rows", "median", "mean", "largest", "bias", "in 80 %",
                       "nearest", "efficiency")  # fmt: skip
        for one in own[:_SHOWN]:
            errors = one.group.errors
            others = (one.baselines.get(name) for name in ("nearest", "efficiency"))
            table.add_row(
                _short(one.group.key), str(errors.rows), percent(errors.median),
                percent(errors.mean), percent(errors.largest), signed(errors.bias),
                f"{errors.covered}/{errors.intervals}" if errors.intervals else "-",
                *("-" if other is None else percent(other.median) for other in others),
            )  # fmt: skip
        _cut(table, len(own))
        yield table


def _cut(table: Any, rows: int) -> None:
    if rows > _SHOWN:
        table.add_row(f"and {rows - _SHOWN} more: --json and --table have all")


def _short(key: Sequence[str]) -> str:
    """A family in a line: the source by both ends of its title."""
    source, *rest = key
    title = source if len(source) <= 36 else f"{source[:18]}…{source[-16:]}"
    return f"{title}, {', '.join(rest)}"


def _refused(summary: Summary) -> RenderableType | None:
    from twin.evidence.validate.summary import reasons

    told: list[Mapping[str, Any]] = list(reasons(summary.refused))
    if not told:
        return None
    table = _table("Not expressed, by reason", "Reason", "Category", "rows", words=2)
    for one in told[:_SHOWN]:
        table.add_row(one["reason"], one["category"], str(len(one["rows"])))
    _cut(table, len(told))
    return table


def _pairs(pairs: Sequence[Pair]) -> RenderableType | None:
    """Pairs that judge; those that were named wrongly first."""
    from twin.evidence.validate.report import signed

    if not pairs:
        return None
    good = sum(pair.named for pair in pairs)
    title = f"A/B: the faster of two plans is named in {good} of {len(pairs)} pairs"
    table = _table(title, "Faster", "Slower", "Choice", "measured", "predicted", words=3)
    for pair in sorted(pairs, key=lambda pair: pair.named)[:_SHOWN]:
        choice = f"{pair.choice}: {pair.values[0]} or {pair.values[1]}"
        table.add_row(
            pair.faster.id, pair.slower.id, choice, signed(-pair.measured),
            signed(-pair.predicted) + ("" if pair.named else " !"),
        )  # fmt: skip
    _cut(table, len(pairs))
    return table
