"""A study's result as a dated Markdown page with its pictures.

Quantities stand in code quotes: a page of documentation shows at a glance what was measured here,
and what is cited from elsewhere has a link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from textwrap import wrap

import torch

from reference.machine import inspect
from reference.studies import figure
from reference.studies.figure import Figure
from twin.errors import Problem, UsageError


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under a heading; `note` says how to read it."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What a study found. `name` is that of its module; `findings` and `open` are sentences: what
    came out, whether or not it is what was expected, and what this says nothing about."""

    name: str
    title: str
    question: str
    settings: Sequence[str]
    findings: Sequence[str]
    open: Sequence[str]
    tables: Sequence[Table]
    figures: Sequence[Figure] = field(default=())


def save(report: Report, folder: Path) -> tuple[Path, str]:
    """Write the page, and its pictures where they can be drawn; its path, and what was missing for
    pictures (empty: nothing). Raises UsageError where the folder cannot be written."""
    stem = f"{today()}-{report.name.replace('_', '-')}"
    lacking = figure.missing() if report.figures else ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pictures = (
            []
            if lacking
            else [
                figure.write(one, folder, stem if number == 0 else f"{stem}-{number + 1}")[0]
                for number, one in enumerate(report.figures)
            ]
        )
        path = folder / f"{stem}.md"
        path.write_text(text(report, machine(), pictures), encoding="utf-8")
    except OSError as error:
        message = f"cannot write to `{folder}`: {(error.strerror or str(error)).lower()}"
        raise UsageError([Problem("TW281", "--output", message, "name another folder")]) from None
    return path, lacking


def text(report: Report, where: str, pictures: Sequence[str]) -> str:
    """The page. `pictures` are the files of its figures, in order; empty: none were drawn."""
    lines = [f"# {report.title}", "", *_wrapped(report.question), ""]
    for one, file in zip(report.figures, pictures, strict=False):
        lines += [f"![{one.title}. {one.caption}]({file})", ""]
    lines += ["## What was found", "", *_items(report.findings), ""]
    lines += ["## What this does not say", "", *_items(report.open), ""]
    for table in report.tables:
        lines += [f"## {table.title}", "", *_table(table), ""]
        lines += [*_wrapped(table.note), ""] if table.note else []
    again = f"`python -m reference.studies.{report.name}`"
    settings = [f"{today()}, {where}", *report.settings, f"Again: {again}"]
    return "\n".join([*lines, "## Settings", "", *_items(settings), ""])


def machine() -> str:
    """The CPU and the software."""
    torch.set_num_threads(1)
    found = inspect(torch.device("cpu"))
    return f"{found.device} for each run; {found.software}"


def today() -> str:
    """The date, UTC."""
    return datetime.now(UTC).date().isoformat()


def percent(share: float, digits: int = 1) -> str:
    """A share as `12.3 %`."""
    return f"`{100 * share:.{digits}f} %`"


def millions(tokens: float) -> str:
    """Tokens as `1.23M`."""
    return f"{tokens / 1e6:.2f}M"


def _items(sentences: Sequence[str]) -> list[str]:
    return [line for one in sentences for line in _wrapped(f"- {one}", indent="  ")]


def _wrapped(paragraph: str, indent: str = "") -> list[str]:
    return wrap(paragraph, 118, subsequent_indent=indent, break_on_hyphens=False)


def _table(table: Table) -> list[str]:
    widths = "|".join("---" for _ in table.head)
    rows = [" | ".join(row) for row in (table.head, *table.rows)]
    return [f"| {rows[0]} |", f"|{widths}|", *(f"| {row} |" for row in rows[1:])]
