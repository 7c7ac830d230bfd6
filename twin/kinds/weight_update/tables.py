"""A weight update as tables.

The same update by other pipelines: two stages or three, broadcast or point to point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from twin.errors import ScenarioError
from twin.kinds.weight_update.lower import lower
from twin.kinds.weight_update.plan import plan
from twin.kinds.weight_update.report import WORDS, UpdateReport, decimal
from twin.kinds.weight_update.simulate import simulate
from twin.kinds.weight_update.types import UpdatePlan
from twin.reports.numbers import changed, duration, gibibytes, show
from twin.reports.table import Block, Table, bar, headed, percent, warning_notes
from twin.scenario import UpdateScenario
from twin.spec.kpis import UPDATE_KPIS

_METHODS: Final = ("broadcast", "p2p")
_STAGES: Final = ("two", "three")


@dataclass(frozen=True, slots=True)
class Alternative:
    """One pipeline: how long it takes, whether its buffers fit, and how many times longer it takes
    than the one that was asked about, less one (None: this is it)."""

    method: str
    stages: str
    seconds: float
    change: float | None
    fits: bool


def alternatives(scenario: UpdateScenario, report: UpdateReport) -> tuple[Alternative, ...]:
    """Every pipeline that the event allows, the asked one among them."""
    found: list[Alternative] = []
    for method in _METHODS:
        for stages in _STAGES:
            if (method, stages) == (report.travel.method, report.travel.stages):
                seconds = report.update_ns / 1e9
                found.append(Alternative(method, stages, seconds, None, report.fits))
            elif one := _other(scenario, method, stages, report.update_ns / 1e9):
                found.append(one)
    return tuple(found)


def _other(scenario: UpdateScenario, method: str, stages: str, now: float) -> Alternative | None:
    """Another pipeline; None where there is none."""
    update = scenario.weight_update.model_copy(update={"method": method, "stages": stages})
    try:
        made = plan(scenario.model_copy(update={"weight_update": update}))
    except ScenarioError:
        return None
    seconds = simulate(lower(made)).update_ns / 1e9
    return Alternative(method, stages, seconds, seconds / now - 1, made.memory.fits)


def report_tables(report: UpdateReport, others: Sequence[Alternative]) -> tuple[Block, ...]:
    """Everything that an update has to say after its verdict; warnings last."""
    return (
        _stage_table(report),
        *([_alternative_table(others)] if others else []),
        _kpi_table(report),
        _link_table(report),
        *warning_notes(report.warnings),
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


def travel_table(plan: UpdatePlan) -> Table:
    """What an update moves, and what it takes on the device and the host."""
    table = headed("What travels", "", "")
    table.add_row("Checkpoint", f"{decimal(plan.payload)} in {plan.tensors:,} tensors")
    table.add_row("Buckets, in rounds", f"{len(plan.buckets):,}, {plan.rounds}")
    table.add_row("Buffers", f"{plan.buffers.count} of {gibibytes(plan.buffers.bytes)}")
    for name, size in plan.memory.categories.items():
        table.add_row(f"Device: {name}", gibibytes(size))
    table.add_row("Device: has for tensors", gibibytes(plan.memory.budget))
    table.add_row("Host: shares of the checkpoint", gibibytes(plan.memory.host_bytes))
    return table
