"""The plans of a comparison, why they may not be comparable, and comparisons as tables of text:
units everywhere, and words beside every change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from twin.answers import Run
from twin.explore.study.attribution import Attribution
from twin.reports import CAUSE_WORDS
from twin.reports.compare import ABSENT, KpiDelta
from twin.reports.head import Head
from twin.reports.table import changed, signed_duration
from twin.spec.kpis import Kpi
from twin.ui.answers import Failure
from twin.ui.background import Pending, Stopped
from twin.ui.place import replied_all, titled
from twin.ui.workspace import Draft, Workspace

Row = dict[str, str]
_COLOUR = {"better": "green", "worse": "red"}
_JOINT = re.compile(r"(?<=[A-Za-z0-9])[._-](?=[A-Za-z])")
_UNFIT = "does-not-fit"
"""Code of the note that repeats, under the name of one plan, that another does not fit."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Every plan with its answer (None: not yet), the baseline first; the simulations that are
    under way, and those that were stopped."""

    answers: tuple[tuple[Draft, Run | Failure | None], ...]
    coming: tuple[Pending[Run | Failure], ...]
    stopped: tuple[Stopped, ...]


def compared(workspace: Workspace) -> Compared:
    """The plans of the workspace, their reports under the plans' titles."""
    replies = replied_all(workspace.compared)
    named = (
        (plan, titled(one.now, plan) if isinstance(one.now, Run) else one.now)
        for plan, one in zip(workspace.compared, replies, strict=True)
    )
    return Compared(
        tuple(named),
        tuple(one.coming for one in replies if one.coming is not None),
        tuple({id(one.stopped): one.stopped for one in replies if one.stopped}.values()),
    )


def why_not(comparison: Any) -> str:
    """Which plans do not fit, each named once; empty where all fit."""
    baseline, *_ = comparison.reports
    unfit = [one.name for one in comparison.reports if not one.fits]
    names = ", ".join(
        f"**{name}** (the baseline)" if name == baseline.name else f"**{name}**" for name in unfit
    )
    return f"Does not fit in memory: {names}. Its figures are as if it did fit." if unfit else ""


def comparability(comparison: Any) -> list[str]:
    """Why figures of two plans may not mean the same."""
    return [
        f"**{delta.name}**: {note.message}"
        for delta in comparison.deltas
        for note in delta.notes
        if note.code != _UNFIT
    ]


def change(kpi: Kpi, delta: KpiDelta, *, judged: bool = True) -> str:
    """A change in words: `-12.3 %, better`, or `-12.3 %` where it is not `judged`; empty where
    there is none or nothing to compare."""
    if not delta.delta:
        return ""
    size = changed(delta.delta, delta.relative, kpi.unit)
    return f"{size}, {delta.verdict}" if judged else size


def kpi_rows(comparison: Any, kpis: Iterable[Kpi], *, changed_only: bool = False) -> list[Row]:
    """Key figures of every plan, the first as baseline, the others with their change, which is
    called good or bad only where both plans fit; `changed_only`: those that differ."""
    baseline = comparison.reports[0]
    rows: list[Row] = []
    for kpi in kpis:
        if changed_only and not any(delta.kpis[kpi.key].delta for delta in comparison.deltas):
            continue
        row = {"Key figure": kpi.label, baseline.name: baseline.ranged(kpi)}
        row |= {
            delta.name: _changed(kpi, one, delta.kpis[kpi.key], judged=baseline.fits and one.fits)
            for one, delta in zip(comparison.reports[1:], comparison.deltas, strict=True)
        }
        rows.append(row)
    return rows


def _changed(kpi: Kpi, report: Head, delta: KpiDelta, *, judged: bool) -> str:
    value, words = report.ranged(kpi), change(kpi, delta, judged=judged)
    if not words:
        return f"{value} (no change)" if delta.delta == 0 else value
    return f"{value} :{_COLOUR.get(delta.verdict, 'gray') if judged else 'gray'}[({words})]"


def attribution_rows(found: Attribution) -> list[Row]:
    """The effect of each changed input, the largest first; the last row is their sum."""
    rows = [
        {
            "Change": f"`{cause.name}`",
            "From": cause.base,
            "To": cause.other,
            "Step": _slower(cause.ns),
            "Mostly": CAUSE_WORDS[max(cause.breakdown_ns, key=lambda c: abs(cause.breakdown_ns[c]))]
            if cause.ns
            else "",
            "Note": cause.note,
        }
        for cause in found.causes
    ]
    total = {"Change": "**Together**", "From": "", "To": "", "Mostly": "", "Note": ""}
    return [*rows, {**total, "Step": f"**{_slower(found.delta_ns)}**"}]


def _slower(ns: int) -> str:
    """A change of the step in words as well as sign."""
    if not ns:
        return "no change"
    return f"{signed_duration(ns / 1e9)}, {'faster' if ns < 0 else 'slower'}"


def input_rows(comparison: Any) -> list[Row]:
    """The scenario fields in which any plan differs from the baseline."""
    baseline = comparison.reports[0].name
    fields = {field.path: field.baseline for delta in comparison.deltas for field in delta.fields}
    rows: list[Row] = []
    for path, value in fields.items():
        row = {"Field": f"`{path}`", baseline: breakable(value)}
        for delta in comparison.deltas:
            other = next((one.candidate for one in delta.fields if one.path == path), value)
            row[delta.name] = breakable(other)
        rows.append(row)
    return rows


def breakable(value: Any) -> str:
    """A value that may break between its words where the page is narrow."""
    return _JOINT.sub("\\g<0>\u200b", _plain(value))


def _plain(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return f"{value:,.15g}" if abs(value) < 1e15 else f"{value:.6g}"
        case list() | tuple():
            return "[" + ", ".join(map(str, value)) + "]"  # pyright: ignore[reportUnknownArgumentType]
        case Mapping():
            return str(dict(value))  # pyright: ignore[reportUnknownArgumentType]
        case _:
            return "absent" if value == ABSENT else str(value)
