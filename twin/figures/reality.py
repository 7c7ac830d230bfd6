"""What others measured beside what was predicted: row by row, by family, and how often intervals
held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Final

from twin.figures.palette import INK, Meaning, Theme, series, swatch
from twin.figures.plotly import Axis, Bars, Dots, Drawing, Frame, Line, Mark, Picture, draw
from twin.reports.numbers import digits

BAND: Final = 0.2
"""How far off the dashed lines of the scatter are."""
_GROUPS: Final = 12
"""Groups with a look of their own, those with most rows; others share one."""
_WIDEST: Final = 1.0
"""Error at which a bar is cut; beyond, the number says it."""
_LEVEL: Final = 0.8
"""Share of measured values that intervals are meant to hold."""
_CLEAR: Final = "rgba(0,0,0,0)"
_REST: Final = "others"
_LETTERS: Final = 21
"""Letters of a name in the legend; of a longer one both ends."""
_DECADES: Final = 2.5
"""Powers of ten on an axis that need no values between them."""


@dataclass(frozen=True, slots=True)
class Point:
    """A row: measured and predicted in one unit, above zero; the group whose look it has; whether
    it judges; and what is told of it beside."""

    id: str
    group: str
    measured: float
    predicted: float
    judges: bool
    words: str


@dataclass(frozen=True, slots=True)
class Missed:
    """Median errors of the same rows: by the twin, and by each baseline that answers them."""

    name: str
    rows: int
    twin: float
    others: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """Intervals of a group, and how many of them hold what was measured."""

    name: str
    held: int
    intervals: int


def scatter(points: Sequence[Point], unit: str, title: str, theme: Theme) -> Picture:
    """Predicted against measured, log-log, a look per group; rows that a fit has seen are
    hollow."""
    low, high = _span(points)
    span, ticks = (low, high), _ticks(low, high)
    frame = Frame(
        x=Axis(f"Measured, {unit}", span, ticks, logarithmic=True),
        y=Axis(f"Predicted, {unit}", span, ticks, logarithmic=True),
        height=520,
        theme=theme,
    )
    return Picture(
        title=title,
        caption="Each dot is a published row. On the line, predicted is what was measured; the "
        f"dashed lines are {100 * BAND:.0f} % off; below it too little was predicted. Hollow dots "
        "are rows that a fit has seen, or near copies of those: they judge nothing.",
        figure=draw([*_lines(low, high, theme), *_dots(points, theme)], frame),
    )


def _span(points: Sequence[Point]) -> tuple[float, float]:
    """Exponents of ten that both axes reach."""
    values = [value for one in points for value in (one.measured, one.predicted)] or [1.0]
    low, high = log10(min(values)), log10(max(values))
    room = 0.04 * (high - low) + 0.05
    return low - room, high + room


def _ticks(low: float, high: float) -> tuple[tuple[float, str], ...]:
    """Labelled values: powers of ten; where these are few, their doubles and fives, too."""
    factors = (1, 2, 5) if high - low < _DECADES else (1,)
    values = (f * 10.0**at for at in range(floor(low), ceil(high) + 1) for f in factors)
    return tuple((value, f"{value:g}") for value in values if low <= log10(value) <= high)


def _lines(low: float, high: float, theme: Theme) -> list[Drawing]:
    """Where predicted is measured, and a fifth beside it."""
    x = [10.0**low, 10.0**high]
    grey = swatch("other", theme).line
    return [
        Line(x, x, INK[theme], width=1.5),
        Line(x, [(1 + BAND) * one for one in x], grey, width=1, dash="dash"),
        Line(x, [(1 - BAND) * one for one in x], grey, width=1, dash="dash"),
    ]


def _dots(points: Sequence[Point], theme: Theme) -> list[Drawing]:
    """Dots of each group, the largest group at the back; of a group the hollow ones first."""
    sizes: dict[str, int] = {}
    for one in points:
        sizes[one.group] = sizes.get(one.group, 0) + 1
    ranked = sorted(sizes, key=lambda name: (-sizes[name], name))
    shown = ranked if len(ranked) <= _GROUPS else ranked[: _GROUPS - 1]
    drawn: list[Drawing] = []
    names = [*shown, _REST] if len(shown) < len(ranked) else shown
    for at, name in enumerate(names):
        look, symbol = series(at, theme)
        own = [one for one in points if (one.group if one.group in shown else _REST) == name]
        for judges in (False, True):
            part = [one for one in own if one.judges is judges]
            if part:
                both = judges or not any(one.judges for one in own)
                label = _short(name) if both else ""
                fill = look.fill if judges else _CLEAR
                drawn.append(_series(part, label, (fill, look.line, symbol)))
    return drawn


def _short(name: str) -> str:
    half = _LETTERS // 2
    return name if len(name) <= _LETTERS else f"{name[:half]}…{name[-half:]}"


def _series(part: Sequence[Point], label: str, look: tuple[str, str, str]) -> Dots:
    fill, line, symbol = look
    return Dots(
        label,
        [one.measured for one in part],
        [one.predicted for one in part],
        fill,
        line,
        symbol,
        7,
        "%{customdata[1]}",
        detail=[[one.id, one.words] for one in part],
    )


_BASELINES: Final = (
    "The baselines know the same fitted rows, and nothing of layouts: `nearest` runs a row at the "
    "FLOP rate of the most similar one, `efficiency` at the usual share of its GPU's peak."
)
_BARS: Final[tuple[Meaning, ...]] = ("ideal", "tensor", "other")


def missed(groups: Sequence[Missed], names: Sequence[str], what: str, theme: Theme) -> Picture:
    """Median errors of groups, ours above those of the baselines called `names`."""
    every = ("The twin", *names)
    thickness = 0.8 / len(every)
    drawn: list[Drawing] = []
    for at, (name, meaning) in enumerate(zip(every, _BARS, strict=False)):
        known = [
            (place, errors[at], one)
            for place, one in enumerate(groups)
            if (errors := (one.twin, *one.others))[at] is not None
        ]
        sizes = [size or 0.0 for _, size, _ in known]
        drawn.append(
            Bars(
                name=name,
                swatch=swatch(meaning, theme),
                x=[100 * min(size, _WIDEST) for size in sizes],
                y=[place + (at - (len(every) - 1) / 2) * thickness for place, _, _ in known],
                base=[0.0] * len(known),
                thickness=[0.9 * thickness] * len(known),
                text=[f"{digits(100 * size)} %" for size in sizes],
                outside=True,
                detail=[[one.name] for _, _, one in known],
                hover=f"%{{customdata[0]}}, {name}: %{{text}}",
            )
        )
    ticks = tuple((float(at), f"{one.name} ({one.rows:,})") for at, one in enumerate(groups))
    frame = Frame(
        x=Axis("Median error, percent", span=(0.0, 104.0 * _WIDEST)),
        y=Axis(span=(-0.6, len(groups) - 0.4), ticks=ticks, reverse=True, grid=False),
        height=70 + 58 * max(len(groups), 1),
        theme=theme,
    )
    return Picture(
        title=_beaten(groups, what),
        caption="Half of a group's rows are missed by less than its bar; how many rows stands in "
        f"brackets. Bars end at {100 * _WIDEST:.0f} %. {_BASELINES if names else ''}",
        figure=draw(drawn, frame),
    )


def _beaten(groups: Sequence[Missed], what: str) -> str:
    """In how many groups the twin is closer than every baseline."""
    known = [one for one in groups if any(other is not None for other in one.others)]
    if not known:
        worst = max(groups, key=lambda one: one.twin)
        return (
            f"Of {len(groups):,} {what}, {worst.name} is missed most: {digits(100 * worst.twin)} %"
        )
    won = sum(one.twin < min(x for x in one.others if x is not None) for one in known)
    return f"In {won:,} of {len(known):,} {what} the twin is closer than the baselines"


def held(groups: Sequence[Held], theme: Theme) -> Picture:
    """The share of intervals that hold, group by group; the first is of all."""
    names = [f"{one.name} ({one.held:,} of {one.intervals:,})" for one in groups]
    bars = Bars(
        name="Intervals that hold",
        swatch=swatch("ideal", theme),
        x=[100 * one.held / one.intervals for one in groups],
        y=names,
        hover="%{y}: %{x:.0f} %",
    )
    frame = Frame(
        x=Axis("Intervals that hold, percent", span=(0.0, 100.0)),
        y=Axis(reverse=True, grid=False, names=tuple(names)),
        height=60 + 30 * len(groups),
        theme=theme,
        legend=False,
        marks=(Mark(100 * _LEVEL, "meant: 80 %", INK[theme], anchor="center"),),
    )
    first = groups[0]
    share = digits(100 * first.held / first.intervals)
    return Picture(
        title=f"Of {first.intervals:,} intervals meant to hold 80 % of what is measured, "
        f"{share} % did",
        caption="Left of the dashed line intervals are too narrow for that group, right of it they "
        "are wider than they would have to be. A few rows say little.",
        figure=draw([bars], frame),
    )
