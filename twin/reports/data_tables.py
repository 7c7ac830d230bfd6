"""Data that is generated before a run, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twin.reports.numbers import count, digits, duration, gibibytes, show
from twin.reports.table import Table, headed

if TYPE_CHECKING:  # few runs say what their data takes
    from twin.data import JobRun, Part
    from twin.reports.with_data import Generated


def data_tables(found: Generated | None) -> list[Table]:
    """What is generated, with which requests, and which numbers move it most; nothing where nothing
    is."""
    if found is None:
        return []
    drivers = _drivers(found)
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


def _request(job: JobRun, part: Part) -> tuple[str, ...]:
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


def _drivers(found: Generated) -> Table:
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
    return table


def _span(span: tuple[float, float] | None) -> str:
    return "-" if span is None else f"{digits(span[0])} to {digits(span[1])}"
