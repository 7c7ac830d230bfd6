"""A run in phases in words and as terminal tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import RenderableType
from rich.table import Table

from twin import units
from twin.cli.data_tables import data_tables
from twin.cli.tables import warning_list
from twin.errors import Problem
from twin.kinds.phases import PhaseCheck, PhaseRun, Span, WholeRun
from twin.kinds.phases.nearest import words as as_flags
from twin.reports.numbers import count, decimal_bytes, digits, duration, gibibytes, show
from twin.scenario import Scenario
from twin.spec.kpis import KPIS

_TOTALS: Final = (
    "gpu_hours",
    "mfu",
    "energy_kwh",
    "energy_cost_usd",
    "co2_tonnes",
    "goodput_fraction",
)
"""Key figures below the table of phases, where they are known."""


def run_words(found: WholeRun) -> str:
    """What the whole run comes to, in a sentence or two."""
    kpis, phases = found.kpis, found.phases
    costed = [phase for phase in phases if phase.costed == "nearest"]
    tokens = units.format_quantity(found.tokens, "tokens").removesuffix("tok")
    head = f"{len(phases)} phases, {tokens} tokens on {found.gpus:,} GPUs"
    if kpis["days"] is None:
        missing = ", ".join(phase.name for phase in phases if phase.costed is None)
        return f"{head}: days and cost are unknown, since nothing near to {missing} fits."
    money = f" and cost {show(kpis['cost_usd'], 'USD')}" if kpis["cost_usd"] else ""
    said = (
        f"{head} take {digits(kpis['days'])} days, {count(kpis['gpu_hours'] or 0.0)} GPU-hours"
        f"{money} without failures.{_with_failures(found)}"
    )
    if not costed:
        return f"Every phase fits. {said}"
    names = ", ".join(phase.name for phase in costed)
    return f"{said} This costs the nearest plan that fits in place of: {names}."


def _with_failures(found: WholeRun) -> str:
    days, cost = found.kpis["days_with_failures"], found.kpis["cost_usd_with_failures"]
    if days is None:
        return ""
    money = f" and {show(cost, 'USD')}" if cost is not None else ""
    return f" With failures: {digits(days)} days{money}."


def failing(found: WholeRun) -> list[str]:
    """Of every phase that cannot run as written, or does not fit: why, and what is costed."""
    return check_words([phase.check for phase in found.phases if not phase.check.fits])


def check_words(checks: Sequence[PhaseCheck]) -> list[str]:
    """A sentence per phase: whether it fits, why not, and the nearest plan that does; those that
    are alike in one."""
    said: dict[tuple[str, str], list[str]] = {}
    for one in checks:
        near = as_flags(one.index, one.nearest[0]) if one.nearest else "none was found"
        words = f"{_place(one.problems)}{one.words}"
        fix = "" if one.fits else f" Nearest that fits: {near}"
        said.setdefault((words, _shared(fix, one.index)), []).append(one.name)
    return [f"{', '.join(names)}: {words}{fix}" for (words, fix), names in said.items()]


def _shared(fix: str, index: int) -> str:
    """The fix of one phase in a form that others may share."""
    return fix.replace(f"phases.{index}.", "phases.N.")


def _place(problems: Sequence[Problem]) -> str:
    """Where the first problem was written, and its code."""
    if not problems or problems[0].origin is None or not problems[0].origin.line:
        return ""
    return f"{problems[0].origin} {problems[0].code} "


def run_tables(found: WholeRun) -> list[RenderableType]:
    """The phases with their totals, the calendar, checkpoints and data; warnings last."""
    tables: list[RenderableType] = [_phases(found), _calendar(found), _written(found)]
    tables += data_tables(found.generated)
    checks = [phase.check for phase in found.phases]
    return [*tables, *_nearest(checks), warning_list(found.warnings)]


def _nearest(checks: Sequence[PhaseCheck]) -> list[RenderableType]:
    tables: list[RenderableType] = []
    known: set[str] = set()
    for one in checks:
        key = " ".join(near.words for near in one.nearest)
        if one.nearest and key not in known:
            known.add(key)
            tables.append(_nearest_table(one))
    return tables


def _nearest_table(one: PhaseCheck) -> Table:
    title = f"The nearest plans of phase {one.name} that fit, the first is costed"
    table = _table(title, "change", "to spare", "step", "days of the phase")
    whole = one.scenario.train.tokens
    for near in one.nearest:
        days = (near.kpis["days"] or 0.0) * one.tokens / whole
        step = show(near.kpis["step_seconds"], "s")
        room = gibibytes(near.headroom_bytes)
        table.add_row(as_flags(one.index, near), room, step, digits(days))
    table.caption = "times are fast estimates, which leave out that transfers share links"
    table.caption_justify = "left"
    return table


def _phases(found: WholeRun) -> Table:
    failures = found.kpis["days_with_failures"] is not None
    table = _table("Phases", "phase", "tokens", "steps", "sequence", "layout", "step", "days")
    for heading in ("cost", *(("days, failures", "cost, failures") if failures else ()), "fits"):
        table.add_column(heading, justify="right")
    keys = ("days", "cost_usd")
    keys += ("days_with_failures", "cost_usd_with_failures") if failures else ()
    for phase in found.phases:
        step = phase.kpis.get("step_seconds")
        table.add_row(
            phase.name,
            count(phase.check.tokens),
            count(phase.steps),
            f"{phase.check.scenario.train.sequence:,}",
            layout(_costed(phase)),
            "-" if step is None else duration(step),
            *(_figure(phase.kpis.get(key), key) for key in keys),
            _fits(phase),
        )
    table.add_section()
    steps = sum(phase.steps for phase in found.phases)
    figures = (_figure(found.kpis[key], key) for key in keys)
    table.add_row("all", count(found.tokens), count(steps), "", "", "", *figures, "")
    told = [kpi for kpi in KPIS if kpi.key in _TOTALS and found.kpis.get(kpi.key) is not None]
    table.caption = "; ".join(f"{one.label}: {show(found.kpis[one.key], one.unit)}" for one in told)
    table.caption_justify = "left"
    return table


def _figure(value: float | None, key: str) -> str:
    if value is None:
        return "-"
    return show(value, "d" if key.startswith("days") else "USD")


def _costed(phase: PhaseRun) -> Scenario:
    if phase.costed == "nearest":
        return phase.check.nearest[0].scenario
    return phase.check.scenario


def _fits(phase: PhaseRun) -> str:
    if phase.check.fits:
        return "yes"
    why = "no" if phase.check.possible else "impossible"
    return f"{why}, nearest costed" if phase.costed else f"{why}, nothing near"


def layout(scenario: Scenario) -> str:
    """The degrees of a layout that are more than one, and its batch in sequences."""
    parallel = scenario.parallel
    degrees = {
        "pp": parallel.pipeline,
        "vp": parallel.virtual,
        "tp": parallel.tensor,
        "ep": parallel.expert,
        "etp": parallel.expert_tensor,
        "cp": parallel.context,
    }
    words = [f"{name}{degree}" for name, degree in degrees.items() if degree > 1]
    return " ".join([*words, f"{scenario.train.global_batch_sequences:,}seq"])


def _calendar(found: WholeRun) -> Table:
    failures = found.kpis["days_with_failures"] is not None
    title = "Calendar" if found.start else "Calendar, in days from the start"
    table = _table(title, "phase", "from", "to")
    for heading in ("from, with failures", "to, with failures") if failures else ():
        table.add_column(heading, justify="right")
    for phase, dates in zip(found.phases, found.dates, strict=True):
        spans = [dates.without_failures, *([dates.with_failures] if failures else [])]
        table.add_row(phase.name, *(cell for span in spans for cell in _days(span, found)))
    return table


def _days(span: Span | None, found: WholeRun) -> tuple[str, str]:
    if span is None:
        return "-", "-"
    said = span.to_json(found.start)
    if found.start is not None:
        return said["from"], said["to"]
    return digits(span.begin), digits(span.end)


def _written(found: WholeRun) -> Table:
    table = _table("Checkpoints and data", "phase", "checkpoints", "of each", "every", "data read")
    for phase in found.phases:
        saved = phase.saves
        table.add_row(
            phase.name,
            "-" if saved is None else f"{saved.number:,}",
            "-" if saved is None else decimal_bytes(saved.bytes),
            _every(phase),
            decimal_bytes(phase.data_bytes),
        )
    table.add_section()
    number, written = found.checkpoints, found.checkpoint_bytes
    table.add_row(
        "all",
        "-" if number is None else f"{number:,}",
        "-" if written is None else f"{decimal_bytes(written)} if all are kept",
        "",
        decimal_bytes(found.data_bytes),
    )
    table.caption = (
        f"between two checkpoints: {found.interval_source}\n"
        f"{found.bytes_per_token:g} bytes per token on disk: {found.bytes_source}"
    )
    table.caption_justify = "left"
    return table


def _every(phase: PhaseRun) -> str:
    if phase.saves is None or not phase.saves.number:
        return "-"
    every = phase.saves.every_seconds
    return "at its end" if every is None else duration(every)


def check_tables(checks: Sequence[PhaseCheck]) -> list[RenderableType]:
    """Every phase with its layout and its peak, and the nearest plans of those that do not fit."""
    table = _table("Phases", "phase", "tokens", "sequence", "layout", "micro-batches", "peak")
    table.add_column("fits", justify="right")
    for one in checks:
        fits = "yes" if one.fits else "no" if one.possible else "impossible"
        table.add_row(
            one.name,
            count(one.tokens),
            f"{one.scenario.train.sequence:,}",
            layout(one.scenario),
            "-" if one.microbatches is None else f"{one.microbatches:,}",
            "-" if one.memory is None else gibibytes(one.memory.peak.peak_bytes),
            fits,
        )
    warnings = tuple(dict.fromkeys(w for one in checks for w in one.warnings))
    return [table, *_nearest(checks), warning_list(warnings)]


def _table(title: str, first: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None)
    table.add_column(first)
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "layout" else "right")
    return table
