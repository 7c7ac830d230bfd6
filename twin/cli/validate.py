"""`twin validate`: predicts and scores published rows, or scores the shipped answers; with
`--reference`, predicts layouts and runs them with the reference trainer here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal

import typer

from twin.answers.run_store import runs_folder
from twin.cli.answer import progress_bar
from twin.cli.output import NOT_AS_EXPECTED, Output
from twin.cli.verbs import verbs
from twin.errors import Problem, UsageError
from twin.evidence.loop import page, rl_loop
from twin.evidence.loop.between_steps import HostOutcome, measure_between_steps
from twin.evidence.loop.layouts import drawn, find
from twin.evidence.loop.machine_profile import MachineProfile
from twin.evidence.loop.outcome import LayoutOutcome, LayoutScore
from twin.evidence.loop.outcome import score as layout_scores
from twin.evidence.loop.rl_loop import LoopOutcome, medians
from twin.evidence.loop.run import RunOptions, predict_then_run
from twin.evidence.loop.trainer import obstacle
from twin.evidence.validate import intervals, shipped_answers
from twin.evidence.validate import report as report_page
from twin.evidence.validate import score as scores
from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.leave_one_out import leave_one_out
from twin.evidence.validate.source_left_out import leave_sources_out
from twin.evidence.validate.suite import WHY, PublishedRow, Unreadable, read_suite
from twin.evidence.validate.summary import (
    COLUMNS,
    LEFT_OUT_COLUMNS,
    FamilyErrors,
    Summary,
    lines,
    reasons,
    source_left_out,
    summarize,
)
from twin.evidence.validate.summary import sentence as summary_sentence
from twin.evidence.validate.validate import at_once
from twin.evidence.validate.validate import validate as suite_answers
from twin.loading import scenario_hash
from twin.reports.interval import Known, shipped
from twin.reports.table import Table, duration, headed, signed

_VERSION: Final = 1
"""Version of the JSON documents."""
_OF_SUITES: Final = (
    "suites", "only", "processes", "write", "leave_one_out", "residuals", "answers", "shipped",
)  # fmt: skip
_OF_LAYOUTS: Final = (
    "layouts",
    "mode",
    "sets",
    "steps",
    "rounds",
    "folder",
    "again",
    "drawn",
    "measure",
    "follow",
)
_NOT_MEASURING: Final = ("follow", "mode", "steps", "rounds", "again", "drawn", "report", "table")
_NOT_DRAWING: Final = ("layouts", "sets")
"""Options of layouts that are run as a whole."""
_PREDICTING: Final = ("suites", "processes", "write", "leave_one_out", "residuals", "answers")
"""Options that need rows to be predicted."""
_HOST_BOUND: Final = "bare-host-64-experts"
"""The layout whose steps the machine is measured between by default."""
_HOST_COLUMNS: Final = (
    "Layout", "Rounds", "Measured", "Predicted", "Without host", "Error", "Error without host",
    "Errors of rounds", "Probe spread", "Core",
)  # fmt: skip
_SHOWN: Final = 24
"""Lines of a table before it is cut."""
_SOURCE: Final = 36
"""Characters of a source's title in a table."""
_NEAR: Final = 0.15
"""Largest error of a phase of a loop that counts as near."""
Cells = Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class ValidateRequest:
    """The options of the command line; the limit is in percent."""

    layouts: list[str]
    suites: list[Path]
    only: str | None
    processes: int | None
    leave_one_out: bool
    write: Path | None
    residuals: Path | None
    answers: Path | None
    shipped: bool
    reference: bool
    mode: Literal["paced", "bare", "rl"] | None
    sets: list[str]
    steps: int | None
    rounds: int | None
    folder: Path | None
    again: bool
    drawn: int | None
    measure: int | None
    follow: bool
    report: Path | None
    table: Path | None
    limit: float | None


