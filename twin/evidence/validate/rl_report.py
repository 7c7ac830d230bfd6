"""Published iterations of reinforcement learning beside the twin's, as a page: `python -m
twin.evidence.validate.rl_report`. Errors row by row, which of two ways is faster, and what
assumptions are worth. `--into FILE` writes them into a report, between its words."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Final

from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.rl_steps import SECONDS, answers
from twin.evidence.validate.stacks import Tree
from twin.evidence.validate.suite import PublishedRow, read_suite
from twin.reports.table import digits, markdown

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

    faster: RowResult
    slower: RowResult

    @property
    def right(self) -> bool:
        """Whether the faster one is predicted to be faster."""
        assert self.faster.predicted is not None, "both are predicted"
        assert self.slower.predicted is not None, "both are predicted"
        return self.faster.predicted < self.slower.predicted


def mode(one: RowResult) -> str:
    """Synchronous, one step off, or asynchronous."""
    return one.assumed[0]


def ranked(found: Sequence[RowResult]) -> tuple[Ranked, ...]:
    """All pairs of different ways; measurements less than 3 % apart make none."""
    whole = [one for one in found if one.metric == SECONDS and one.error is not None]
    return tuple(_pairs(whole))


def _pairs(whole: Sequence[RowResult]) -> Iterator[Ranked]:
    for one, other in combinations(whole, 2):
        if mode(one) == mode(other) or _ground(one) != _ground(other):
            continue
        fast, slow = sorted((one, other), key=lambda a: a.measured or 0.0)
        assert fast.measured is not None, "options of answers with both"
        assert slow.measured is not None, "options of answers with both"
        if 1.0 - fast.measured / slow.measured > APART:
            yield Ranked(fast, slow)


def _ground(one: RowResult) -> tuple[object, ...]:
    """What must be the same: of rows that measured two ways, the row."""
    row = one.id.partition("[")[0] if "[" in one.id else ""
    algorithm = "dapo" if "-dapo-" in one.id else ""
    return one.source, one.model, one.gpu, one.gpus, one.precision, row, algorithm


def middle(found: Sequence[RowResult], metric: str = SECONDS) -> float:
    """Median of |predicted / measured - 1|."""
    return median(abs(one.error) for one in found if one.metric == metric and one.error is not None)


def page(rows: Sequence[PublishedRow], *, more: bool = True) -> Iterator[str]:
    """The report, line by line; `more`: with the effect of assumptions, which takes minutes."""
    yield from results(rows)
    if more:
        yield ""
        yield from effects(rows)


def results(rows: Sequence[PublishedRow]) -> Iterator[str]:
    """How many rows are expressed, the error of each, and why others are not expressed."""
    found = [answer for row in rows for answer in answers(row)]
    expressed = {answer.id.partition("[")[0] for answer in found if answer.predicted is not None}
    count = sum(answer.metric == SECONDS and answer.predicted is not None for answer in found)
    pairs = ranked(found)
    right = sum(pair.right for pair in pairs)
    yield f"{len(expressed)} of {len(rows)} rows expressed, in {count} iterations."
    yield f"Of {len(pairs)} pairs of modes, the faster mode is named in {right}."
    yield ""
    metrics = Counter(answer.metric for answer in found if answer.error is not None)
    medians = ((name, str(n), _percent(middle(found, name))) for name, n in metrics.items())
    yield from markdown(("Metric", "Rows", "Median error, %"), medians)
    yield ""
    errors = (
        (a.id, mode(a), a.metric, digits(a.predicted), digits(a.measured), f"{100 * a.error:+.0f}")
        for a in found
        if a.predicted is not None and a.measured is not None and a.error is not None
    )
    yield from markdown(
        ("Row", "Mode", "Metric", "Predicted, s", "Measured, s", "Error, %"), errors
    )
    yield ""
    refused = ((answer.id, answer.reason) for answer in found if answer.predicted is None)
    yield from markdown(("Not expressed", "Because"), refused)


def effects(rows: Sequence[PublishedRow]) -> Iterator[str]:
    """Median error and correctly named pairs, with one assumption changed at a time."""
    header = ("Assumption", "Median error, %", "Pairs named")
    return markdown(header, _effects(rows))


def _effects(rows: Sequence[PublishedRow]) -> Iterator[tuple[str, ...]]:
    for words, change in (*CHANGES.items(), *VERL.items()):
        changed = [row for row in rows if words in CHANGES or "verl" in row.source]
        found = [a for row in rows for a in answers(row, change if row in changed else None)]
        pairs = ranked(found)
        right = sum(pair.right for pair in pairs)
        yield words, _percent(middle(found)), f"{right} of {len(pairs)}"


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
    options = parser.parse_args()
    rows = [row for row in read_suite() if row.category == CATEGORY]
    if options.into is None:
        for line in page(rows, more=not options.short):
            sys.stdout.write(f"{line}\n")
        return
    made = {"came of it": results} if options.short else {"came of it": results, "worth": effects}
    try:  # before the minutes that rows take
        report = options.into.read_text(encoding="utf-8")
        into(report, dict.fromkeys(made, ()))
    except (OSError, ValueError) as error:
        parser.error(f"{options.into}: {error}")
    found = {name: tuple(part(rows)) for name, part in made.items()}
    options.into.write_text(into(report, found), encoding="utf-8")


if __name__ == "__main__":
    main()
