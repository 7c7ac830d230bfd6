"""Reports as terminal tables: units everywhere, three significant digits, bars that also read
without colour."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from twin.cli.columns import headless
from twin.cli.cost_tables import cost_tables
from twin.cli.data_tables import data_tables
from twin.cli.goodput_tables import goodput_tables
from twin.planning.types import Plan, Warning
from twin.reports.breakdown import CAUSE_WORDS
from twin.reports.compare import Comparison, FieldDifference, KpiDelta
from twin.reports.expect import Judgement, sentence
from twin.reports.kpis import KPIS, Kpi
from twin.reports.numbers import changed, decimal_bytes, duration, gibibytes, show
from twin.reports.report import MemoryReport, Report
from twin.spec.kpis import OF_A_SITE, OF_FAILURES

if TYPE_CHECKING:  # a study takes no part in a single run
    from twin.explore.study import Attribution, Suggestion

_WIDTH = 24
"""Characters of a full bar."""
_NARROW = 10
"""Characters of a full bar in a table of many columns."""
_WORTH_SPLITTING = 0.001
"""Share of the step from which on an exposed cause is split into ramp and steady state."""
_SHOWN_FIELDS = 12
"""Differing scenario fields that a comparison lists before it counts the rest."""


def report_tables(report: Report) -> tuple[RenderableType, ...]:
    """Everything that a run has to say after its verdict; warnings last."""
    return (
        kpi_table(report),
        *expectation_list(report.expectations),
        *cost_tables(report.bill),
        *goodput_tables(report.goodput),
        *data_tables(report.generated),
        breakdown_table(report),
        memory_table(report.memory),
        *host_table(report.memory),
        link_table(report),
        warning_list(report.warnings),
    )


def plan_tables(
    plan: Plan, memory: MemoryReport, expectations: tuple[Judgement, ...] = ()
) -> tuple[RenderableType, ...]:
    """Everything that a check has to say after its verdict; warnings last."""
    return (
        layout_table(plan),
        *expectation_list(expectations),
        memory_table(memory),
        *host_table(memory),
        stages_table(memory),
        warning_list(plan.warnings),
    )


def nearest_table(found: Sequence[Suggestion]) -> RenderableType:
    """Plans that fit, nearest first, with their times by the fast path."""
    table = Table(title="The nearest plans that fit", title_justify="left", box=None)
    for heading in ("change", "to spare", "step", "run", "cost"):
        table.add_column(heading, justify="left" if heading == "change" else "right")
    told = [kpi for kpi in KPIS if kpi.key in ("step_seconds", "days", "cost_usd")]
    for one in found:
        figures = [show(one.kpis[kpi.key], kpi.unit) for kpi in told]
        table.add_row(one.words, gibibytes(one.headroom_bytes), *figures)
    table.caption = "times are fast estimates, which leave out that transfers share links"
    table.caption_justify = "left"
    return table


def comparison_tables(
    comparison: Comparison, attributions: Sequence[Attribution] = ()
) -> tuple[RenderableType, ...]:
    """Everything that a comparison has to say after its sentences."""
    parts: list[RenderableType] = [
        legend(comparison),
        comparison_table(comparison),
        change_table(comparison),
    ]
    parts += [attribution_table(letter(i), a) for i, a in enumerate(attributions, 1) if a.causes]
    for index, delta in enumerate(comparison.deltas, 1):
        parts.append(field_table(letter(index), delta.fields))
        if delta.notes:
            parts.append(warning_list(delta.notes, f"Before comparing A and {letter(index)}"))
    return tuple(parts)


def bar(share: float, width: int = _WIDTH) -> str:
    """A bar of `share` (0 to 1) of the width, to an eighth of a character; above zero it shows."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, part = divmod(max(eighths, 1) if share > 0 else 0, 8)
    return "█" * full + " ▏▎▍▌▋▊▉"[part].strip()


def percent(share: float) -> str:
    """A share as a percentage with one decimal, so that a column of them adds up by eye."""
    return f"{100 * share:.1f} %"


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
    table.caption_justify = "left"
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
    numbers = ("right",) * (1 + len(away))
    table = headless(title, "right", "right", "right", "left", *numbers, "left")
    for header, column in zip(headers, table.columns, strict=True):
        column.header = header
    table.show_header = True
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


def warning_list(warnings: Iterable[Warning], title: str = "Warnings") -> RenderableType:
    """Warnings, one per paragraph, each with its code; nothing where there are none."""
    rows = [Padding(Text(f"{one.code}: {one.message}"), (0, 0, 0, 2)) for one in warnings]
    return Group(Text(title, style="bold"), *rows) if rows else Text("")


def expectation_list(expectations: Iterable[Judgement]) -> list[RenderableType]:
    """What came of each expectation, one per paragraph; nothing where there are none."""
    rows = [Padding(Text(sentence(one)), (0, 0, 0, 2)) for one in expectations]
    return [Group(Text("Expectations", style="bold"), *rows)] if rows else []


