"""`twin validate --suite`: predicts and scores published rows; `--shipped`: scores the shipped
answers. Imported only when it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from twin.cli.answer import progress_bar
from twin.cli.output import NOT_AS_EXPECTED, Output
from twin.errors import Problem, UsageError
from twin.evidence.validate import intervals, report, score, shipped_answers
from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.leave_one_out import leave_one_out
from twin.evidence.validate.suite import PublishedRow, Unreadable, read_suite
from twin.evidence.validate.summary import (
    COLUMNS,
    FamilyErrors,
    Summary,
    lines,
    reasons,
    sentence,
    summarize,
)
from twin.evidence.validate.validate import at_once, validate
from twin.reports.interval import Known, shipped
from twin.reports.table import Table, headed

VERSION: Final = 1
"""Version of the JSON document."""
PREDICTING: Final = (
    "--suite", "--processes", "--write", "--leave-one-out", "--residuals", "--answers",
)  # fmt: skip
"""Options that need rows to be predicted."""
_SHOWN: Final = 24
"""Lines of a table before it is cut."""
_SOURCE: Final = 36
"""Characters of a source's title in a table."""
Cells = Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class SuiteRequest:
    """The options of the command line; the limit in percent, and the files to write."""

    suites: tuple[Path, ...]
    only: str | None
    processes: int | None
    leave_one_out: bool
    limit: float | None
    shipped: bool
    report: Path | None
    table: Path | None
    write: Path | None
    residuals: Path | None
    answers: Path | None


def run(request: SuiteRequest, output: Output) -> int:
    """Answer, and return the exit code."""
    rows = () if request.shipped else _rows(request)
    summary = _shipped(request, output) if request.shipped else _predicted(rows, request, output)
    answers = [answer.to_json() for answer in summary.answers]
    document = {"version": VERSION, "rows": answers, "summary": summary.to_json()}
    output.answer(document, _sentences(summary), tables(summary))
    for written in _write(request, rows, summary):
        output.message(f"Written: {written}")
    beyond = request.limit is not None and _worst_median(summary) > request.limit / 100
    return NOT_AS_EXPECTED if beyond else 0


def _predicted(rows: Sequence[PublishedRow], request: SuiteRequest, output: Output) -> Summary:
    """The results of rows, predicted now."""
    answers = _answers(rows, request, output)
    file = request.residuals
    residuals = shipped() if file is None else _residuals(rows, answers, file)
    left_out = leave_one_out(rows) if request.leave_one_out else ()
    return summarize(rows, answers, residuals, left_out)


def _shipped(request: SuiteRequest, output: Output) -> Summary:
    """The results of the shipped answers. Raises `UsageError` where there are none."""
    found = shipped_answers.shipped()
    if found is None:
        raise _nothing(request, 0, "answer")
    summary = found.summary
    if request.only is not None:
        text = request.only.lower()
        summary = summary.part(lambda row: _has((row.id, row.source, row.model, row.gpu), text))
    if not summary.answers:
        raise _nothing(request, len(found.summary.answers), "answer")
    if found.is_older:
        output.message(
            f"Predicted on {found.day} by twin {found.twin}: code, catalog or rows have changed "
            "since. Without --shipped they are predicted anew."
        )
    output.sentence(sentence(summary))
    return summary


def _nothing(request: SuiteRequest, count: int, what: str) -> UsageError:
    option = "--shipped" if request.shipped else "--suite"
    message = f"no {what} of {count} has `{request.only}` in its id, source, model or GPU"
    message = message if count else f"there is no {what}"
    return UsageError([Problem("TW381", "--only" if count else option, message)])


def _rows(request: SuiteRequest) -> tuple[PublishedRow, ...]:
    """The selected rows of all suites. Raises `UsageError` where there are none."""
    suites: tuple[Path | None, ...] = request.suites or (None,)
    rows = tuple(row for suite in suites for row in read_suite(suite))
    text = request.only
    wanted = tuple(row for row in rows if text is None or _mentions(row, text.lower()))
    if not wanted:
        raise _nothing(request, len(rows), "row")
    return wanted


def _mentions(row: PublishedRow, text: str) -> bool:
    words = [row.id]
    with suppress(Unreadable):
        words += [row.source, row.model, row.gpu]
    return _has(words, text)


def _has(words: Iterable[str], text: str) -> bool:
    return any(text in word.lower() for word in words)


