"""A run in phases as tables, and its phases in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from twin.errors import Problem
from twin.kinds.phases.plan import PhaseCheck, as_flags, costed
from twin.kinds.phases.report import PhaseRun, PhasesReport, Span
from twin.reports.head import expectation_notes
from twin.reports.table import (
    Block,
    Table,
    count,
    decimal_bytes,
    digits,
    duration,
    gibibytes,
    headed,
    show,
    warning_notes,
)
from twin.reports.tables import data_tables
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


def failing(found: PhasesReport) -> list[str]:
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


def run_tables(found: PhasesReport) -> list[Block]:
    """The phases with their totals, the calendar, checkpoints and data; warnings last."""
    tables: list[Block] = [_phases(found), _calendar(found), _written(found)]
    tables += data_tables(found.generated)
    checks = [phase.check for phase in found.phases]
    return [
        *tables,
        *_nearest(checks),
        *expectation_notes(found.expectations),
        *warning_notes(found.warnings),
    ]


def _nearest(checks: Sequence[PhaseCheck]) -> list[Block]:
    tables: list[Block] = []
    known: set[str] = set()
    for one in checks:
        key = " ".join(near.words for near in one.nearest)
        if one.nearest and key not in known:
            known.add(key)
            tables.append(_nearest_table(one))
    return tables


def _nearest_table(one: PhaseCheck) -> Table:
    title = f"The nearest plans of phase {one.name} that fit, the first is costed"
    table = headed(title, "change", "to spare", "step", "days of the phase")
    whole = one.scenario.train.tokens
    for near in one.nearest:
        days = (near.kpis["days"] or 0.0) * one.tokens / whole
        step = show(near.kpis["step_seconds"], "s")
        room = gibibytes(near.headroom_bytes)
        table.add_row(as_flags(one.index, near), room, step, digits(days))
    return table


def _phases(found: PhasesReport) -> Table:
    failures = found.kpis["days_with_failures"] is not None
    failing_heads = ("days, failures", "cost, failures") if failures else ()
    heads = ("phase", "tokens", "steps", "sequence", "layout", "step", "days", "cost")
    table = headed("Phases", *heads, *failing_heads, "fits", left=(0, 4))
    keys = ("days", "cost_usd")
    keys += ("days_with_failures", "cost_usd_with_failures") if failures else ()
    for phase in found.phases:
        step = phase.kpis.get("step_seconds")
        table.add_row(
            phase.name,
            count(phase.check.tokens),
            count(phase.steps),
            f"{phase.check.scenario.train.sequence:,}",
            layout(costed(phase.check) or phase.check.scenario),
            "-" if step is None else duration(step),
            *(_figure(phase.kpis.get(key), key) for key in keys),
            _fits(phase),
        )
    table.add_section()
    steps = sum(phase.steps for phase in found.phases)
    figures = (_figure(found.kpis[key], key) for key in keys)
    table.add_row("all", count(found.tokens), count(steps), "", "", "", *figures, "")
    told = [kpi for kpi in KPIS if kpi.key in _TOTALS and found.kpis.get(kpi.key) is not None]
    table.caption = "; ".join(f"{one.label}: {found.ranged(one)}" for one in told)
    return table


def _figure(value: float | None, key: str) -> str:
    if value is None:
        return "-"
    return show(value, "d" if key.startswith("days") else "USD")


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


def _calendar(found: PhasesReport) -> Table:
    failures = found.kpis["days_with_failures"] is not None
    title = "Calendar" if found.start else "Calendar, in days from the start"
    failing_heads = ("from, with failures", "to, with failures") if failures else ()
    table = headed(title, "phase", "from", "to", *failing_heads)
    for phase, dates in zip(found.phases, found.dates, strict=True):
        spans = [dates.without_failures, *([dates.with_failures] if failures else [])]
        table.add_row(phase.name, *(cell for span in spans for cell in _days(span, found)))
    return table


def _days(span: Span | None, found: PhasesReport) -> tuple[str, str]:
    if span is None:
        return "-", "-"
    said = span.to_json(found.start)
    if found.start is not None:
        return said["from"], said["to"]
    return digits(span.begin), digits(span.end)


def _written(found: PhasesReport) -> Table:
    table = headed("Checkpoints and data", "phase", "checkpoints", "of each", "every", "data read")
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
    return table


def _every(phase: PhaseRun) -> str:
    if phase.saves is None or not phase.saves.number:
        return "-"
    every = phase.saves.every_seconds
    return "at its end" if every is None else duration(every)


def check_tables(checks: Sequence[PhaseCheck]) -> list[Block]:
    """Every phase with its layout and its peak, and the nearest plans of those that do not fit."""
    heads = ("phase", "tokens", "sequence", "layout", "micro-batches", "peak", "fits")
    table = headed("Phases", *heads, left=(0, 3))
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
    return [table, *_nearest(checks)]
