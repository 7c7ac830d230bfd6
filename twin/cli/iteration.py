"""What `twin run`, `check` and `compare` say of an iteration of reinforcement learning."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from rich.table import Table

from twin.cli.answer import Asked, command, say_failed, say_unmeasured
from twin.cli.columns import headed
from twin.cli.output import DOES_NOT_FIT, Output
from twin.cli.side_by_side import refuse_limits, say
from twin.cli.tables import bar, expectation_list, percent, warning_list
from twin.kinds import iteration as rl
from twin.reports.expect import FITS, judge
from twin.reports.numbers import duration, gibibytes, show
from twin.reports.summary import Run
from twin.spec.kpis import ITERATION_KPIS

if TYPE_CHECKING:
    from twin.kinds.iteration import Fit, IterationReport, Round
    from twin.reports.limits import Limit
    from twin.scenario import Scenario

VERSION: Final = 1
"""Version of the JSON document of a check."""
_WIDTH: Final = 48
"""Characters of an iteration in the timeline."""


def answer(scenario: Scenario, path: str, sets: Sequence[str]) -> IterationReport:
    """The report of an iteration, played anew."""
    begin = time.perf_counter()
    plan = rl.plan(scenario)
    trace = rl.simulate(plan)
    return rl.report(plan, trace, Run(time.perf_counter() - begin, command(path, sets)))


def run(scenario: Scenario, asked: Asked, output: Output) -> int:
    """Print the answer; the exit code."""
    report = answer(scenario, asked.path, asked.sets)
    output.document(report.to_json())
    output.sentence(rl.verdict(report))
    failed = say_failed(report.expectations, output)
    unmeasured = say_unmeasured(report.unmeasured, output, strict=asked.strict)
    if output.tables:
        output.show(
            _timeline(report.rounds[-1]),
            _phases(report),
            _idle(report),
            _kpis(report),
            _memory(report.fits_of),
            *expectation_list(report.expectations),
            warning_list(report.warnings),
        )
    return (failed if report.fits else DOES_NOT_FIT) or unmeasured


def check(scenario: Scenario, output: Output) -> int:
    """Print whether an iteration is possible, and fits; the exit code."""
    from twin.loading import scenario_hash

    plan = rl.plan(scenario)
    fits = all(one.fits for one in plan.fits)
    judged = judge(scenario.expect, {FITS: fits})
    output.document(
        {
            "version": VERSION,
            "kind": "rl_iteration",
            "name": scenario.name,
            "hash": scenario_hash(scenario),
            "valid": True,
            "fits": fits,
            "memory": [asdict(one) | {"fits": one.fits} for one in plan.fits],
            "expectations": [asdict(one) for one in judged],
            "warnings": [asdict(one) for one in plan.warnings],
        }
    )
    output.sentence(rl.fitting(plan.fits))
    failed = say_failed(judged, output)
    if output.tables:
        output.show(_memory(plan.fits), warning_list(plan.warnings))
    return failed if fits else DOES_NOT_FIT


def compare(
    scenarios: Sequence[tuple[Scenario, str]],
    sets: Sequence[str],
    limits: Sequence[Limit],
    output: Output,
) -> int:
    """Print what differs between iterations of scenarios with their paths; the exit code."""
    from twin.kinds.iteration.compare import compare as side_by_side

    refuse_limits(limits, scenarios[0][0].kind, ITERATION_KPIS)
    reports = [answer(one, path, sets) for one, path in scenarios]
    return say(side_by_side(reports), limits, output)


def _timeline(one: Round) -> Table:
    """Every phase with its GPUs, as a bar where it lies in the iteration."""
    table = headed("The last iteration", "phase", "", "GPUs", "from", "to", left=(0, 1))
    for span in one.spans:
        begin = round(_WIDTH * span.start_ns / one.length_ns)
        end = max(begin + 1, round(_WIDTH * span.end_ns / one.length_ns))
        drawn = " " * min(begin, _WIDTH - 1) + "█" * (end - begin)
        ends = (duration(ns / 1e9) for ns in (span.start_ns, span.end_ns))
        table.add_row(rl.PHASES[span.phase], drawn, f"{span.gpus:,}", *ends)
    return table


def _phases(report: IterationReport) -> Table:
    table = headed("Phases, mean of the settled iterations", "", "takes", "share", "", left=(0, 3))
    seconds = report.kpis["iteration_seconds"] or 1.0
    for phase, took in report.phases.items():
        if took:
            share = took / seconds
            table.add_row(rl.PHASES[phase], duration(took), percent(share), bar(share))
    table.add_section()
    table.add_row("iteration", duration(seconds), "", "")
    table.caption, table.caption_justify = rl.batch_words(report.batch), "left"
    return table


def _idle(report: IterationReport) -> Table:
    """What GPUs do; shares sum to one."""
    table = headed("What GPUs do", "", "share", "", left=(0, 2))
    for work, share in report.busy.items():
        if share:
            table.add_row(rl.WORKS[work], percent(share), bar(share))
    for cause, share in report.idle.items():
        if share:
            table.add_row(f"nothing: {rl.CAUSES[cause]}", percent(share), bar(share))
    return table


def _kpis(report: IterationReport) -> Table:
    table = headed("Key figures", "", "", "80 % interval")
    for kpi in ITERATION_KPIS:
        span = report.intervals[kpi.key]
        within = f"{show(span[0], kpi.unit)} to {show(span[1], kpi.unit)}" if span else ""
        table.add_row(kpi.label, show(report.kpis[kpi.key], kpi.unit), within)
    table.add_row("Cost of 1,000 iterations", show(report.per_thousand, "USD"), "")
    return table


def _memory(fits: Sequence[Fit]) -> Table:
    table = headed("Memory, by phase", "", "takes", "of", "")
    for one in fits:
        told = "" if one.fits else "does not fit"
        table.add_row(one.name, gibibytes(one.bytes), gibibytes(one.capacity), told)
    return table
