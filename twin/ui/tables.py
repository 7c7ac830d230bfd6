"""Comparisons as tables of text: units everywhere, and words beside every change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twin.plan.types import Warning
from twin.report import Comparison, Report
from twin.report.compare import ABSENT, KpiDelta
from twin.report.kpis import KPIS, Kpi
from twin.report.numbers import digits, show

Row = dict[str, str]
_COLOUR = {"better": "green", "worse": "red"}


def change(delta: KpiDelta, *, judged: bool = True) -> str:
    """A change in words: `-12.3 %, better`, or `-12.3 %` where it is not `judged`; empty where
    there is none or nothing to compare."""
    if not delta.delta:
        return ""
    size = "from zero" if delta.relative is None else f"{_signed(100 * delta.relative)} %"
    return f"{size}, {delta.verdict}" if judged else size


def _signed(value: float) -> str:
    return f"{'-' if value < 0 else '+'}{digits(abs(value))}"


def kpi_rows(reports: Sequence[Report], comparison: Comparison | None) -> list[Row]:
    """Every key figure of every plan, the first as baseline, the others with their change, which
    is called good or bad only where both plans can run."""
    rows: list[Row] = []
    for kpi in KPIS:
        row = {"Key figure": kpi.label, reports[0].name: show(reports[0].kpis[kpi.key], kpi.unit)}
        if comparison is not None:
            runs = reports[0].fits
            row |= {
                delta.name: _changed(kpi, delta.kpis[kpi.key], judged=runs and delta.fits)
                for delta in comparison.deltas
            }
        rows.append(row)
    return rows


def _changed(kpi: Kpi, delta: KpiDelta, *, judged: bool) -> str:
    value, words = show(delta.candidate, kpi.unit), change(delta, judged=judged)
    if not words:
        return f"{value} (no change)" if delta.delta == 0 else value
    return f"{value} :{_COLOUR.get(delta.verdict, 'gray') if judged else 'gray'}[({words})]"


def input_rows(comparison: Comparison) -> list[Row]:
    """The scenario fields in which any plan differs from the baseline."""
    baseline = comparison.reports[0].name
    fields = {field.path: field.baseline for delta in comparison.deltas for field in delta.fields}
    rows: list[Row] = []
    for path, value in fields.items():
        row = {"Field": f"`{path}`", baseline: _plain(value)}
        for delta in comparison.deltas:
            other = next((one.candidate for one in delta.fields if one.path == path), value)
            row[delta.name] = _plain(other)
        rows.append(row)
    return rows


def warnings_by_plan(reports: Sequence[Report]) -> dict[Warning, list[str]]:
    """Every warning once, with the plans that it concerns."""
    found: dict[Warning, list[str]] = {}
    for report in reports:
        for warning in report.warnings:
            found.setdefault(warning, []).append(report.name)
    return found


def _plain(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return f"{value:,.15g}" if abs(value) < 1e15 else f"{value:.6g}"
        case list() | tuple():
            return "[" + ", ".join(map(str, value)) + "]"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case Mapping():
            return str(dict(value))  # pyright: ignore[reportUnknownArgumentType]
        case _:
            return "absent" if value == ABSENT else str(value)