def comparison_table(comparison: Comparison) -> Table:
    """Key figures side by side: the baseline A, then each candidate with its change in percent and
    whether that is better."""
    table = _lettered("Key figures", comparison, first=0)
    baseline = comparison.reports[0]
    for kpi in KPIS:
        values = [report.kpis[kpi.key] for report in comparison.reports]
        if kpi.key in OF_A_SITE | OF_FAILURES and not any(value is not None for value in values):
            continue
        cells = [
            _changed(kpi, delta.kpis[kpi.key], judged=delta.fits and comparison.reports[0].fits)
            for delta in comparison.deltas
        ]
        table.add_row(kpi.label, show(baseline.kpis[kpi.key], kpi.unit), *cells)
    return table


def change_table(comparison: Comparison) -> Table:
    """Seconds by cause of each candidate against the baseline's; the rows sum to the change of the
    step. Causes that moved by less than a microsecond everywhere are left out."""
    table = _lettered("Where the step's change went", comparison, first=1)
    for cause, words in CAUSE_WORDS.items():
        moved = [delta.breakdown_ns[cause] for delta in comparison.deltas]
        if any(abs(ns) >= 1000 for ns in moved):
            table.add_row(words, *(_signed(ns) for ns in moved))
    table.add_section()
    table.add_row("step", *(_signed(delta.step_delta_ns) for delta in comparison.deltas))
    return table


def attribution_table(candidate: str, found: Attribution) -> RenderableType:
    """Which edits make a candidate's step longer or shorter than the baseline's: one row per cause,
    which sum to the difference, and how several were told apart. A mark after a cause leads to the
    note below that explains it."""
    title = f"Which edit made the step of {candidate} other than that of A"
    table = headless(title, "left", "left", "left", "right")
    notes = dict.fromkeys(cause.note for cause in found.causes if cause.note)
    marks = {note: " " + "*" * number for number, note in enumerate(notes, 1)}
    for cause in found.causes:
        name = cause.name + marks.get(cause.note, "")
        table.add_row(name, cause.base, cause.other, _signed(cause.ns))
    table.add_section()
    table.add_row("step", "", "", _signed(found.delta_ns))
    method = (found.method,) if len(found.causes) > 1 else ()
    lines = (*method, *(f"{mark.strip()} {note}" for note, mark in marks.items()))
    rows = [Padding(Text(text), (0, 0, 0, 2)) for text in lines]
    return Group(table, *rows)


def legend(comparison: Comparison) -> RenderableType:
    """Which letter stands for which scenario."""
    rows = [Text(f"{letter(i)}  {report.name}") for i, report in enumerate(comparison.reports)]
    rows[0].append(" (baseline)")
    return Group(*rows)


def letter(index: int) -> str:
    """A, B, C and so on; after Z come numbers, which nobody compares by eye."""
    return chr(ord("A") + index) if index < 26 else str(index + 1)


def field_table(candidate: str, fields: tuple[FieldDifference, ...]) -> Table:
    """The scenario fields in which a candidate differs from the baseline, as a planner writes
    them."""
    title = f"Fields that differ, A and {candidate} ({len(fields)})"
    table = headless(title, "left", "left", "left")
    for field in fields[:_SHOWN_FIELDS]:
        table.add_row(field.path, _written(field.baseline), _written(field.candidate))
    if len(fields) > _SHOWN_FIELDS:
        table.add_row(f"and {len(fields) - _SHOWN_FIELDS} more (--json lists all)", "", "")
    return table


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _lettered(title: str, comparison: Comparison, first: int) -> Table:
    """A table with one column per scenario, from the given one on."""
    table = headless(title, "left")
    table.show_header = True
    for index in range(first, len(comparison.reports)):
        table.add_column(letter(index), justify="right")
    return table


def _memory_row(table: Table, label: str, size: float, capacity: float) -> None:
    share = size / capacity
    table.add_row(label, gibibytes(size), percent(share), bar(share))


def _counts(plan: Plan) -> str:
    """Transformer layers of every chunk, equal neighbours as `3 x 4`."""
    sizes = [sum(layer.kind in ("dense", "moe") for layer in c.layers) for c in plan.chunks]
    runs = [(size, len(list(group))) for size, group in groupby(sizes)]
    return ", ".join(f"{length} x {size}" if length > 1 else str(size) for size, length in runs)


def _changed(kpi: Kpi, delta: KpiDelta, *, judged: bool) -> str:
    """A candidate's figure and its change; better or worse only where both plans can run."""
    value = show(delta.candidate, kpi.unit)
    if not delta.delta:
        return value
    change = changed(delta.delta, delta.relative, kpi.unit)
    return f"{value} ({change}, {delta.verdict})" if judged else f"{value} ({change})"


def _signed(ns: int) -> str:
    sign = "+" if ns > 0 else "-" if ns < 0 else ""
    return f"{sign}{duration(abs(ns) / 1e9)}"
