"""Accuracy: predictions against published measurements, median errors by group, and the coverage
of intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from twin.figures.charts import CLEAR, Clickable, clickable_dots, log_axis, name_axis, row_axis
from twin.figures.palette import INK, Meaning, Theme, series, swatch
from twin.figures.plotly import Axis, Bars, Drawing, Frame, Line, Mark, Picture, draw
from twin.reports.numbers import digits

BAND: Final = 0.2
"""How far off the dashed lines of the scatter are."""
_GROUPS: Final = 12
"""Groups with a look of their own, those with most rows; others share one."""
_WIDEST: Final = 1.0
"""Error at which a bar is cut; beyond, the number says it."""
_LEVEL: Final = 0.8
"""Share of measured values that intervals are meant to hold."""
_REST: Final = "others"
_LETTERS: Final = 21
"""Letters of a name in the legend; of a longer one both ends."""


@dataclass(frozen=True, slots=True)
class RowMark:
    """A published row: measured and predicted in one unit, above zero; the group whose look it has;
    whether it is held out (scored); and its hover text."""

    id: str
    group: str
    measured: float
    predicted: float
    judges: bool
    words: str


@dataclass(frozen=True, slots=True)
class GroupError:
    """Median errors of the same rows: by the twin, and by each baseline that answers them."""

    name: str
    rows: int
    twin: float
    others: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Intervals of a group, and how many contain the measurement."""

    name: str
    held: int
    intervals: int


def scatter(points: Sequence[RowMark], unit: str, title: str, theme: Theme) -> Picture:
    """Predicted against measured, log-log, a look per group; fitted rows are hollow."""
    values = [value for one in points for value in (one.measured, one.predicted)] or [1.0]
    x = log_axis(f"Measured, {unit}", values, lambda value: f"{value:g}")
    frame = Frame(
        x=x,
        y=replace(x, title=f"Predicted, {unit}"),
        height=520,
        theme=theme,
    )
    return Picture(
        title=title,
        caption="Each dot is a published row. On the line prediction equals measurement; the "
        f"dashed lines are {100 * BAND:.0f} % off. Hollow dots are fitted rows, or near copies of "
        "them: they are not scored.",
        figure=draw([*_lines(x, theme), *_dots(points, theme)], frame),
    )


def _lines(axis: Axis, theme: Theme) -> list[Drawing]:
    """The line of perfect prediction, and the errors of `BAND` beside it."""
    x = [10.0**end for end in axis.span or ()]
    grey = swatch("other", theme).line
    return [
        Line(x, x, INK[theme], width=1.5),
        Line(x, [(1 + BAND) * one for one in x], grey, width=1, dash="dash"),
        Line(x, [(1 - BAND) * one for one in x], grey, width=1, dash="dash"),
    ]


def _dots(points: Sequence[RowMark], theme: Theme) -> list[Drawing]:
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
                own_look = look if judges else replace(look, fill=CLEAR)
                marks = [Clickable(one.measured, one.predicted, one.id, one.words) for one in part]
                drawn.append(clickable_dots(marks, label, own_look, symbol, 7))
    return drawn


def _short(name: str) -> str:
    half = _LETTERS // 2
    return name if len(name) <= _LETTERS else f"{name[:half]}…{name[-half:]}"


_BASELINES: Final = (
    "The baselines know the same fitted rows, and nothing of layouts: `nearest` runs a row at the "
    "FLOP rate of the most similar one, `efficiency` at the usual share of its GPU's peak."
)
_BARS: Final[tuple[Meaning, ...]] = ("ideal", "tensor", "other")


def group_errors(
    groups: Sequence[GroupError], names: Sequence[str], what: str, theme: Theme
) -> Picture:
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
    frame = Frame(
        x=Axis("Median error, percent", span=(0.0, 104.0 * _WIDEST)),
        y=row_axis([f"{one.name} ({one.rows:,})" for one in groups]),
        height=70 + 58 * max(len(groups), 1),
        theme=theme,
    )
    return Picture(
        title=_beaten(groups, what),
        caption="The median error of each group; the number of rows is in "
        f"brackets. Bars end at {100 * _WIDEST:.0f} %. {_BASELINES if names else ''}",
        figure=draw(drawn, frame),
    )


def _beaten(groups: Sequence[GroupError], what: str) -> str:
    """In how many groups the twin has smaller errors than every baseline."""
    known = [one for one in groups if any(other is not None for other in one.others)]
    if not known:
        worst = max(groups, key=lambda one: one.twin)
        error = digits(100 * worst.twin)
        return f"Of {len(groups):,} {what}, {worst.name} has the largest median error: {error} %"
    won = sum(one.twin < min(x for x in one.others if x is not None) for one in known)
    return f"In {won:,} of {len(known):,} {what} the twin is closer than the baselines"


def coverage(groups: Sequence[Coverage], theme: Theme) -> Picture:
    """The share of measurements inside their 80 % interval by group; the first group is all."""
    names = [f"{one.name} ({one.held:,} of {one.intervals:,})" for one in groups]
    bars = Bars(
        name="Inside the 80 % interval",
        swatch=swatch("ideal", theme),
        x=[100 * one.held / one.intervals for one in groups],
        y=names,
        hover="%{y}: %{x:.0f} %",
    )
    frame = Frame(
        x=Axis("Measurements inside their 80 % interval, percent", span=(0.0, 100.0)),
        y=name_axis(names),
        height=60 + 30 * len(groups),
        theme=theme,
        legend=False,
        marks=(Mark(100 * _LEVEL, "target: 80 %", INK[theme], anchor="center"),),
    )
    first = groups[0]
    share = digits(100 * first.held / first.intervals)
    return Picture(
        title=f"{share} % of {first.intervals:,} measurements are inside their 80 % interval",
        caption="Left of the dashed line the intervals of that group are too narrow, right of it "
        "too wide. Groups of few rows say little.",
        figure=draw([bars], frame),
    )
