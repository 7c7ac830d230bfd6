"""`twin validate --reference`: does the twin predict what the reference trainer does here? Imported
only when it runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from twin.answers.store import runs_folder
from twin.cli.output import NOT_AS_EXPECTED, Output
from twin.evidence.loop import page, rl_loop
from twin.evidence.loop.layouts import find
from twin.evidence.loop.outcome import LayoutOutcome, LayoutScore, score
from twin.evidence.loop.rl_loop import LoopOutcome, medians
from twin.evidence.loop.run import RunOptions, predict_then_run
from twin.evidence.loop.trainer import obstacle
from twin.reports.numbers import duration, signed
from twin.reports.table import Table, headed

VERSION = 1
"""Version of the JSON document."""
NEAR = 0.15
"""Largest error of a phase of a loop that counts as near."""


@dataclass(frozen=True, slots=True)
class LayoutsRequest:
    """Layouts to run, how, what to write, and the limit in percent."""

    names: list[str]
    mode: Literal["paced", "bare", "rl"] | None
    sets: list[str]
    folder: Path | None
    steps: int | None
    rounds: int | None
    again: bool
    report: Path | None
    table: Path | None
    limit: float | None


def run(request: LayoutsRequest, output: Output) -> int:
    """Predict layouts, run them with the reference trainer, and compare; the exit code."""
    missing = "" if request.mode == "rl" else obstacle()
    if missing:
        output.message(f"Links cannot be held to a rate here ({missing}): ranks use loopback.")
    layouts = find(request.names, request.mode, request.sets, shaped=not missing)
    trained = [layout for layout in layouts if layout.mode != "rl"]
    place = (request.folder or runs_folder() / "validate").absolute()
    options = RunOptions(place, not missing, request.steps, request.rounds, request.again)
    outcomes: list[LayoutOutcome] = []
    for outcome in predict_then_run(trained, options, output.message):
        outcomes.append(outcome)
        drift = ", drifted" if outcome.drifted else ""
        seconds = outcome.predicted, outcome.measured
        output.message(f"{outcome.name}: {_compared(seconds, outcome.error)}{drift}")
    loops: list[LoopOutcome] = []
    rl = [layout for layout in layouts if layout.mode == "rl"]
    for loop in rl_loop.predict_then_run(rl, options, output.message):
        loops.append(loop)
        output.message(f"{loop.name}: an iteration {_compared(loop.seconds, loop.error)}")
    scores = score(outcomes)
    document = {
        "version": VERSION,
        "scores": [result.to_json() for result in scores],
        "layouts": [outcome.to_json() for outcome in outcomes],
        "loops": [loop.to_json() for loop in loops],
    }
    sentences = [*map(_sentence, scores), *([_loops_sentence(loops)] if loops else [])]
    rows = [row for loop in loops for row in page.loop_cells(loop)]
    tables = _table(page.COLUMNS, map(page.cells, outcomes)) + _table(page.LOOP_COLUMNS, rows)
    output.answer(document, sentences, tables)
    if request.report is not None:
        page.write(request.report, outcomes, scores, loops)
        output.message(f"Written: {request.report}")
    if request.table is not None:
        page.write_table(request.table, trained, outcomes)
        output.message(f"Written: {request.table}")
    errors = [result.median_error for result in scores]
    errors += medians(loops).values() if loops else ()
    limit = request.limit
    return NOT_AS_EXPECTED if limit is not None and any(100 * e > limit for e in errors) else 0


def _compared(seconds: tuple[float, float], error: float) -> str:
    predicted, measured = map(duration, seconds)
    return f"{predicted} predicted, {measured} measured, {signed(100 * error)} %"


def _loops_sentence(loops: Sequence[LoopOutcome]) -> str:
    errors = [abs(error) for loop in loops for error in loop.errors.values()]
    near = sum(error <= NEAR for error in errors)
    by_phase = ", ".join(f"{name} {error:.1%}" for name, error in medians(loops).items())
    return (
        f"{len(loops)} loops of reinforcement learning: median error by phase {by_phase}; "
        f"{near} of {len(errors)} phases within {NEAR:.0%}."
    )


def _sentence(result: LayoutScore) -> str:
    text = f"{result.layouts} {result.mode} layouts: median error {result.median_error:.1%}, "
    text += f"largest {result.largest_error:.1%}"
    if result.rank_correlation is not None:
        text += f", rank correlation {result.rank_correlation:.3f}"
    if result.intervals:
        text += f"; {result.hits} of {result.intervals} sealed intervals held"
    return f"{text}; {result.drifted} drifted."


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[Table]:
    """The table; none without rows."""
    table = headed("", *heads, left=range(len(heads)))
    for row in rows:
        table.add_row(*row)
    return [table] if table.rows else []
