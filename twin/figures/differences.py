"""Plans against a baseline: step time by cause, by input that differs, and by uncertain number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twin.figures.charts import Ranked, Rung, cascade, name_axis, ranking, row_axis
from twin.figures.palette import BAD, GOOD, INK, Swatch, Theme, swatch
from twin.figures.plotly import Axis, Bars, Drawing, Frame, Mark, Picture, Row, draw
from twin.figures.step import LEGEND, MEANING
from twin.reports.breakdown import CAUSES
from twin.reports.compare import Comparison, Delta
from twin.reports.table import show
from twin.spec.kpis import Kpi, Unit


@dataclass(frozen=True, slots=True)
class Swing:
    """What a key figure would change by if one uncertain number were at either end of its range."""

    label: str
    low: str
    high: str
    """The ends of the range, as written."""
    at_low: float
    at_high: float
    """Change of the key figure there, in its unit."""
    source: str
    """Where the range comes from."""


def lengths(reports: Sequence[Any], kpi: Kpi, title: str, theme: Theme) -> Picture:
    """One key figure of several answers, the baseline first."""
    values: list[float | None] = [one.kpis[kpi.key] for one in reports]
    rows = [
        Ranked(
            one.name,
            value or 0.0,
            swatch("achieved" if one is reports[0] else "ideal", theme),
            show(value, kpi.unit) + ("" if one.fits else ", does not fit"),
        )
        for one, value in zip(reports, values, strict=True)
    ]
    x = Axis(f"{kpi.label}, {kpi.unit}", span=(0.0, 1.04 * max(one.length for one in rows)))
    return Picture(
        title=title,
        caption=f"{kpi.label} of each plan; the first bar is the baseline.",
        figure=ranking(rows, x, theme, row=44),
        table=tuple({"Plan": one.name, kpi.label: one.text} for one in rows),
    )


def step_deltas(comparison: Comparison, theme: Theme) -> Picture:
    """Seconds that each candidate's step has more or less of each cause than the baseline's."""
    used = [c for c in CAUSES if any(delta.breakdown_ns[c] for delta in comparison.deltas)]
    names = [delta.name for delta in comparison.deltas]
    drawings: list[Drawing] = [
        Bars(
            name=LEGEND[cause],
            swatch=swatch(MEANING[cause], theme),
            x=[delta.breakdown_ns[cause] / 1e9 for delta in comparison.deltas],
            y=names,
            detail=[[signed(delta.breakdown_ns[cause] / 1e9)] for delta in comparison.deltas],
            hover=f"%{{y}}<br>{LEGEND[cause]}: %{{customdata[0]}}",
        )
        for cause in used
    ]
    frame = Frame(
        x=Axis("Seconds, against the baseline"),
        y=name_axis(()),
        height=80 + 44 * len(names),
        theme=theme,
        marks=(Mark(0.0, "baseline", INK[theme], dash="solid", anchor="center"),),
    )
    rows = [
        {"Cause": LEGEND[cause]}
        | {delta.name: signed(delta.breakdown_ns[cause] / 1e9) for delta in comparison.deltas}
        for cause in used
    ]
    total = {"Cause": "Step"} | {
        delta.name: signed(delta.step_delta_ns / 1e9) for delta in comparison.deltas
    }
    return Picture(
        title="\n".join(_step_finding(delta) for delta in comparison.deltas),
        caption=(
            f"Left of the line: less time than {comparison.reports[0].name}. Right: more. A bar's "
            "parts sum to the difference."
        ),
        figure=draw(drawings, frame),
        table=(*rows, total),
    )


def _step_finding(delta: Delta) -> str:
    worst = max(delta.breakdown_ns, key=lambda cause: abs(delta.breakdown_ns[cause]))
    return (
        f"{delta.name}: {signed(delta.step_delta_ns / 1e9)} per step, the "
        f"largest part {LEGEND[worst].lower()} ({signed(delta.breakdown_ns[worst] / 1e9)})"
    )


def attribution(
    base: tuple[str, float],
    other: tuple[str, float],
    causes: Sequence[tuple[str, float]],
    theme: Theme,
) -> Picture:
    """From one plan's step to another's: `base` and `other` are their names and seconds, `causes`
    the inputs that differ with the seconds each is worth, which sum to the difference."""
    named = [(label, seconds) for label, seconds in causes if abs(seconds) >= 5e-10]
    look = swatch("compute", theme)
    rungs = [Rung(base[0], 0.0, base[1], look, show(base[1], "s"), show(base[1], "s"))]
    for label, seconds in sorted(named, key=lambda cause: -abs(cause[1])):
        colour = (BAD if seconds > 0 else GOOD)[theme]
        rungs.append(
            Rung(
                label,
                rungs[-1].end,
                seconds,
                Swatch(colour, colour, "/" if seconds > 0 else "."),
                signed(seconds),
                f"<b>{label}</b>: {signed(seconds)}",
            )
        )
    rungs.append(Rung(other[0], 0.0, other[1], look, show(other[1], "s"), show(other[1], "s")))
    return Picture(
        title=_attribution_finding(base, other, named),
        caption=(
            "Each bar is the effect of one changed input, averaged over the orders in which inputs "
            "could change."
        ),
        figure=cascade(rungs, "Seconds of one step", theme),
        table=(
            {"Input": base[0], "Step": show(base[1], "s")},
            *({"Input": rung.label, "Step": rung.text} for rung in rungs[1:-1]),
            {"Input": other[0], "Step": show(other[1], "s")},
        ),
    )


def _attribution_finding(
    base: tuple[str, float], other: tuple[str, float], named: Sequence[tuple[str, float]]
) -> str:
    if not named:
        return f"{other[0]} takes as long a step as {base[0]}: no input makes a difference"
    label, seconds = max(named, key=lambda cause: abs(cause[1]))
    return (
        f"{other[0]}: {signed(other[1] - base[1])} per step against {base[0]}; {label} is worth "
        f"most, {signed(seconds)}"
    )


def tornado(
    swings: Sequence[Swing], figure: str, unit: Unit, theme: Theme, most: int = 12
) -> Picture:
    """Change of one key figure (its name and unit) over the range of each uncertain number, the
    widest first, at most so many."""
    widest = sorted(swings, key=lambda one: -abs(one.at_high - one.at_low))[:most]
    # Bars at the low and at the high end overlap where both ends push to the same side.
    drawings: list[Drawing] = [
        _ends(widest, "low", unit, theme),
        _ends(widest, "high", unit, theme),
    ]
    reach = max((abs(end) for one in widest for end in (one.at_low, one.at_high)), default=0.0)
    frame = Frame(
        x=Axis(f"Change of {figure}, {unit}", span=(-1.04 * (reach or 1.0), 1.04 * (reach or 1.0))),
        y=row_axis([f"{one.label}<br>{one.low} to {one.high}" for one in widest]),
        height=60 + 54 * max(len(widest), 1),
        theme=theme,
        marks=(Mark(0.0, "as planned", INK[theme], dash="solid", anchor="center"),),
    )
    return Picture(
        title=_tornado_finding(widest, figure, unit),
        caption=(
            "Each number moves alone to the low and the high end of its range. Effects of several "
            "may not add up."
        ),
        figure=draw(drawings, frame),
        table=tuple(_swing_row(one, figure, unit) for one in widest),
    )


def _ends(widest: Sequence[Swing], end: str, unit: Unit, theme: Theme) -> Bars:
    low = end == "low"
    look = swatch("pipeline" if low else "tensor", theme)
    sizes = [one.at_low if low else one.at_high for one in widest]
    ranges = [one.low if low else one.high for one in widest]
    return Bars(
        name=f"At the {end} end of its range",
        swatch=Swatch(look.fill, look.line, "" if low else "/"),
        x=sizes,
        y=[at + (-0.2 if low else 0.2) for at in range(len(widest))],
        base=[0.0] * len(widest),
        thickness=[0.38] * len(widest),
        text=[signed(size, unit) for size in sizes],
        outside=True,
        detail=[[one.label, end, one.source] for one, end in zip(widest, ranges, strict=True)],
        hover="<b>%{customdata[0]}</b> at %{customdata[1]}: %{text}<br>%{customdata[2]}",
    )


def _tornado_finding(widest: Sequence[Swing], figure: str, unit: Unit) -> str:
    if not widest or not any(one.at_low or one.at_high for one in widest):
        return f"No uncertain number changes {figure}"
    first = widest[0]
    low, high = sorted((first.at_low, first.at_high))
    return (
        f"{first.label} matters most for {figure}: from {signed(low, unit)} to "
        f"{signed(high, unit)} over its range"
    )


def _swing_row(one: Swing, figure: str, unit: Unit) -> Row:
    return {
        "Number": one.label,
        "Low": one.low,
        f"{figure} there": signed(one.at_low, unit),
        "High": one.high,
        f"{figure} then": signed(one.at_high, unit),
        "Range from": one.source,
    }


def signed(value: float, unit: Unit = "s") -> str:
    """A change with its sign: `+1.20 s`."""
    if value == 0:
        return "no change"
    return f"{'-' if value < 0 else '+'}{show(abs(value), unit)}"
