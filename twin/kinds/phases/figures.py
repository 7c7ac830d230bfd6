"""A run in phases over its days: when each is trained, and how many checkpoints it saves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Final

from twin.figures.charts import View, row_axis
from twin.figures.palette import Swatch, Theme, swatch
from twin.figures.plotly import Axis, Bars, Frame, Picture, Row, draw
from twin.figures.step import causes_table, stacked
from twin.kinds.base import Run
from twin.kinds.phases.report import PhaseRun, PhasesReport, Span
from twin.reports.breakdown import CAUSE_WORDS, bottleneck
from twin.reports.table import decimal_bytes, digits, show

_ROW: Final = 34
"""Pixels of one phase."""
_TICKS: Final = 6
"""Dates along the axis."""


def views(run: Run) -> Iterator[View]:
    """Every figure of a run in phases."""
    report: PhasesReport = run.report
    yield View("Summary", "Calendar", "calendar", lambda theme, _: calendar(report, theme))
    if any(phase.report for phase in report.phases):
        yield View(
            "Summary",
            "Where the step time of each phase goes",
            "steps",
            lambda theme, _: steps(report, theme),
        )


def steps(report: PhasesReport, theme: Theme) -> Picture:
    """How each phase spends its step, in seconds."""
    known = [(phase.name, phase.report.breakdown_ns) for phase in report.phases if phase.report]
    name, slowest = max(known, key=lambda row: sum(row[1].values()))
    worst = bottleneck(slowest)
    return Picture(
        title=f"The longest step is that of {name}; its largest loss beside compute is "
        f"{CAUSE_WORDS[worst]}",
        caption="Each bar is one training step of a phase, averaged over pipeline stages.",
        figure=stacked(known, theme),
        table=causes_table(known),
    )


def calendar(found: PhasesReport, theme: Theme) -> Picture:
    """Every phase as a bar from its first to its last day, with failures where they are known. A
    phase whose days nobody knows has none."""
    failing = found.kpis["days_with_failures"] is not None
    spans = [one.with_failures if failing else one.without_failures for one in found.dates]
    known = [pair for pair in enumerate(spans) if pair[1] is not None]
    end = max((span.end for _, span in known if span), default=0.0) or 1.0
    looks = {"as written": swatch("forward", theme), "nearest": swatch("contention", theme)}
    bars = [
        _bars(found, [(at, span) for at, span in known if span], costed, look)
        for costed, look in looks.items()
        if any(found.phases[at].costed == costed for at, _ in known)
    ]
    frame = Frame(
        x=Axis(_across(found), span=(0.0, 1.02 * end), ticks=_ticks(found.start, end)),
        y=row_axis([phase.name for phase in found.phases]),
        height=80 + _ROW * len(found.phases),
        theme=theme,
    )
    rows = tuple(_row(found, phase, span) for phase, span in zip(found.phases, spans, strict=True))
    return Picture(_title(found, failing), _caption(failing), draw(bars, frame), rows)


def _bars(found: PhasesReport, places: list[tuple[int, Span]], costed: str, look: Swatch) -> Bars:
    own = [(at, span) for at, span in places if found.phases[at].costed == costed]
    return Bars(
        name="as written" if costed == "as written" else "the nearest plan that fits",
        swatch=look,
        x=[span.end - span.begin for _, span in own],
        y=[float(at) for at, _ in own],
        base=[span.begin for _, span in own],
        thickness=[0.7] * len(own),
        text=[_saved(found.phases[at]) for at, _ in own],
        outside=True,
        detail=[[_hover(found, at, span)] for at, span in own],
        hover="%{customdata[0]}",
    )


def _saved(phase: PhaseRun) -> str:
    number = phase.saves.number if phase.saves else 0
    return f"{number:,} checkpoint{'s' * (number != 1)}" if phase.check.tokens else "no training"


def _hover(found: PhasesReport, at: int, span: Span) -> str:
    phase = found.phases[at]
    step = show(phase.kpis.get("step_seconds"), "s")
    begin, end = _shown(found.start, span.begin), _shown(found.start, span.end)
    return f"{phase.name}: {begin} to {end}, {step} a step, {_saved(phase)}"


def _shown(start: date | None, days: float) -> str:
    if start is None:
        return f"day {digits(days)}"
    return (start + timedelta(days=int(days))).isoformat()


def _across(found: PhasesReport) -> str:
    return "Date" if found.start else "Days from the start"


def _ticks(start: date | None, end: float) -> tuple[tuple[float, str], ...] | None:
    if start is None:
        return None
    places = [end * at / (_TICKS - 1) for at in range(_TICKS)]
    return tuple((place, _shown(start, place)) for place in places)


def _title(found: PhasesReport, failing: bool) -> str:
    days = found.kpis["days_with_failures" if failing else "days"]
    if days is None:
        return "How long the run takes is unknown: a phase has no plan that fits"
    longest = max(found.phases, key=lambda one: one.kpis.get("days") or 0.0)
    number = found.checkpoints or 0
    what = "with failures" if failing else "without failures"
    return (
        f"The run takes {digits(days)} days {what} and saves {number:,} checkpoints; its longest "
        f"phase is {longest.name}"
    )


def _caption(failing: bool) -> str:
    others = "" if failing else " Failures are left out: the scenario says nothing of them."
    return (
        "Each bar is a phase from its first day to its last. Crossed bars cost the nearest plan "
        f"that fits in place of one that does not, or cannot run.{others}"
    )


def _row(found: PhasesReport, phase: PhaseRun, span: Span | None) -> Row:
    return {
        "Phase": phase.name,
        "From": _shown(found.start, span.begin) if span else "unknown",
        "To": _shown(found.start, span.end) if span else "unknown",
        "Days": digits(span.end - span.begin) if span else "unknown",
        "Checkpoints": f"{phase.saves.number:,}" if phase.saves else "unknown",
        "Of each": decimal_bytes(phase.saves.bytes) if phase.saves else "unknown",
        "Costed": phase.costed or "nothing",
    }