def validate(*, output: Output, **options: Any) -> int:
    """Predict what was measured, and score it."""
    request = ValidateRequest(**options)
    if request.reference:
        _refuse(request, _OF_SUITES, "is for published rows; --reference runs layouts here")
        if request.drawn:
            loops = ("mode",) if request.mode == "rl" else ()
            written = (*_NOT_DRAWING, *loops)
            _refuse(request, written, "is for layouts that were written, without --random")
        if not request.measure:
            return _layouts(request, output)
        _refuse(request, _NOT_MEASURING, "is for whole runs of layouts, without --measure")
        return _between_steps(request, output)
    _refuse(request, _OF_LAYOUTS, "is for layouts that run here: add --reference")
    if request.shipped:
        _refuse(request, _PREDICTING, "needs predictions, and --shipped makes none")
    return _suites(request, output)


def _refuse(request: ValidateRequest, names: Sequence[str], reason: str) -> None:
    """Refuse options that do not belong to the question."""
    for name in names:
        if getattr(request, name):
            told = verbs()["validate"]["parameters"][name]
            option = (told.get("option") or told["metavar"]).split()[0]
            raise typer.BadParameter(f"{option} {reason}", param_hint=option)


def _suites(request: ValidateRequest, output: Output) -> int:
    """Answer, and return the exit code."""
    rows = () if request.shipped else _rows(request)
    summary = _shipped(request, output) if request.shipped else _predicted(rows, request, output)
    answers = [answer.to_json() for answer in summary.answers]
    document = {"version": _VERSION, "rows": answers, "summary": summary.to_json()}
    output.answer(document, _sentences(summary), _suite_tables(summary))
    for written in _write(request, rows, summary):
        output.message(f"Written: {written}")
    beyond = request.limit is not None and _worst_median(summary) > request.limit / 100
    return NOT_AS_EXPECTED if beyond else 0


def _predicted(rows: Sequence[PublishedRow], request: ValidateRequest, output: Output) -> Summary:
    """The results of rows, predicted now."""
    answers = _answers(rows, request, output)
    file, processes = request.residuals, request.processes or at_once()
    residuals = shipped() if file is None else _residuals(rows, answers, file, processes)
    left_out = leave_one_out(rows) if request.leave_one_out else ()
    return summarize(rows, answers, residuals, left_out)


def _shipped(request: ValidateRequest, output: Output) -> Summary:
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
    output.sentence(summary_sentence(summary))
    return summary


def _nothing(request: ValidateRequest, count: int, what: str) -> UsageError:
    option = "--shipped" if request.shipped else "--suite"
    message = f"no {what} of {count} has `{request.only}` in its id, source, model or GPU"
    message = message if count else f"there is no {what}"
    return UsageError([Problem("TW381", "--only" if count else option, message)])


def _rows(request: ValidateRequest) -> tuple[PublishedRow, ...]:
    """The selected rows of all suites. Raises `UsageError` where there are none."""
    suites: list[Path | None] = [*request.suites] or [None]
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
    rows: Sequence[PublishedRow], request: ValidateRequest, output: Output
) -> tuple[RowResult, ...]:
    answers: list[RowResult] = []
    with progress_bar(output, f"{len(rows)} rows") as progress:
        for done, own in enumerate(suite_answers(rows, request.processes or at_once()), 1):
            answers += own
            if progress is not None:
                progress(done / len(rows))
    return tuple(answers)


def _residuals(
    rows: Sequence[PublishedRow], answers: Sequence[RowResult], file: Path, processes: int
) -> Known:
    known = Known(intervals.in_order(intervals.residuals(answers)), shipped().blind)
    known = leave_sources_out(rows, known, processes)
    intervals.write(file, known.residuals)
    return known


