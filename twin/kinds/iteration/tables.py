"""An iteration as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from twin.kinds.iteration.report import IterationReport, batch_words
from twin.kinds.iteration.types import CAUSES, PHASES, WORKS, Fit, Round
from twin.reports.expect import expectation_notes
from twin.reports.numbers import duration, gibibytes, show
from twin.reports.table import Block, Table, bar, headed, percent, warning_notes
from twin.spec.kpis import ITERATION_KPIS

_WIDTH: Final = 48
"""Characters of an iteration in the timeline."""


def report_tables(report: IterationReport) -> tuple[Block, ...]:
    """Everything that an iteration has to say after its verdict; warnings last."""
    return (
        _timeline(report.rounds[-1]),
        _phases(report),
        _idle(report),
        _kpis(report),
        memory_table(report.fits_of),
        *expectation_notes(report.expectations),
        *warning_notes(report.warnings),
    )


def _timeline(one: Round) -> Table:
    """Every phase with its GPUs, as a bar where it lies in the iteration."""
    table = headed("The last iteration", "phase", "", "GPUs", "from", "to", left=(0, 1))
    for span in one.spans:
        begin = round(_WIDTH * span.start_ns / one.length_ns)
        end = max(begin + 1, round(_WIDTH * span.end_ns / one.length_ns))
        drawn = " " * min(begin, _WIDTH - 1) + "█" * (end - begin)
        ends = (duration(ns / 1e9) for ns in (span.start_ns, span.end_ns))
        table.add_row(PHASES[span.phase], drawn, f"{span.gpus:,}", *ends)
    return table


def _phases(report: IterationReport) -> Table:
    table = headed("Phases, mean of the settled iterations", "", "takes", "share", "", left=(0, 3))
    seconds = report.kpis["iteration_seconds"] or 1.0
    for phase, took in report.phases.items():
        if took:
            share = took / seconds
            table.add_row(PHASES[phase], duration(took), percent(share), bar(share))
    table.add_section()
    table.add_row("iteration", duration(seconds), "", "")
    table.caption = batch_words(report.batch)
    return table


def _idle(report: IterationReport) -> Table:
    """What GPUs do; shares sum to one."""
    table = headed("What GPUs do", "", "share", "", left=(0, 2))
    for work, share in report.busy.items():
        if share:
            table.add_row(WORKS[work], percent(share), bar(share))
    for cause, share in report.idle.items():
        if share:
            table.add_row(f"idle: {CAUSES[cause]}", percent(share), bar(share))
    return table


def _kpis(report: IterationReport) -> Table:
    table = headed("Key figures", "", "", "80 % interval")
    for kpi in ITERATION_KPIS:
        span = report.intervals[kpi.key]
        within = f"{show(span[0], kpi.unit)} to {show(span[1], kpi.unit)}" if span else ""
        table.add_row(kpi.label, show(report.kpis[kpi.key], kpi.unit), within)
    table.add_row("Cost of 1,000 iterations", show(report.per_thousand, "USD"), "")
    return table


def memory_table(fits: Sequence[Fit]) -> Table:
    """Every phase's memory against what there is."""
    table = headed("Memory, by phase", "", "takes", "of", "")
    for one in fits:
        told = "" if one.fits else "does not fit"
        table.add_row(one.name, gibibytes(one.bytes), gibibytes(one.capacity), told)
    return table
