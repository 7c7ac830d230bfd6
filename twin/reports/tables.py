"""The answer to a step as tables: units everywhere, three significant digits, bars that also read
without colour."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

from twin.planning.types import Plan
from twin.reports.breakdown import CAUSE_WORDS
from twin.reports.cost import Bill
from twin.reports.data_tables import data_tables
from twin.reports.expect import expectation_notes
from twin.reports.goodput_tables import goodput_tables
from twin.reports.kpis import KPIS
from twin.reports.numbers import decimal_bytes, duration, gibibytes, show
from twin.reports.report import MemoryReport, Report
from twin.reports.table import Block, Table, bar, headed, headless, percent, warning_notes
from twin.spec.kpis import OF_A_SITE, OF_FAILURES

if TYPE_CHECKING:  # a study takes no part in a single run
    from twin.explore.study import Suggestion

_WORTH_SPLITTING: Final = 0.001
"""Share of the step from which on an exposed cause is split into ramp and steady state."""
_PARTS: Final = {
    "rent": "rented GPUs",
    "nodes": "nodes",
    "network": "network",
    "facility": "facility",
    "operations": "operations",
    "energy": "energy",
    "gpus": "GPUs",
    "site": "cooling and losses",
}
"""Parts of the cost and of the energy, in words."""


def report_tables(report: Report) -> tuple[Block, ...]:
    """Everything that a run has to say after its verdict; warnings last."""
    return (
        kpi_table(report),
        *expectation_notes(report.expectations),
        *cost_tables(report.bill),
        *goodput_tables(report.goodput),
        *data_tables(report.generated),
        breakdown_table(report),
        memory_table(report.memory),
        *host_table(report.memory),
        link_table(report),
        *warning_notes(report.warnings),
    )


def plan_tables(plan: Plan, memory: MemoryReport) -> tuple[Block, ...]:
    """The layout of a plan, and its memory by category and by stage."""
    return (layout_table(plan), memory_table(memory), *host_table(memory), stages_table(memory))


def nearest_table(found: Sequence[Suggestion]) -> Table:
    """Plans that fit, nearest first, with their times by the fast path."""
    table = headed("The nearest plans that fit", "change", "to spare", "step", "run", "cost")
    told = [kpi for kpi in KPIS if kpi.key in ("step_seconds", "days", "cost_usd")]
    for one in found:
        figures = [show(one.kpis[kpi.key], kpi.unit) for kpi in told]
        table.add_row(one.words, gibibytes(one.headroom_bytes), *figures)
    table.caption = "times are fast estimates, which leave out that transfers share links"
    return table


def kpi_table(report: Report) -> Table:
    """Every key figure with its unit; those of energy and of failures where they are known."""
    table = headless("Key figures", "left", "right")
    for kpi in KPIS:
        value = report.kpis[kpi.key]
        if value is not None or kpi.key not in OF_A_SITE | OF_FAILURES:
            table.add_row(kpi.label, show(value, kpi.unit))
    bound = duration(report.speed_of_light_seconds)
    table.add_row("Kernels of the busiest stage at peak rates", bound)
    table.add_row("Share of the step extrapolated", percent(report.extrapolated_fraction))
    return table


def breakdown_table(report: Report) -> Table:
    """Where the step goes, mean over ranks; the rows sum to the step, those further in to the row
    above them."""
    table = headless("Where the step goes (mean over ranks)", "left", "right", "right", "left")

    def row(words: str, ns: int) -> None:
        share = ns / report.step_ns
        table.add_row(words, duration(ns / 1e9), percent(share), bar(share))

    for cause, ns in report.breakdown_ns.items():
        if not ns:
            continue
        row(CAUSE_WORDS[cause], ns)
        parts = report.exposure.get(cause)
        if parts is not None and ns >= _WORTH_SPLITTING * report.step_ns:
            row("  while the pipeline fills and drains", parts.ramp_ns)
            row("  in the steady state", parts.steady_ns)
    table.add_section()
    table.add_row("step", duration(report.step_ns / 1e9), percent(1.0), "")
    return table


def memory_table(memory: MemoryReport) -> Table:
    """The fullest GPU's bytes by category, then the reserve, against the capacity."""
    title = f"Memory of the fullest GPU (stage {memory.peak.stage}, {memory.peak.peak_moment})"
    table = headless(title, "left", "right", "right", "left")
    for name, size in memory.peak.categories.items():
        if size:
            _memory_row(table, name.replace("_", " "), size, memory.capacity)
    for name, size in memory.reserve.items():
        _memory_row(table, f"reserve: {name.replace('_', ' ')}", size, memory.capacity)
    table.add_section()
    used = memory.peak.peak_bytes + sum(memory.reserve.values())
    _memory_row(table, "used", used, memory.capacity)
    left = memory.capacity - used
    label = "free" if left >= 0 else "too much"
    table.add_row(label, gibibytes(abs(left)), percent(abs(left) / memory.capacity), "")
    _memory_row(table, "capacity", memory.capacity, memory.capacity)
    return table


