"""The key figures that are shares of something, as bars with their intervals: how full, how busy,
how idle."""

from __future__ import annotations

from dataclasses import dataclass

from twin.figures.palette import Meaning, Theme, swatch
from twin.figures.plotly import Axis, Bars, Frame, Picture, draw
from twin.reports.numbers import show
from twin.reports.report import Interval, Report


@dataclass(frozen=True, slots=True)
class _Share:
    """A share of something (1: all of it) with its interval, and what it is a share of."""

    label: str
    meaning: Meaning
    value: float
    interval: Interval | None
    of: str


def shares(report: Report, theme: Theme) -> Picture:
    """How much of its GPUs, its step and its memory a plan uses, in percent."""
    rows = _shares(report)
    bars = [
        Bars(
            name=row.label,
            swatch=swatch(row.meaning, theme),
            x=[100 * row.value],
            y=[row.label],
            text=[f"{show(row.value, '%')} {row.of}"],
            outside=True,
            reach=_reach(row),
            hover=f"{row.label}: {show(row.value, '%')} {row.of}{_interval_words(row)}",
        )
        for row in rows
    ]
    most = max(100.0, *(100 * row.value for row in rows))
    frame = Frame(
        x=Axis(
            "Percent",
            span=(0.0, 1.04 * most),
            ticks=tuple((float(at), str(at)) for at in range(0, int(most) + 1, 20)),
        ),
        y=Axis(reverse=True, grid=False, names=tuple(row.label for row in rows)),
        height=60 + 30 * len(rows),
        theme=theme,
        legend=False,
    )
    known = any(row.interval for row in rows)
    return Picture(
        title=(
            f"The GPUs do {show(report.kpis['mfu'], '%')} of the model FLOP that their peak "
            f"allows, and wait in the bubble for {show(report.kpis['bubble_fraction'], '%')} of "
            "the step"
        ),
        caption="Shares of what each name says. "
        + ("Whiskers are 80 % intervals." if known else "No whiskers: no interval is known yet."),
        figure=draw(bars, frame),
        table=tuple(
            {
                "Share": row.label,
                "Value": show(row.value, "%"),
                "Of": row.of.removeprefix("of "),
                "80 % interval": _interval_words(row).removeprefix(", ") or "unknown",
            }
            for row in rows
        ),
    )


def _shares(report: Report) -> list[_Share]:
    step, kpis, intervals = report.step_ns / 1e9, report.kpis, report.intervals
    budget = report.memory.budget
    found: list[_Share] = []
    known: tuple[tuple[str, str, Meaning, float, str], ...] = (
        ("mfu", "MFU", "compute", 1.0, "of the BF16 peak"),
        ("hfu", "HFU", "recompute", 1.0, "of the peak, recomputation included"),
        ("exposed_communication_seconds", "Exposed comm.", "expert", step, "of the step"),
        ("bubble_fraction", "Bubble", "bubble", 1.0, "of the step"),
        ("peak_device_bytes", "Device memory", "activations", budget, "of the budget"),
    )
    for key, label, meaning, whole, of in known:
        if (value := kpis[key]) is None:
            continue
        interval = intervals[key]
        scaled = (interval[0] / whole, interval[1] / whole) if interval else None
        found.append(_Share(label, meaning, value / whole, scaled, of))
    return found


def _reach(row: _Share) -> tuple[list[float], list[float]] | None:
    if row.interval is None:
        return None
    low, high = row.interval
    return [100 * (row.value - low)], [100 * (high - row.value)]


def _interval_words(row: _Share) -> str:
    if row.interval is None:
        return ""
    return f", {show(row.interval[0], '%')} to {show(row.interval[1], '%')}"
