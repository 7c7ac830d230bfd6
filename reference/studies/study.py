"""What every study has: a command, a page that a template makes of what was found, and the ways in
which pages show numbers.

A study NAME is a module with a function that conducts it, and a template `pages/NAME.md`.
Quantities stand in code quotes: a page of documentation shows at a glance what was measured here,
and what is cited from elsewhere has a link.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from math import exp, inf, log, sqrt
from pathlib import Path
from statistics import mean, stdev
from textwrap import wrap
from typing import Any, Final

import torch
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from reference.ending import exit_code, say
from reference.evaluate.statistics import student
from reference.machine import inspect
from reference.studies import figure
from reference.studies.figure import Figure
from twin.errors import Problem, UsageError

_STOPPED: Final = "stopped; runs that had ended are kept, and the same command goes on"
_WIDTH: Final = 118


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where outcomes are kept, how many runs go on at once, and who is told."""

    cache: Path
    jobs: int
    tell: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Page:
    """What a study found, for its template to say, and its pictures. `name` is that of its module
    and template."""

    name: str
    facts: Mapping[str, Any]
    figures: Sequence[Figure] = ()

    def text(self, where: str, pictures: Sequence[str] = ()) -> str:
        """The page. `pictures` are the files of its figures, in order; empty: none were drawn."""
        drawn = list(zip(self.figures, pictures, strict=False))
        frame = {"name": self.name, "today": today(), "where": where, "pictures": drawn}
        return _filled(_TEMPLATES.get_template(f"{self.name}.md").render(frame, **self.facts))


Conduct = Callable[[bool, Workplace], Page]
"""What is found, quick or not."""


def main(conduct: Conduct, summary: str, arguments: Sequence[str] | None = None) -> int:
    """Conduct a study and write its page; the exit code."""

    def command() -> int:
        quick, output, place = parse(summary, arguments)
        path, lacking = save(conduct(quick, place), output)
        if lacking:
            say(f"no pictures: install {lacking}; the same command draws them, without training")
        say(f"the report is in `{path}`")
        return 0

    return exit_code(command, _STOPPED)


def parse(summary: str, arguments: Sequence[str] | None) -> tuple[bool, Path, Workplace]:
    """The command line: whether it is quick, the folder of the page, and where runs are made.
    Raises UsageError TW282 for an impossible number of jobs."""
    parser = argparse.ArgumentParser(description=summary)
    cores = os.cpu_count() or 1
    for flag, kind, default, text in (
        ("--output", Path, Path("runs/reports"), "folder of the report"),
        ("--jobs", int, cores, "parallel runs, one thread each [default: all cores]"),
        ("--cache", Path, Path("runs/studies"), "folder of finished runs, which are reused"),
    ):
        parser.add_argument(flag, type=kind, default=default, help=text)
    parser.add_argument("--quick", action="store_true", help="use tiny runs, to show that it works")
    options = parser.parse_args(arguments)
    if not 1 <= options.jobs <= 1024:
        message = f"{options.jobs} parallel runs are impossible"
        raise UsageError(
            [Problem("TW282", "--jobs", message, f"1 to {cores}, this machine's cores")]
        )
    return options.quick, options.output, Workplace(options.cache, options.jobs, say)


def save(page: Page, folder: Path) -> tuple[Path, str]:
    """Write the page, and its pictures where they can be drawn; its path, and what was missing for
    pictures (empty: nothing). Raises UsageError where the folder cannot be written."""
    stem = f"{today()}-{page.name.replace('_', '-')}"
    lacking = figure.missing() if page.figures else ""
    path = folder / f"{stem}.md"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pictures = [
            figure.write(one, folder, f"{stem}-{number}" if number > 1 else stem)[0]
            for number, one in enumerate(page.figures if not lacking else (), start=1)
        ]
        path.write_text(page.text(_machine(), pictures), encoding="utf-8")
    except OSError as error:
        message = f"cannot write to `{folder}`: {(error.strerror or str(error)).lower()}"
        raise UsageError([Problem("TW281", "--output", message, "name another folder")]) from None
    return path, lacking


def today() -> str:
    """The date, UTC."""
    return datetime.now(UTC).date().isoformat()


def _machine() -> str:
    torch.set_num_threads(1)
    found = inspect(torch.device("cpu"))
    return f"{found.device} for each run; {found.software}"


