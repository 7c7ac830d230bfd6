"""Published iterations of reinforcement learning beside the twin's, as a page: `python -m
twin.evidence.validate.rl_report`. Errors row by row, which of two ways is faster, and what
assumptions are worth. `--into FILE` writes them into a report, between its words."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Final

from twin.evidence.validate.answer import Answer
from twin.evidence.validate.recipes import Tree
from twin.evidence.validate.rl_steps import SECONDS, answers
from twin.evidence.validate.row import Row
from twin.evidence.validate.suite import read_suite
from twin.reports.numbers import digits

CATEGORY: Final = "rl_step"
APART: Final = 0.03
"""Closer measurements say nothing of which is faster."""
CHANGES: Final[dict[str, Tree]] = {
    "as assumed": {},
    "lengths less spread, sigma 0.5": {"sigma": 0.5},
    "lengths more spread, sigma 1.3": {"sigma": 1.3},
    "no tokens of prompts": {"prompt": 1},
    "at most 256 sequences on an engine": {"batch": 256},
}
"""What is changed in all recipes alike, in words."""
VERL: Final[dict[str, Tree]] = {
    "verl's answers half as long": {"mean": 980},
    "verl's answers twice as long": {"mean": 3920},
}


@dataclass(frozen=True, slots=True)
class Ranked:
    """Two iterations of one model on as many GPUs by the same software, done in two ways; the one
    that was measured as faster first."""

    faster: Answer
    slower: Answer

    @property
    def right(self) -> bool:
        """Whether the faster one is predicted to be faster."""
        assert self.faster.predicted is not None, "both are predicted"
        assert self.slower.predicted is not None, "both are predicted"
        return self.faster.predicted < self.slower.predicted


def way(one: Answer) -> str:
    """Synchronous, one step off, or asynchronous."""
    return one.assumed[0]


def ranked(found: Sequence[Answer]) -> tuple[Ranked, ...]:
    """All pairs of different ways; measurements less than 3 % apart make none."""
    whole = [one for one in found if one.metric == SECONDS and one.error is not None]
    return tuple(_pairs(whole))


def _pairs(whole: Sequence[Answer]) -> Iterator[Ranked]:
    for one, other in combinations(whole, 2):
        if way(one) == way(other) or _ground(one) != _ground(other):
            continue
        fast, slow = sorted((one, other), key=lambda a: a.measured or 0.0)
        assert fast.measured is not None, "asked of answers with both"
        assert slow.measured is not None, "asked of answers with both"
        if 1.0 - fast.measured / slow.measured > APART:
            yield Ranked(fast, slow)


def _ground(one: Answer) -> tuple[object, ...]:
    """What must be the same: of rows that measured two ways, the row."""
    row = one.id.partition("[")[0] if "[" in one.id else ""
    algorithm = "dapo" if "-dapo-" in one.id else ""
    return one.source, one.model, one.gpu, one.gpus, one.precision, row, algorithm


def middle(found: Sequence[Answer], metric: str = SECONDS) -> float:
    """Median of |predicted / measured - 1|."""
    return median(abs(one.error) for one in found if one.metric == metric and one.error is not None)


def page(rows: Sequence[Row], *, more: bool = True) -> Iterator[str]:
    """The report, line by line; `more`: with what assumptions are worth, which takes minutes."""
    yield from came_of(rows)
    if more:
        yield ""
        yield from worth(rows)


def came_of(rows: Sequence[Row]) -> Iterator[str]:
    """How many rows are expressed, how far each is missed, and why others are not expressed."""
    found = [one for row in rows for one in answers(row)]
    told = {one.id.partition("[")[0] for one in found if one.predicted is not None}
    pairs = ranked(found)
    right = sum(pair.right for pair in pairs)
    yield f"{len(told)} of {len(rows)} rows expressed, in {_count(found)} iterations."
    yield f"Of {len(pairs)} pairs of ways, the faster one is named in {right}."
    yield ""
    yield from _phases(found)
    yield "| Row | Way | Metric | Predicted, s | Measured, s | Error, % |"
    yield "|---|---|---|---|---|---|"
    for one in found:
        if one.predicted is not None and one.measured is not None and one.error is not None:
            ends = f"{digits(one.predicted)} | {digits(one.measured)}"
            signed = f"{100 * one.error:+.0f}"
            yield f"| {one.id} | {way(one)} | {one.metric} | {ends} | {signed} |"
    yield ""
    yield "| Not expressed | Because |"
    yield "|---|---|"
    yield from (f"| {one.id} | {one.reason} |" for one in found if one.predicted is None)


def _phases(found: Sequence[Answer]) -> Iterator[str]:
    yield "| Metric | Rows | Median error, % |"
    yield "|---|---|---|"
    for metric in dict.fromkeys(one.metric for one in found if one.error is not None):
        own = [one for one in found if one.metric == metric and one.error is not None]
        yield f"| {metric} | {len(own)} | {_percent(middle(own, metric))} |"
    yield ""


def worth(rows: Sequence[Row]) -> Iterator[str]:
    """Median error and pairs that are named under other assumptions, one changed at a time."""
    yield "| Assumption | Median error, % | Pairs named |"
    yield "|---|---|---|"
    for words, change in CHANGES.items():
        yield _line(words, [one for row in rows for one in answers(row, change)])
    for words, change in VERL.items():
        mine = [answers(row, change if "verl" in row.source else None) for row in rows]
        yield _line(words, [one for own in mine for one in own])


def _line(words: str, found: Sequence[Answer]) -> str:
    pairs = ranked(found)
    right = sum(pair.right for pair in pairs)
    return f"| {words} | {_percent(middle(found))} | {right} of {len(pairs)} |"


def _count(found: Sequence[Answer]) -> int:
    return sum(one.metric == SECONDS and one.predicted is not None for one in found)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def into(text: str, found: Mapping[str, Sequence[str]]) -> str:
    """A report with lines made anew: what stands between two marks of a name, `<!-- name -->`.
    Raises `ValueError` where a name has not two marks."""
    for name, lines in found.items():
        mark = f"<!-- {name} -->"
        parts = text.split(mark)
        if len(parts) != 3:
            raise ValueError(f"the report has {mark} {len(parts) - 1} times, not twice")
        body = "\n".join(lines)
        text = f"{parts[0]}{mark}\n\n{body}\n\n{mark}{parts[2]}"
    return text


def main() -> None:
    """Print the page on stdout, or write its lines into a report."""
    parser = argparse.ArgumentParser(
        prog="python -m twin.evidence.validate.rl_report", description=__doc__
    )
    parser.add_argument("--short", action="store_true", help="without what assumptions are worth")
    parser.add_argument("--into", type=Path, metavar="FILE", help="a report with marks")
    asked = parser.parse_args()
    rows = [row for row in read_suite() if row.category == CATEGORY]
    if asked.into is None:
        for line in page(rows, more=not asked.short):
            sys.stdout.write(f"{line}\n")
        return
    made = {"came of it": came_of} if asked.short else {"came of it": came_of, "worth": worth}
    try:  # before the minutes that rows take
        report = asked.into.read_text(encoding="utf-8")
        into(report, dict.fromkeys(made, ()))
    except (OSError, ValueError) as error:
        parser.error(f"{asked.into}: {error}")
    found = {name: tuple(part(rows)) for name, part in made.items()}
    asked.into.write_text(into(report, found), encoding="utf-8")


if __name__ == "__main__":
    main()