def _write(
    request: ValidateRequest, rows: Sequence[PublishedRow], summary: Summary
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
        report_page.write(request.report, summary)
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
    for group in scores.grouped(summary.left_out, scores.category):
        errors = group.errors
        line = f"{group.key[0]} rows, each left out of its fit: median error {errors.median:.1%}"
        yield f"{line}, largest {errors.largest:.1%} ({errors.rows} points)."


def _suite_tables(summary: Summary) -> tuple[Table, ...]:
    """The overview, limits, families from the worst on, reasons of refusals, and pairs."""
    found = [
        _cut_table("Errors by kind of row", COLUMNS, [line.cells() for line in lines(summary)]),
        _cut_table(
            "Limits, of check rows",
            report_page.LIMIT_COLUMNS,
            list(report_page.limit_rows(summary)),
        ),
    ]
    for title, all_uses in (("check rows", False), ("all rows", True)):
        cells = [group.cells() for group in source_left_out(summary, all_uses=all_uses)]
        found.append(_cut_table(f"Steps, each source left out: {title}", LEFT_OUT_COLUMNS, cells))
    for metric, families in _by_metric(summary).items():
        header = ("Family", *report_page.FAMILY_COLUMNS)
        cells = [(_short(f.group.key), *report_page.family_cells(f)) for f in families]
        found.append(_cut_table(f"{metric} by family, the worst first", header, cells))
    refused = [
        (r["reason"], WHY[r["why"]], r["category"], str(len(r["rows"])))
        for r in reasons(summary.refused)
    ]
    header = ("Reason", "is", "Category", "rows")
    found.append(_cut_table("Not expressed, by reason", header, refused, words=3))
    judging = [pair for pair in summary.pairs if pair.use == "check"]
    good = sum(pair.named for pair in judging)
    title = f"A/B: the faster of two plans is named in {good} of {len(judging)} pairs"
    found.append(
        _cut_table(title, report_page.PAIR_COLUMNS, list(report_page.pair_rows(judging)), words=4)
    )
    return tuple(table for table in found if table.rows)


def _cut_table(title: str, header: Sequence[str], rows: Cells, words: int = 1) -> Table:
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


def _layouts(request: ValidateRequest, output: Output) -> int:
    """Predict layouts, run them with the reference trainer, and compare; the exit code."""
    missing = "" if request.mode == "rl" else obstacle()
    if missing:
        output.message(f"Links cannot be held to a rate here ({missing}): ranks use loopback.")
    layouts = (
        drawn(
            request.drawn,
            int(f"{datetime.now(UTC):%Y%m%d}"),
            "bare" if request.mode == "bare" else "paced",
        )
        if request.drawn
        else find(request.layouts, request.mode, request.sets, shaped=not missing)
    )
    if request.follow:
        layouts = [layout for layout in layouts if layout.mode != "paced"]
    trained = [layout for layout in layouts if layout.mode != "rl"]
    place = (request.folder or runs_folder() / "validate").absolute()
    options = RunOptions(place, not missing, request.steps, request.rounds, request.again)
    rl = [layout for layout in layouts if layout.mode == "rl"]
    bare = [layout for layout in trained if layout.mode == "bare"]
    outcomes: list[LayoutOutcome] = []
    loops: list[LoopOutcome] = []
    followed = [*bare, *rl]
    profile = MachineProfile(place / "machine", followed, output.message, shaped=not missing)
    with profile if request.follow else nullcontext() as machine:
        for outcome in predict_then_run(trained, options, output.message, machine):
            outcomes.append(outcome)
            _tell(outcome, output)
        for loop in rl_loop.predict_then_run(rl, options, output.message, machine):
            loops.append(loop)
            output.message(f"{loop.name}: an iteration {_compared(loop.seconds, loop.error)}")
    scored = layout_scores(outcomes)
    document = {
        "version": _VERSION,
        "scores": [result.to_json() for result in scored],
        "layouts": [outcome.to_json() for outcome in outcomes],
        "loops": [loop.to_json() for loop in loops],
    }
    unheld = [outcome.name for outcome in outcomes if not outcome.held]
    sentences = [*map(_sentence, scored), *([_loops_sentence(loops)] if loops else [])]
    if unheld:
        sentences.append(f"Not scored, since passes overran every pace: {', '.join(unheld)}.")
    rows = [row for loop in loops for row in page.loop_cells(loop)]
    tables = _table(page.COLUMNS, map(page.cells, outcomes)) + _table(page.LOOP_COLUMNS, rows)
    output.answer(document, sentences, tables)
    if request.report is not None:
        page.write(request.report, outcomes, scored, loops)
        output.message(f"Written: {request.report}")
    if request.table is not None:
        page.write_table(request.table, trained, outcomes)
        output.message(f"Written: {request.table}")
    errors = [result.median_error for result in scored]
    errors += medians(loops).values() if loops else ()
    limit = request.limit
    beyond = limit is not None and (bool(unheld) or any(100 * e > limit for e in errors))
    return NOT_AS_EXPECTED if beyond else 0


def _tell(outcome: LayoutOutcome, output: Output) -> None:
    drift = ", drifted" if outcome.drifted else ""
    drift += "" if outcome.held else ", no measurement: passes overran every pace"
    seconds = outcome.predicted, outcome.measured
    output.message(f"{outcome.name}: {_compared(seconds, outcome.error)}{drift}")


def _between_steps(request: ValidateRequest, output: Output) -> int:
    """Measure this machine between the steps of layouts, and compare; the exit code."""
    place = (request.folder or runs_folder() / "between-steps").absolute()
    outcomes: list[HostOutcome] = []
    for layout in find(request.layouts or [_HOST_BOUND], sets=request.sets):
        output.message(f"{layout.name}: about {request.measure} s")
        digest = scenario_hash(layout.scenario)[:8]
        folder = place / f"{layout.name}-{digest}-{datetime.now(UTC):%Y%m%dT%H%M%S}"
        outcomes.append(measure_between_steps(layout, request.sets, request.measure or 0, folder))
    document = {"version": _VERSION, "layouts": [outcome.to_json() for outcome in outcomes]}
    sentences = map(_host_sentence, outcomes)
    tables = _table(_HOST_COLUMNS, map(_host_cells, outcomes))
    output.answer(document, list(sentences), tables)
    limit = request.limit
    beyond = limit is not None and any(100 * abs(o.typical.error) > limit for o in outcomes)
    return NOT_AS_EXPECTED if beyond else 0


def _host_sentence(outcome: HostOutcome) -> str:
    typical, state = outcome.typical, "quiet" if outcome.quiet else "NOT QUIET"
    text = _compared((typical.predicted, typical.measured), typical.error)
    text += f"; without the host {signed(100 * outcome.error_without_host)} %"
    text += f"; {state}: a fixed probe varied by {outcome.unrest:.0%}, "
    text += f"the process had {typical.core:.0%} of a core"
    return f"{outcome.name}: {text}{'' if outcome.quiet else ', so the errors mean little'}."


def _host_cells(outcome: HostOutcome) -> tuple[str, ...]:
    typical = outcome.typical
    seconds = (typical.measured, typical.predicted, typical.without_host)
    errors = (typical.error, outcome.error_without_host, *outcome.errors)
    off = [f"{signed(100 * error)} %" for error in errors]
    count, spread = str(len(outcome.rounds)), f"{off[2]} to {off[3]}"
    state = (f"{outcome.unrest:.0%}", f"{typical.core:.0%}")
    return (outcome.name, count, *map(duration, seconds), *off[:2], spread, *state)


def _compared(seconds: tuple[float, float], error: float) -> str:
    predicted, measured = map(duration, seconds)
    return f"{predicted} predicted, {measured} measured, {signed(100 * error)} %"


def _loops_sentence(loops: Sequence[LoopOutcome]) -> str:
    errors = [abs(error) for loop in loops for error in loop.errors.values()]
    near = sum(error <= _NEAR for error in errors)
    by_phase = ", ".join(f"{name} {error:.1%}" for name, error in medians(loops).items())
    return (
        f"{len(loops)} loops of reinforcement learning: median error by phase {by_phase}; "
        f"{near} of {len(errors)} phases within {_NEAR:.0%}."
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