def _filled(text: str) -> str:
    """Paragraphs and items in lines of 118 characters; tables, headings and pictures stay."""
    parts: list[str] = [""]
    for line in map(str.strip, text.splitlines()):
        begins = not line or line.startswith(("- ", "|", "#", "!"))
        if begins or not parts[-1] or parts[-1].startswith(("|", "#", "!")):
            parts += [line] if line or parts[-1] else []
        else:
            parts[-1] += f" {line}"
    lines: list[str] = []
    for part in parts[1:]:
        if not part or part.startswith(("|", "#", "!")):
            lines.append(part)
        else:
            words, indent = " ".join(part.split()), "  " if part.startswith("- ") else ""
            lines += wrap(words, _WIDTH, subsequent_indent=indent, break_on_hyphens=False)
    return "\n".join(lines).rstrip() + "\n"


def percent(share: float, digits: int = 1) -> str:
    """A share as `12.3 %`."""
    return f"`{100 * share:.{digits}f} %`"


def points(values: Sequence[float]) -> str:
    """The mean of shares by seed as percentage points, with its interval."""
    middle, low, high = (100 * value for value in interval(values))
    return f"`{middle:+.1f} points` [`{low:+.1f}`, `{high:+.1f}`]"


def millions(tokens: float) -> str:
    """Tokens as `1.23M`."""
    return f"{tokens / 1e6:.2f}M"


def spread(values: Sequence[float]) -> float:
    """Standard deviation over seeds (n - 1); 0 for a single one."""
    return stdev(values) if len(values) > 1 else 0.0


def between(values: Sequence[float], form: str) -> str:
    """The lowest to the highest, as text.

    >>> between([0.521, 0.61], ".2f")
    '0.52 to 0.61'
    """
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, and the ends of its 95 % interval over seeds by Student's t; without an interval where
    there is one value.

    >>> [round(end, 3) for end in interval([0.5, 0.6, 0.7])]
    [0.6, 0.352, 0.848]
    """
    if len(values) < 2:
        return values[0], -inf, inf
    half = student(len(values) - 1) * stdev(values) / sqrt(len(values))
    return mean(values), mean(values) - half, mean(values) + half


def seeds_of(runs: Iterable[tuple[Hashable, int]]) -> tuple[int, ...]:
    """The seeds of runs by name and seed, in order."""
    return tuple(sorted({seed for _, seed in runs}))


def reached(curve: Sequence[tuple[float, float]], level: float) -> float | None:
    """The first place at which the loss of a curve of (tokens, loss) is at most `level`; None where
    the curve stays above. Between two points it lies on the straight line over the logarithm of the
    place, since losses fall about evenly with it. A curve that begins at or below the level gives
    its first place, an upper bound.

    >>> reached([(100, 3.0), (400, 2.0)], 2.5)
    200.0
    """
    if curve and curve[0][1] <= level:
        return float(curve[0][0])
    for (start, above), (end, below) in pairwise(curve):
        if below <= level:
            part = (above - level) / (above - below)
            return round(exp(log(start) + part * (log(end) - log(start))), 6)
    return None


def head(*columns: str | Iterable[str]) -> str:
    """The first two lines of a table."""
    names = [name for part in columns for name in ([part] if isinstance(part, str) else part)]
    return f"| {' | '.join(names)} |\n|{'|'.join('---' for _ in names)}|"


def seed_columns(seeds: Iterable[int], of: str = "") -> list[str]:
    """The heads of numbers by seed and their mean; `of` stands before each seed's.

    >>> seed_columns([0, 1])
    ['seed 0', 'seed 1', 'mean']
    """
    return [*(f"{of}seed {seed}" for seed in seeds), "mean"]


def cells(values: Sequence[float], form: str = ".4f") -> str:
    """Numbers by seed, then their mean, as the cells of a table."""
    return " | ".join(format(value, form) for value in (*values, mean(values)))


_TEMPLATES: Final = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("pages")),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,
)
_TEMPLATES.filters.update(f=format, percent=percent, points=points, millions=millions)
_TEMPLATES.globals.update(
    {
        "mean": mean,
        "spread": spread,
        "between": between,
        "head": head,
        "cells": cells,
        "seed_columns": seed_columns,
        "zip": zip,
    }
)
