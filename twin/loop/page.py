"""The rows of a validation, and a page of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final

from twin.errors import Problem, UsageError
from twin.loop.outcome import Outcome
from twin.loop.score import Score
from twin.report.breakdown import CAUSE_WORDS, CAUSES
from twin.report.numbers import duration, signed

COLUMNS: Final = (
    "Layout",
    "ranks",
    "links",
    "predicted",
    "measured",
    "error",
    "bubble",
    "exposed",
    "kept",
    "overran",
    "drift",
)


def cells(one: Outcome) -> tuple[str, ...]:
    """A layout's row: step; bubble and exposed communication, predicted and measured; what waits
    for a backward, likewise."""
    bubble, exposed = (f"{100 * share:.1f}" for share in one.bubble), map(duration, one.exposed)
    return (
        one.name,
        str(one.ranks),
        one.links,
        duration(one.predicted),
        duration(one.measured),
        f"{signed(100 * one.error)} %",
        f"{' / '.join(bubble)} %",
        " / ".join(exposed),
        f"{100 * one.overruns:.0f} %",
        f"{signed(100 * one.drift)} %" + (" !" if one.drifted else ""),
    )


def write(path: Path, outcomes: Sequence[Outcome], scores: Sequence[Score]) -> None:
    """Write the page. Raises UsageError where the file cannot be written."""
    try:
        path.write_text("\n".join(_lines(outcomes, scores)) + "\n", encoding="utf-8")
    except OSError as error:
        message = f"`{path}` cannot be written: {error.strerror}"
        raise UsageError([Problem("TW063", "", message)]) from None