def _answers(
    rows: Sequence[PublishedRow], request: SuiteRequest, output: Output
) -> tuple[RowResult, ...]:
    answers: list[RowResult] = []
    with progress_bar(output, f"{len(rows)} rows") as progress:
        for done, own in enumerate(validate(rows, request.processes or at_once()), 1):
            answers += own
            if progress is not None:
                progress(done / len(rows))
    return tuple(answers)


def _residuals(rows: Sequence[PublishedRow], answers: Sequence[RowResult], file: Path) -> Known:
    known = intervals.known(intervals.residuals(rows, answers))
    intervals.write(file, known)
    return known


def _write(
    request: SuiteRequest, rows: Sequence[PublishedRow], summary: Summary
) -> Iterator[Path | str]:
    """Write the requested files; yields the name of each."""
    if request.residuals is not None:
        yield request.residuals
    if request.table is not None:
        shipped_answers.write_table(request.table, summary)
        yield request.table
    if request.write is not None:
        count = shipped_answers.write_scenarios(request.write, rows, summary.answers)
        yield f"{count} scenarios in {request.write}"
    if request.answers is not None:
        shipped_answers.write(request.answers, shipped_answers.now(summary))
        yield request.answers
    if request.report is not None:
        report.write(request.report, summary)
        yield request.report


def _worst_median(summary: Summary) -> float:
    """The largest median of the families' medians in any metric."""
    own = _by_metric(summary).values()
    return max((median(f.group.errors.median for f in families) for families in own), default=0.0)


def _by_metric(summary: Summary) -> dict[str, list[FamilyErrors]]:
    found: dict[str, list[FamilyErrors]] = {}
    for family in summary.families():
        found.setdefault(family.group.metric, []).append(family)
    return found


def _sentences(summary: Summary) -> Iterator[str]:
    """The answer in words: one line per metric of rows that judge."""
    refused = len({answer.id for answer in summary.refused})
    yield f"{summary.rows} rows; {refused} of them are not expressed."
    for metric, errors in summary.to_json()["metrics"]["check"].items():
        line = (
            f"{metric}, {errors['rows']} check rows of {errors['families']} families: median error "
            f"{errors['median_of_families']:.1%} over families, {errors['median']:.1%} over rows, "
            f"mean {errors['mean']:.1%}, largest {errors['largest']:.1%}, "
            f"bias {errors['bias']:+.1%}"
        )
        if errors["intervals"]:
            line += f"; {errors['covered']} of {errors['intervals']} intervals of 80 % hold"
        yield f"{line}."
    for group in score.grouped(summary.left_out, score.category):
        errors = group.errors
        line = f"{group.key[0]} rows, each left out of its fit: median error {errors.median:.1%}"
        yield f"{line}, largest {errors.largest:.1%} ({errors.rows} points)."


def tables(summary: Summary) -> tuple[Table, ...]:
    """The overview, limits, families from the worst on, reasons of refusals, and pairs."""
    found = [
        _table("Errors by kind of row", COLUMNS, [line.cells() for line in lines(summary)]),
        _table("Limits, of check rows", report.LIMIT_COLUMNS, list(report.limit_rows(summary))),
    ]
    for metric, families in _by_metric(summary).items():
        header = ("Family", *report.FAMILY_COLUMNS)
        cells = [(_short(f.group.key), *report.family_cells(f)) for f in families]
        found.append(_table(f"{metric} by family, the worst first", header, cells))
    refused = [(r["reason"], r["category"], str(len(r["rows"]))) for r in reasons(summary.refused)]
    header = ("Reason", "Category", "rows")
    found.append(_table("Not expressed, by reason", header, refused, words=2))
    judging = [pair for pair in summary.pairs if pair.use == "check"]
    good = sum(pair.named for pair in judging)
    title = f"A/B: the faster of two plans is named in {good} of {len(judging)} pairs"
    found.append(_table(title, report.PAIR_COLUMNS, list(report.pair_rows(judging)), words=4))
    return tuple(table for table in found if table.rows)


def _table(title: str, header: Sequence[str], rows: Cells, words: int = 1) -> Table:
    """A table whose first columns are words; long ones are cut."""
    table = headed(title, *header, left=range(words))
    for row in rows[:_SHOWN]:
        table.add_row(*row)
    if len(rows) > _SHOWN:
        table.add_row(f"and {len(rows) - _SHOWN} more: --json and --table have all")
    return table


def _short(key: Sequence[str]) -> str:
    """A family in a line: the source by both ends of its title."""
    source, *rest = key
    title = source if len(source) <= _SOURCE else f"{source[:18]}…{source[-16:]}"
    return f"{title}, {', '.join(rest)}"
