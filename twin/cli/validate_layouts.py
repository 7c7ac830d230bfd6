"""`twin validate --reference`: does the twin predict what the reference trainer does here?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from twin.cli.output import NOT_AS_EXPECTED, Output

if TYPE_CHECKING:
    from rich.table import Table

    from twin.loop import Outcome, Score

VERSION = 1
"""Version of the JSON document."""


@dataclass(frozen=True, slots=True)
class Request:
    """Layouts to run, and how."""

    names: list[str]
    mode: Literal["paced", "bare"] | None
    sets: list[str]
    folder: Path | None
    steps: int | None
    rounds: int | None
    again: bool


@dataclass(frozen=True, slots=True)
class Files:
    """What to write, and the limit in percent."""

    report: Path | None
    table: Path | None
    limit: float | None


def run(wanted: Request, files: Files, output: Output) -> int:
    """Predict layouts, run them with the reference trainer, and compare; the exit code."""
    from twin.loop import Asked, find, predict_then_run, score
    from twin.loop.start import obstacle
    from twin.runs import runs_folder

    missing = obstacle()
    if missing:
        output.message(f"No link can be held to a rate here ({missing}): ranks use loopback.")
    found = find(wanted.names, wanted.mode, wanted.sets, shaped=not missing)
    place = (wanted.folder or runs_folder() / "validate").absolute()
    asked = Asked(place, not missing, wanted.steps, wanted.rounds, wanted.again)
    outcomes: list[Outcome] = []
    for one in predict_then_run(found, asked, output.message):
        outcomes.append(one)
        output.message(_line(one))
    scores = score(outcomes)
    output.document(
        {
            "version": VERSION,
            "scores": [one.to_json() for one in scores],
            "layouts": [one.to_json() for one in outcomes],
        }
    )
    for one in scores:
        output.sentence(_sentence(one))
    if output.tables:
        output.show(_table(outcomes))
    if files.report is not None:
        from twin.loop.page import write

        write(files.report, outcomes, scores)
        output.message(f"Written: {files.report}")
    if files.table is not None:
        from twin.loop.page import write_table

        write_table(files.table, found, outcomes)
        output.message(f"Written: {files.table}")
    limit = files.limit
    beyond = limit is not None and any(100 * one.median_error > limit for one in scores)
    return NOT_AS_EXPECTED if beyond else 0


def _line(one: Outcome) -> str:
    from twin.report.numbers import duration, signed

    drift = ", drifted" if one.drifted else ""
    return (
        f"{one.name}: {duration(one.predicted)} predicted, {duration(one.measured)} measured, "
        f"{signed(100 * one.error)} %{drift}"
    )


def _sentence(one: Score) -> str:
    told = (
        f"{one.layouts} {one.mode} layouts: median error {one.median_error:.1%}, largest "
        f"{one.largest_error:.1%}"
    )
    if one.rank_correlation is not None:
        told += f", rank correlation {one.rank_correlation:.3f}"
    if one.intervals:
        told += f"; {one.hits} of {one.intervals} sealed intervals held"
    return f"{told}; {one.drifted} drifted."


def _table(outcomes: list[Outcome]) -> Table:
    from rich.table import Table

    from twin.loop.page import COLUMNS, cells

    table = Table(*COLUMNS, box=None)
    for one in outcomes:
        table.add_row(*cells(one))
    return table