def host_table(memory: MemoryReport) -> list[Table]:
    """The fullest node's host memory by category, and what the device would keep without it;
    nothing where nothing is offloaded."""
    capacity = memory.host_capacity
    if not memory.host or capacity is None:
        return []
    table = headless("Host memory of the fullest node", "left", "right", "right", "left")
    for name, size in memory.host.items():
        _memory_row(table, name.replace("_", " "), size, capacity)
    table.add_section()
    left = capacity - memory.host_per_node
    label = "free" if left >= 0 else "too much"
    table.add_row(label, gibibytes(abs(left)), percent(abs(left) / capacity), "")
    _memory_row(table, "capacity", capacity, capacity)
    most = max(memory.stages, key=lambda stage: stage.kept_bytes)
    table.caption = (
        f"activations kept before offload, at most: {gibibytes(most.kept_bytes)} on a GPU of "
        f"stage {most.stage}"
    )
    return [table]


def layout_table(plan: Plan) -> Table:
    """How the GPUs are cut, in the words of the scenario."""
    mesh, parallel = plan.mesh, plan.scenario.parallel
    table = headless(f"Layout of {mesh.ranks} GPUs", "left", "right")
    grid = (mesh.tensor, mesh.context, mesh.data, mesh.pipeline)
    table.add_row("tensor x context x data x pipeline", " x ".join(map(str, grid)))
    if plan.scenario.model.moe is not None:
        experts = (mesh.expert_tensor, mesh.expert, mesh.expert_data)
        row = "expert tensor x expert x replicas, in a stage"
        table.add_row(row, " x ".join(map(str, experts)))
    table.add_row("chunks per stage", str(parallel.virtual))
    table.add_row("micro-batches per step", f"{plan.microbatches:,}")
    table.add_row("layers by chunk", _counts(plan))
    once = decimal_bytes(plan.memory.unique_bytes)
    table.add_row("parameters and gradients, each once", once)
    return table


def stages_table(memory: MemoryReport) -> Table:
    """Every stage's peak against the budget that the reserve leaves for tensors; with what a GPU
    keeps on the host, and of activations anywhere, where there is offload."""
    title = f"Peak by stage, of the {gibibytes(memory.budget)} that the reserve leaves"
    away = ("kept", "on host") if memory.host else ()
    headers = ("stage", "peak", "of budget", "", "in flight", *away, "moment")
    table = headed(title, *headers, left=(3, len(headers) - 1))
    for stage in memory.stages:
        share = stage.peak_bytes / memory.budget
        over = " over" if share > 1 else ""
        moment, alive = stage.peak_moment, str(stage.in_flight)
        away = (gibibytes(stage.kept_bytes), gibibytes(sum(stage.host.values())))
        table.add_row(
            str(stage.stage),
            gibibytes(stage.peak_bytes),
            percent(share),
            bar(share) + over,
            alive,
            *(away if memory.host else ()),
            moment,
        )
    return table


def link_table(report: Report) -> Table:
    """What each class of link carries and how busy it is, mean of the roles."""
    table = headless("Links (mean of the roles)", "left", "right", "right", "left")
    for name, link in report.links.items():
        table.add_row(name, gibibytes(link.bytes), percent(link.use), bar(link.use))
    return table


def _memory_row(table: Table, label: str, size: float, capacity: float) -> None:
    share = size / capacity
    table.add_row(label, gibibytes(size), percent(share), bar(share))


def _counts(plan: Plan) -> str:
    """Transformer layers of every chunk, equal neighbours as `3 x 4`."""
    sizes = [sum(layer.kind in ("dense", "moe") for layer in c.layers) for c in plan.chunks]
    runs = [(size, len(list(group))) for size, group in groupby(sizes)]
    return ", ".join(f"{length} x {size}" if length > 1 else str(size) for size, length in runs)


def cost_tables(bill: Bill) -> list[Table]:
    """Dollars by part where there are several, then watts and energy by part where known."""
    found: list[Table] = []
    if bill.cost is not None and len(bill.cost) > 1:
        table = headless("What it costs", "left", "right")
        for name, dollars in bill.cost.items():
            if dollars:
                table.add_row(_PARTS[name], show(dollars, "USD"))
        found.append(table)
    if bill.watts is not None and bill.energy_kwh is not None:
        table = headless("Power per GPU, energy of the run", "left", "right", "right")
        for name, watts in bill.watts.parts.items():
            kwh = bill.energy_kwh * watts / bill.watts.total if watts else 0.0
            table.add_row(_PARTS[name], show(watts, "W"), show(kwh, "kWh"))
        table.add_section()
        table.add_row("at the meter", show(bill.watts.total, "W"), show(bill.energy_kwh, "kWh"))
        found.append(table)
    return found
