"""What the verbs say of a weight update: `twin run`, `twin check` and `twin compare`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table

from twin.cli.answer import command, say_failed, say_unmeasured
from twin.cli.columns import headed
from twin.cli.output import DOES_NOT_FIT, Output
from twin.cli.side_by_side import refuse_limits, say
from twin.cli.tables import bar, percent, warning_list
from twin.kinds import weight_update
from twin.kinds.weight_update.alternatives import Alternative, alternatives
from twin.kinds.weight_update.bound import WORDS
from twin.kinds.weight_update.verdict import decimal
from twin.reports.expect import FITS, Judgement, judge
from twin.reports.numbers import changed, duration, gibibytes, show
from twin.reports.summary import Run
from twin.scenario import UpdateScenario
from twin.spec.kpis import UPDATE_KPIS

if TYPE_CHECKING:
    from twin.kinds.weight_update import UpdatePlan, UpdateReport
    from twin.reports.limits import Limit

VERSION = 1
"""Version of the JSON document of a check."""


def answer(scenario: UpdateScenario, path: str, sets: Sequence[str]) -> UpdateReport:
    """The report of an update; what was played in a tenth of a second is not stored."""
    begin = time.perf_counter()
    plan = weight_update.plan(scenario)
    trace = weight_update.simulate(weight_update.lower(plan))
    return weight_update.report(plan, trace, Run(time.perf_counter() - begin, command(path, sets)))


def run(
    scenario: UpdateScenario, path: str, sets: Sequence[str], output: Output, *, strict: bool
) -> int:
    """Print the answer; the exit code."""
    report = answer(scenario, path, sets)
    others = alternatives(scenario, report) if output.json or output.tables else ()
    output.document(report.to_json() | {"alternatives": [asdict(one) for one in others]})
    output.sentence(weight_update.verdict(report))
    failed = say_failed(report.expectations, output)
    unmeasured = say_unmeasured(report.unmeasured, output, strict=strict)
    if output.tables:
        output.show(*_report_tables(report, others))
    return (failed if report.fits else DOES_NOT_FIT) or unmeasured


def check(scenario: UpdateScenario, output: Output) -> int:
    """Print whether an update is possible, and fits; the exit code."""
    plan = weight_update.plan(scenario)
    known = {FITS: plan.memory.fits, "peak_device_bytes": plan.memory.device_bytes}
    known["peak_host_bytes_per_node"] = plan.memory.host_bytes
    judged = judge(scenario.expect, known)
    output.document(_check_document(plan, judged))
    output.sentence(weight_update.fitting(plan.memory))
    failed = say_failed(judged, output)
    if output.tables:
        output.show(_travel_table(plan), warning_list(plan.warnings))
    return failed if plan.memory.fits else DOES_NOT_FIT


def compare(reports: Sequence[UpdateReport], limits: Sequence[Limit], output: Output) -> int:
    """Print what differs between updates; the exit code."""
    refuse_limits(limits, "a weight update", UPDATE_KPIS)
    return say(weight_update.compare(reports), limits, output)


def _check_document(plan: UpdatePlan, judged: Sequence[Judgement]) -> dict[str, Any]:
    from twin.loading import scenario_hash

    memory = plan.memory
    return {
        "version": VERSION,
        "kind": "weight_update",
        "name": plan.scenario.name,
        "hash": scenario_hash(plan.scenario),
        "valid": True,
        "fits": memory.fits,
        "memory": asdict(memory) | {"device_bytes": memory.device_bytes, "budget": memory.budget},
        "checkpoint_bytes": plan.payload,
        "buckets": len(plan.buckets),
        "rounds": plan.rounds,
        "buffer_bytes": plan.buffers.bytes,
        "expectations": [asdict(one) for one in judged],
        "warnings": [asdict(warning) for warning in plan.warnings],
    }


def _report_tables(
    report: UpdateReport, others: Sequence[Alternative]
) -> tuple[RenderableType, ...]:
    return (
        _stage_table(report),
        *([_alternative_table(others)] if others else []),
        _kpi_table(report),
        _link_table(report),
        warning_list(report.warnings),
    )


def _stage_table(report: UpdateReport) -> Table:
    """Where the time goes; the rows of the first column of times sum to the update."""
    table = headed("Where the update goes", "stage", "takes", "share", "", "at work", left=(0, 3))
    for stage, ns in report.breakdown_ns.items():
        use = report.stages[stage]
        if use.busy_seconds:
            share = ns / report.update_ns
            table.add_row(
                WORDS[stage],
                duration(ns / 1e9),
                percent(share),
                bar(share),
                duration(use.busy_seconds),
            )
    table.add_section()
    table.add_row("update", duration(report.update_ns / 1e9), percent(1.0), "", "")
    return table


def _alternative_table(others: Sequence[Alternative]) -> Table:
    """The same update by other pipelines."""
    table = headed("By other pipelines", "method", "stages", "update", "change", "")
    for one in others:
        change = "" if one.change is None else changed(one.seconds, one.change, "s")
        told = "links' bound, unmeasured" if one.method == "p2p" else ""
        told = told if one.fits else "does not fit"
        table.add_row(one.method, one.stages, duration(one.seconds), change, told)
    return table


def _kpi_table(report: UpdateReport) -> Table:
    table = headed("Key figures", "", "")
    for kpi in UPDATE_KPIS:
        table.add_row(kpi.label, show(report.kpis[kpi.key], kpi.unit))
    travel = report.travel
    table.add_row("Checkpoint", decimal(travel.checkpoint_bytes))
    table.add_row("Tensors", f"{travel.tensors:,}")
    table.add_row("Buckets, in rounds", f"{travel.buckets:,}, {travel.rounds}")
    table.add_row("Buffers", f"{travel.buffers} of {gibibytes(travel.buffer_bytes)}")
    table.add_row("Each GPU receives", gibibytes(travel.received_bytes))
    table.add_row("Each GPU keeps", gibibytes(travel.held_bytes))
    return table


def _link_table(report: UpdateReport) -> Table:
    table = headed("Links (mean of all of a class)", "", "bytes", "use", "", left=(0, 3))
    for link, use in report.links.items():
        table.add_row(link, gibibytes(use.bytes), percent(use.use), bar(use.use))
    return table


def _travel_table(plan: UpdatePlan) -> Table:
    table = headed("What travels", "", "")
    table.add_row("Checkpoint", f"{decimal(plan.payload)} in {plan.tensors:,} tensors")
    table.add_row("Buckets, in rounds", f"{len(plan.buckets):,}, {plan.rounds}")
    table.add_row("Buffers", f"{plan.buffers.count} of {gibibytes(plan.buffers.bytes)}")
    for name, size in plan.memory.categories.items():
        table.add_row(f"Device: {name}", gibibytes(size))
    table.add_row("Device: has for tensors", gibibytes(plan.memory.budget))
    table.add_row("Host: shares of the checkpoint", gibibytes(plan.memory.host_bytes))
    return table
