"""`twin measured`: what happened in a real run, and how close was the prediction?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from twin.answers import runs_folder
from twin.cli.answer import answered
from twin.cli.output import Output
from twin.engine import plan
from twin.engine.trace import Trace
from twin.evidence.measured.compare import StepComparison, compare_actions, compare_steps, sentence
from twin.evidence.measured.run_folder import MeasuredRun, read, runs_in
from twin.evidence.measured.step import trace
from twin.evidence.measured.summary import RunSummary, summary
from twin.evidence.traces.answer import traced
from twin.interop.recognise import recognise
from twin.kinds.base import Fidelity
from twin.loading import load
from twin.loading.files import display
from twin.reports.breakdown import CAUSE_WORDS, CAUSES, in_seconds, mean
from twin.reports.table import Table, duration, headed, show, signed, signed_duration

VERSION = 1
"""Version of the JSON document."""
_RANKS = 16
"""Ranks that a table lists."""


def measured(
    *,
    runs: list[str],
    sets: list[str],
    step: int | None,
    fidelity: Fidelity,
    no_cache: bool,
    output: Output,
) -> None:
    """What happened in a real run, and how close was the prediction?"""

    if not runs:
        _list(output)
        return
    traces, (folder, scenario) = _asked(runs)
    if traces:
        measured_traces(traces, scenario, sets, step, output)
        return
    assert folder is not None
    run = read(folder)
    found = summary(run, step)
    happened = trace(run, found.step)
    compared: StepComparison | None = None
    if scenario is not None:
        answer = answered(scenario, sets, output, cache=not no_cache, fidelity=fidelity)
        compared = compare_steps(run, found, happened, answer.plan, answer.trace)
    elif sets:
        raise typer.BadParameter("--set changes a scenario: name one", param_hint="--set")
    output.answer(
        _document(run, found, happened, compared),
        [sentence(found, happened, compared)],
        _tables(run, found, happened, compared),
    )
    for text in compared.mismatches if compared else ():
        output.message(f"Not the same run: {text}.")


def _asked(runs: Sequence[str]) -> tuple[list[str], tuple[str | None, str | None]]:
    """The traces that are named, or the folder of a run; then the scenario."""
    traces = [path for path in runs if any("measured" in one.uses for one in recognise(Path(path)))]
    others = [path for path in runs if path not in traces]
    folder, *scenarios = [None, *others] if traces else others
    if len(scenarios) > 1:
        raise typer.BadParameter(
            f"one run or its traces, and one scenario; not {', '.join(others)}", param_hint="RUN"
        )
    return traces, (folder, scenarios[0] if scenarios else None)


def _span(low: int, high: int) -> str:

    return f"{show(low / 1e9, 's')} to {show(high / 1e9, 's')}"


def _list(output: Output) -> None:
    """The runs in the folder where trainers write by default, the newest first."""

    folder = runs_folder() / "train"

    runs = runs_in(folder)
    listed = [{"name": run.name, "path": str(run)} for run in runs]
    output.document({"version": VERSION, "folder": str(folder), "runs": listed})
    if not runs:
        output.sentence(f"No run with a timeline is in `{folder}`.")
    for run in runs:
        output.sentence(str(run))


def _document(
    run: MeasuredRun, found: RunSummary, happened: Trace, compared: StepComparison | None
) -> dict[str, Any]:

    header = run.header
    ranks = zip(happened.roles, happened.breakdown_ns, strict=True)
    return {
        "version": VERSION,
        "run": {
            "folder": str(run.folder),
            "model": header.model,
            "ranks": header.ranks,
            "microbatches": header.microbatches,
            "parallel": header.parallel,
            "created": header.created,
        },
        "steps": found.to_json(),
        "step_seconds": happened.step_ns / 1e9,
        "breakdown_ns": mean(happened.breakdown_ns, happened.ranks),
        "breakdown": in_seconds(mean(happened.breakdown_ns, happened.ranks)),
        "ranks": [{"role": role, "breakdown_ns": row} for role, row in ranks],
        "spans": happened.events,
        "actions": [asdict(action) for action in found.actions],
        "predicted": compared and compared.to_json(),
    }


def _tables(
    run: MeasuredRun, found: RunSummary, happened: Trace, compared: StepComparison | None
) -> list[Table]:

    row = mean(happened.breakdown_ns, happened.ranks)
    actions = compared.actions if compared else compare_actions(found.actions)
    tables = [_step_table(row, compared), _action_table(actions, compared)]
    return [*tables, _rank_table(happened), _run_table(run, found)]


def _step_table(row: dict[str, int], compared: StepComparison | None) -> Table:

    other = compared.predicted_row if compared else dict.fromkeys(CAUSES, 0)
    heads = ("Where the step goes", "measured", *_more(compared, "difference"))
    table = headed("", *heads)
    length = sum(row.values())
    for cause in CAUSES:
        if row[cause] or other[cause]:
            cells = [f"{duration(row[cause] / 1e9)}, {show(row[cause] / length, '%')}"]
            if compared:
                gap = (other[cause] - row[cause]) / 1e9
                cells += [duration(other[cause] / 1e9), signed_duration(gap)]
            table.add_row(CAUSE_WORDS[cause], *cells)
    return table


def _action_table(actions: Sequence[Any], compared: StepComparison | None) -> Table:

    table = headed("", "Action", "measured", "count", *_more(compared, "error"))
    for action in actions:
        known, predicted = action.measured_seconds, action.predicted_seconds
        cells = ["none" if known is None else duration(known), f"{action.count:,}"]
        if compared:
            off = "" if action.error is None else f"{signed(100 * action.error)} %"
            cells += ["none" if predicted is None else duration(predicted), off]
        table.add_row(action.name, *cells)
    return table


def _more(compared: StepComparison | None, last: str) -> list[str]:
    return ["predicted", last] if compared else []


def _rank_table(happened: Trace) -> Table:

    rows = happened.breakdown_ns
    used = [cause for cause in CAUSES if any(row[cause] for row in rows)]
    table = headed("", "Rank", *(CAUSE_WORDS[cause] for cause in used))
    for role, row in list(zip(happened.roles, rows, strict=True))[:_RANKS]:
        table.add_row(role, *(show(row[cause] / happened.step_ns, "%") for cause in used))
    if len(rows) > _RANKS:
        table.add_row(f"and {len(rows) - _RANKS:,} more")
    return table


def _run_table(run: MeasuredRun, found: RunSummary) -> Table:

    header, mesh = run.header, run.layout.mesh
    table = headed("", "Run", "", left=(0, 1))
    table.add_row("Model", header.model)
    table.add_row(
        "Layout",
        f"{header.ranks} ranks: pipeline {mesh.pipeline}, expert {mesh.expert}, data {mesh.data}, "
        f"{run.layout.schedule.kind}, {header.microbatches} micro-batches per pipeline and step",
    )
    table.add_row("Warm-up", f"{len(found.warm_up)} of {len(run.steps)} steps, not counted")
    table.add_row("Median step", duration(found.median / 1e9))
    table.add_row("Fastest, slowest", _span(found.least, found.most))
    table.add_row("Written", header.created or "unknown")
    table.add_row("Files", str(display(run.folder)))
    return table


def measured_traces(
    paths: Sequence[str],
    scenario: str | None,
    sets: Sequence[str],
    step: int | None,
    output: Output,
) -> None:
    """Where the steps of these ranks went, with what a scenario's plan says of their layers."""
    planned = plan(load(scenario, sets)) if scenario is not None else None
    found = traced(map(Path, paths), planned, step)
    for text in found.troubles:
        output.message(text)
    output.answer(found.document, found.sentences, found.tables)
