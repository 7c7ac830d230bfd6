"""Comparisons as tables of text: units everywhere, and words beside every change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twin.explore.study import Attribution
from twin.reports import CAUSE_WORDS, Comparison
from twin.reports.compare import ABSENT, KpiDelta
from twin.reports.kpis import KPIS, Kpi
from twin.reports.numbers import changed, duration, show

Row = dict[str, str]
_COLOUR = {"better": "green", "worse": "red"}


def change(kpi: Kpi, delta: KpiDelta, *, judged: bool = True) -> str:
    """A change in words: `-12.3 %, better`, or `-12.3 %` where it is not `judged`; empty where
    there is none or nothing to compare."""
    if not delta.delta:
        return ""
    size = changed(delta.delta, delta.relative, kpi.unit)
    return f"{size}, {delta.verdict}" if judged else size


def kpi_rows(comparison: Comparison, *, changed_only: bool = False) -> list[Row]:
    """Every key figure of every plan, the first as baseline, the others with their change, which
    is called good or bad only where both plans can run; `changed_only`: those that differ."""
    baseline = comparison.reports[0]
    rows: list[Row] = []
    for kpi in KPIS:
        if changed_only and not any(delta.kpis[kpi.key].delta for delta in comparison.deltas):
            continue
        row = {"Key figure": kpi.label, baseline.name: show(baseline.kpis[kpi.key], kpi.unit)}
        row |= {
            delta.name: _changed(kpi, delta.kpis[kpi.key], judged=baseline.fits and delta.fits)
            for delta in comparison.deltas
        }
        rows.append(row)
    return rows


def attribution_rows(found: Attribution) -> list[Row]:
    """What each changed input is worth, the largest first; the last row is their sum."""
    rows = [
        {
            "Change": f"`{cause.name}`",
            "From": cause.base,
            "To": cause.other,
            "Step": _signed_seconds(cause.ns),
            "Mostly": CAUSE_WORDS[max(cause.breakdown_ns, key=lambda c: abs(cause.breakdown_ns[c]))]
            if cause.ns
            else "",
            "Note": cause.note,
        }
        for cause in found.causes
    ]
    total = {"Change": "**Together**", "From": "", "To": "", "Mostly": "", "Note": ""}
    return [*rows, {**total, "Step": f"**{_signed_seconds(found.delta_ns)}**"}]


def _signed_seconds(ns: int) -> str:
    """A change of the step in words as well as sign."""
    if not ns:
        return "no change"
    word = "faster" if ns < 0 else "slower"
    return f"{'-' if ns < 0 else '+'}{duration(abs(ns) / 1e9)}, {word}"


def _changed(kpi: Kpi, delta: KpiDelta, *, judged: bool) -> str:
    value, words = show(delta.candidate, kpi.unit), change(kpi, delta, judged=judged)
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
