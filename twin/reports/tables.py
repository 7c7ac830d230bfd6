"""The answer to a step as tables: units everywhere, three significant digits, bars that also read
without colour.

What failures leave of a run's time, as tables.

Data that is generated before a run, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

from twin.arch.ops import BLOCKS
from twin.loading.files import table
from twin.planning.types import DeviceMemory, Plan
from twin.reports.breakdown import CAUSE_WORDS
from twin.reports.cost import Bill
from twin.reports.head import expectation_notes
from twin.reports.report import MemoryReport, Report
from twin.reports.table import (
    IN_BRACKETS,
    Block,
    Table,
    bar,
    count,
    decimal_bytes,
    digits,
    duration,
    gibibytes,
    headed,
    headless,
    percent,
    show,
    warning_notes,
)
from twin.reports.uneven import uneven_tables
from twin.spec.kpis import KPIS, OF_A_SITE, OF_FAILURES

if TYPE_CHECKING:
    from twin.answers.nearest import Suggestion
    from twin.data.types import JobRun, RequestGroupRun
    from twin.goodput import Goodput
    from twin.reports.cost import Generated


_CAUSES: Final = 8
"""Causes that are shown before the rest is added up."""


def goodput_tables(goodput: Goodput | None) -> list[Table]:
    """Where the time goes, what interrupts the run, and how it saves; nothing where the scenario
    says nothing of failures."""
    if goodput is None:
        return []
    return [_losses(goodput), _interruptions(goodput), _saves(goodput)]


def _losses(goodput: Goodput) -> Table:
    from twin.goodput import LOSSES  # noqa: PLC0415  it plays failures, which few steps have

    days = digits(goodput.wall_ns / 86400e9)
    title = f"With failures: {days} days, mean of {goodput.seeds} simulated runs"
    table = headed(title, "", "time", "share", "closed form")
    parts = {"progress": (goodput.useful_ns, goodput.expected_fraction)}
    for name, ns in goodput.losses_ns.items():
        if ns:
            parts[LOSSES[name]] = ns, goodput.expected_losses[name]
    for words, (ns, share) in parts.items():
        table.add_row(words, duration(ns / 1e9), percent(ns / goodput.wall_ns), percent(share))
    table.add_section()
    table.add_row("all", duration(goodput.wall_ns / 1e9), percent(1.0), "")
    low, high = (percent(share) for share in goodput.interval)
    table.caption = f"progress: {low} to {high} in 80 % of the runs; {_largest(goodput)}"
    return table


def _largest(goodput: Goodput) -> str:
    """What an interruption costs, and what it may cost."""
    largest = goodput.largest
    if largest.seconds is None or largest.mean_seconds is None:
        return "nothing interrupts them"
    return (
        f"an interruption costs {duration(largest.mean_seconds)}, and may cost "
        f"{duration(largest.seconds)} where {digits(100 * largest.target)} % are kept"
    )


def _interruptions(goodput: Goodput) -> Table:
    table = headed("Interruptions of the job", "", "a day")
    causes = list(goodput.per_day.items())
    for name, rate in causes[:_CAUSES]:
        table.add_row(name, digits(rate))
    rest = causes[_CAUSES:]
    if rest:
        table.add_row(f"{len(rest)} further causes", digits(sum(rate for _, rate in rest)))
    table.add_section()
    table.add_row("all", digits(sum(goodput.per_day.values())))
    table.caption = f"rates: {goodput.source}"
    return table


def _saves(goodput: Goodput) -> Table:
    saves = goodput.saves
    table = headless("Checkpoints and restarts", "left", "right")
    best = {
        "best by Young": saves.young_seconds,
        "best by Daly, first order": saves.daly_first_seconds,
        "best by Daly": saves.daly_seconds,
        "best by simulation": saves.simulated_seconds,
    }
    every = "never" if saves.every_seconds is None else duration(saves.every_seconds)
    table.add_row(f"between two saves ({saves.every})", every)
    for words, seconds in best.items():
        if seconds is not None:
            table.add_row(f"  {words}", duration(seconds))
    table.add_row("bytes of a checkpoint", decimal_bytes(saves.bytes))
    table.add_row("a save blocks training for", duration(saves.blocked_seconds))
    table.add_row("a save is durable after", duration(saves.durable_seconds))
    table.add_row("a restart after a failure", duration(goodput.restart_seconds))
    table.add_row("a restart that was planned", duration(goodput.planned_restart_seconds))
    return table


def data_tables(found: Generated | None) -> list[Table]:
    """What is generated, with which requests, and which numbers move it most; nothing where nothing
    is."""
    if found is None:
        return []
    title = "Numbers that move the days of generation most"
    table = headed(title, "field", "days at its low end", "at its high end")
    known: set[tuple[str, float, float]] = set()
    for job in found.generation.jobs:
        for path, low, high in job.drivers:
            if (path, low, high) in known:
                continue
            known.add((path, low, high))
            ends = (digits(job.days * one) for one in (low, high))
            table.add_row(f"{job.job.name}: {path}", *ends)
    drivers = table
    return [_jobs(found), _requests(found), *([drivers] if drivers.rows else [])]


def _jobs(found: Generated) -> Table:
    all_of = found.generation
    heads = ("", "tokens kept", "refused", "days", "by their ranges", "GPU-hours", "cost", "tok/s")
    table = headed("Data generation", *heads, "what takes longest", left=(0, len(heads)))
    for job, cost in zip(all_of.jobs, found.costs, strict=True):
        table.add_row(
            job.job.name,
            count(job.job.kept_tokens),
            f"{100 * job.job.rejected:.0f} %",
            digits(job.days),
            _span(job.interval),
            count(job.gpu_hours),
            "-" if cost is None else show(cost, "USD"),
            count(job.written_per_second),
            job.bound,
        )
    table.add_section()
    cost = found.cost_usd
    table.add_row(
        "all",
        count(all_of.kept_tokens),
        "",
        digits(all_of.days),
        _span(all_of.interval),
        count(all_of.gpu_hours),
        "-" if cost is None else show(cost, "USD"),
        "",
        "",
    )
    idle = f", {all_of.idle_gpus} GPUs left over" if all_of.idle_gpus else ""
    table.caption = (
        f"{all_of.model} on {all_of.engines} engines ({all_of.engine}), {all_of.gpus:,} GPUs"
        f"{idle}; each GPU has {gibibytes(all_of.room.weights)} of weights and room for "
        f"{count(all_of.room.tokens)} tokens"
    )
    return table


def _requests(found: Generated) -> Table:
    heads = ("", "requests", "new", "cached", "written", "prefill", "decode", "batch", "step")
    title = "Requests, of mean length"
    table = headed(title, *heads, "batch limited by", left=(0, len(heads)))
    for job in found.generation.jobs:
        for part in job.parts:
            table.add_row(*_request(job, part))
    return table


def _request(job: JobRun, part: RequestGroupRun) -> tuple[str, ...]:
    asked, pace = part.asked, part.pace
    return (
        f"{job.job.name}: {asked.name}",
        count(asked.count),
        f"{asked.request.new:,.0f}",
        f"{asked.request.cached:,.0f}",
        f"{asked.request.written:,.0f}",
        duration(pace.prefill_seconds),
        duration(pace.decode_seconds),
        f"{pace.batch:,.0f}",
        duration(pace.step.seconds),
        pace.limit,
    )


def _span(span: tuple[float, float] | None) -> str:
    return "-" if span is None else f"{digits(span[0])} to {digits(span[1])}"


_WORTH_SPLITTING: Final = 0.001
"""Share of the step from which on an exposed cause is split into ramp and steady state."""
_PARTS: Final = table(__name__, "_PARTS")
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
        *uneven_tables(report.uneven),
        memory_table(report.memory),
        *host_table(report.memory),
        link_table(report),
        *warning_notes(report.warnings),
    )


def plan_tables(plan: Plan, memory: MemoryReport) -> tuple[Block, ...]:
    """The layout of a plan, and its memory by category and by stage."""
    return (layout_table(plan), memory_table(memory), *host_table(memory), stages_table(memory))


def nearest_table(found: Sequence[Suggestion]) -> Table:
    """Plans that fit, nearest first, with their times."""
    table = headed("The nearest plans that fit", "change", "to spare", "step", "run", "cost")
    told = [kpi for kpi in KPIS if kpi.key in ("step_seconds", "days", "cost_usd")]
    for one in found:
        figures = [show(one.kpis[kpi.key], kpi.unit) for kpi in told]
        table.add_row(one.words, gibibytes(one.headroom_bytes), *figures)
    return table


def kpi_table(report: Report) -> Table:
    """Every key figure with its unit; those of energy and of failures where they are known."""
    table = headless("Key figures", "left", "right")
    for kpi in KPIS:
        value = report.kpis[kpi.key]
        if value is not None or kpi.key not in OF_A_SITE | OF_FAILURES:
            table.add_row(kpi.label, report.ranged(kpi))
    bound = duration(report.speed_of_light_seconds)
    table.add_row("Kernels of the busiest stage at peak rates", bound)
    table.add_row("Share of the step extrapolated", percent(report.extrapolated_fraction))
    table.caption = f"{IN_BRACKETS}; {_stack(report)}"
    return table


def _stack(report: Report) -> str:
    """The software of a run, whether it was chosen, and the profile of its kernels."""
    software, profile = report.scenario["software"], report.scenario["calibration"]["name"]
    name = software["name"] if software else "none, bare kernels"
    assumed = any(one.code == "software-assumed" for one in report.warnings)
    return f"software: {name}{' (assumed)' if assumed else ''}; calibration: {profile}"


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
    if memory.device is not None:
        table.add_section()
        for label, size in _counted(memory.device):
            _memory_row(table, label, size, memory.capacity)
    return table


def _counted(device: DeviceMemory) -> Iterator[tuple[str, float]]:
    """The fullest GPU's bytes as PyTorch and the driver count them."""
    yield "allocated (PyTorch)", device.allocated
    yield "reserved (PyTorch)", device.reserved
    yield "in use (nvidia-smi)", device.in_use
    if device.given_back:
        yield "given back for lack of room", device.given_back


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
    table = headless(f"Layout of {plan.scenario.cluster.gpus} GPUs", "left", "right")
    grid = (mesh.tensor, mesh.context, mesh.data, mesh.pipeline)
    table.add_row("tensor x context x data x pipeline", " x ".join(map(str, grid)))
    if plan.scenario.model.moe is not None:
        experts = (mesh.expert_tensor, mesh.expert, mesh.expert_data)
        row = "expert tensor x expert x replicas, in a stage"
        table.add_row(row, " x ".join(map(str, experts)))
    images = plan.scenario.train.images
    if images is not None and images.gpus is not None:
        table.add_row("GPUs of the first stage, which only encode images", f"{images.gpus:,}")
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
    sizes = [sum(layer.kind in BLOCKS for layer in c.layers) for c in plan.chunks]
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
