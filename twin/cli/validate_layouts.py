"""`twin validate --reference`: does the twin predict what the reference trainer does here?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from twin.cli.output import NOT_AS_EXPECTED, Output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from twin.evidence.loop.layouts import ReferenceLayout
    from twin.evidence.loop.outcome import LayoutOutcome, LayoutScore
    from twin.evidence.loop.rl_loop import LoopOutcome
    from twin.evidence.loop.run import RunOptions

VERSION = 1
"""Version of the JSON document."""
NEAR = 0.15
"""What a phase of a loop may be missed by, to count as near."""


@dataclass(frozen=True, slots=True)
class Request:
    """Layouts to run, and how."""

    names: list[str]
    mode: Literal["paced", "bare", "rl"] | None
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
    from twin.answers import runs_folder
    from twin.evidence.loop.layouts import find
    from twin.evidence.loop.outcome import score
    from twin.evidence.loop.run import RunOptions, predict_then_run
    from twin.evidence.loop.trainer import obstacle

    missing = "" if wanted.mode == "rl" else obstacle()
    if missing:
        output.message(f"No link can be held to a rate here ({missing}): ranks use loopback.")
    every = find(wanted.names, wanted.mode, wanted.sets, shaped=not missing)
    found = [one for one in every if one.mode != "rl"]
    place = (wanted.folder or runs_folder() / "validate").absolute()
    asked = RunOptions(place, not missing, wanted.steps, wanted.rounds, wanted.again)
    outcomes: list[LayoutOutcome] = []
    for one in predict_then_run(found, asked, output.message):
        outcomes.append(one)
        output.message(_line(one))
    loops = _loops([one for one in every if one.mode == "rl"], asked, output)
    scores = score(outcomes)
    output.document(
        {
            "version": VERSION,
            "scores": [one.to_json() for one in scores],
            "layouts": [one.to_json() for one in outcomes],
            "loops": [one.to_json() for one in loops],
        }
    )
    for one in scores:
        output.sentence(_sentence(one))
    if loops:
        output.sentence(_of_loops(loops))
    if output.tables:
        output.show(*[_table(outcomes)] * bool(outcomes), *[_phases(loops)] * bool(loops))
    if files.report is not None:
        from twin.evidence.loop.page import write

        write(files.report, outcomes, scores, loops)
        output.message(f"Written: {files.report}")
    if files.table is not None:
        from twin.evidence.loop.page import write_table

        write_table(files.table, found, outcomes)
        output.message(f"Written: {files.table}")
    return NOT_AS_EXPECTED if _beyond(files.limit, scores, loops) else 0


def _loops(
    found: Sequence[ReferenceLayout], asked: RunOptions, output: Output
) -> list[LoopOutcome]:
    """Loops of reinforcement learning, predicted and run."""
    from twin.evidence.loop.rl_loop import predict_then_run

    outcomes: list[LoopOutcome] = []
    for one in predict_then_run(found, asked, output.message):
        outcomes.append(one)
        output.message(_loop_line(one))
    return outcomes


def _beyond(
    limit: float | None, scores: Sequence[LayoutScore], loops: Sequence[LoopOutcome]
) -> bool:
    """Whether a median error is above the limit, in percent: of a mode, or of a phase of loops."""
    from twin.evidence.loop.rl_loop import medians

    errors = [one.median_error for one in scores]
    errors += medians(loops).values() if loops else ()
    return limit is not None and any(100 * one > limit for one in errors)


def _line(one: LayoutOutcome) -> str:
    from twin.reports.numbers import duration, signed

    drift = ", drifted" if one.drifted else ""
    return (
        f"{one.name}: {duration(one.predicted)} predicted, {duration(one.measured)} measured, "
        f"{signed(100 * one.error)} %{drift}"
    )


def _loop_line(one: LoopOutcome) -> str:
    from twin.reports.numbers import duration, signed

    predicted, measured = map(duration, one.seconds)
    return (
        f"{one.name}: an iteration {predicted} predicted, {measured} measured, "
        f"{signed(100 * one.error)} %"
    )


def _of_loops(loops: Sequence[LoopOutcome]) -> str:
    from twin.evidence.loop.rl_loop import medians

    errors = [abs(error) for one in loops for error in one.errors.values()]
    near = sum(error <= NEAR for error in errors)
    by_phase = ", ".join(f"{name} {error:.1%}" for name, error in medians(loops).items())
    return (
        f"{len(loops)} loops of reinforcement learning: median error by phase {by_phase}; "
        f"{near} of {len(errors)} phases within {NEAR:.0%}."
    )


def _phases(loops: Sequence[LoopOutcome]) -> Table:
    from rich.table import Table

    from twin.evidence.loop.page import LOOP_COLUMNS, loop_cells

    table = Table(*LOOP_COLUMNS, box=None)
    for one in loops:
        for row in loop_cells(one):
            table.add_row(*row)
    return table


def _sentence(one: LayoutScore) -> str:
    told = (
        f"{one.layouts} {one.mode} layouts: median error {one.median_error:.1%}, largest "
        f"{one.largest_error:.1%}"
    )
    if one.rank_correlation is not None:
        told += f", rank correlation {one.rank_correlation:.3f}"
    if one.intervals:
        told += f"; {one.hits} of {one.intervals} sealed intervals held"
    return f"{told}; {one.drifted} drifted."


def _table(outcomes: list[LayoutOutcome]) -> Table:
    from rich.table import Table

    from twin.evidence.loop.page import COLUMNS, cells

    table = Table(*COLUMNS, box=None)
    for one in outcomes:
        table.add_row(*cells(one))
    return table
