"""Sweeps: a key figure over the values of one field as a line, over two fields as cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Final

from twin.figures.charts import CLEAR, Clickable, clickable_dots, crosses, name_axis
from twin.figures.palette import GOOD, INK, Swatch, Theme, swatch
from twin.figures.plotly import Axis, Cells, Drawing, Frame, Line, Note, Picture, Row, draw
from twin.spec.kpis import Kpi

WHY_NOT: Final = "does not fit"
_ROW: Final = 44
"""Pixels of a row of cells."""


@dataclass(frozen=True, slots=True)
class SweepMark:
    """A point of a sweep: its values in words, its figure (None: it cannot run), the figure in
    words, whether it fits, and why not."""

    values: tuple[str, ...]
    figure: float | None
    shown: str
    fits: bool
    why: str
    name: str = ""
    """What a click on its mark chooses."""


def one_field(points: Sequence[SweepMark], path: str, kpi: Kpi, theme: Theme) -> Picture:
    """The key figure over the values of one field. Points that do not fit are hollow; points that
    cannot run are crosses at the bottom."""
    names = [one.values[0] for one in points]
    known = [one.figure for one in points if one.figure is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    room = 0.12 * (high - low) or 0.1 * abs(high) or 1.0
    base = low - room
    places = list(enumerate(points))
    fits = [(at, one.figure, one) for at, one in places if one.fits and one.figure is not None]
    line = [one.figure if one.fits and one.figure is not None else nan for one in points]
    good = Swatch(GOOD[theme], INK[theme], "")
    drawn: list[Drawing] = [
        Line([float(at) for at, _ in places], line, GOOD[theme], width=2),
        clickable_dots(_marks(fits), "Fits", good),
    ]
    unfit = [(at, one.figure, one) for at, one in places if not one.fits and one.figure is not None]
    never = [(at, base, one) for at, one in places if one.figure is None]
    if unfit:
        hollow = Swatch(CLEAR, swatch("other", theme).fill, "")
        drawn.append(clickable_dots(_marks(unfit), "Does not fit: its value if it did", hollow))
    drawn += crosses(_marks(never), "Cannot run", theme)
    frame = Frame(
        x=Axis(path, (-0.5, len(names) - 0.5), tuple((float(n), t) for n, t in enumerate(names))),
        y=Axis(f"{kpi.label}, {kpi.unit}", (base - room / 2, high + room)),
        height=300,
        theme=theme,
        width=640,
    )
    return Picture(
        title=_finding(points, kpi),
        caption=f"{kpi.label} at each value of `{path}`, nothing else changed; {kpi.better} is "
        "better. Grey marks do not fit or cannot run: hover, or see the table, for the reason.",
        figure=draw(drawn, frame),
        table=tuple(_row(one, (path,), kpi) for one in points),
    )


def _marks(own: Sequence[tuple[int, float, SweepMark]]) -> list[Clickable]:
    return [Clickable(float(at), y, one.name, _told(one)) for at, y, one in own]


def _told(one: SweepMark) -> str:
    words = ", ".join(one.values)
    said = one.shown if one.figure is not None else "cannot run"
    return f"<b>{words}</b><br>{said}" + (f"<br>{one.why}" if one.why else "")


def two_fields(
    points: Sequence[SweepMark], paths: tuple[str, str], kpi: Kpi, theme: Theme
) -> Picture:
    """The figure over the values of two fields as cells, the first field downwards; cells that do
    not fit or cannot run are empty, and say so."""
    rows = list(dict.fromkeys(one.values[0] for one in points))
    columns = list(dict.fromkeys(one.values[1] for one in points))
    placed = {one.values: one for one in points}
    table = [[placed.get((row, column)) for column in columns] for row in rows]
    values = [[_value(one) for one in line] for line in table]
    shown = [[one.shown if one and one.fits else "" for one in line] for line in table]
    known = [value for line in values for value in line if value == value]  # noqa: PLR0124  NaN
    grey = swatch("other", theme).fill
    notes = tuple(
        Note(float(x), float(y), f"✕ {_short(one)}", grey, "center")
        for y, line in enumerate(table)
        for x, one in enumerate(line)
        if one is not None and not one.fits
    )
    cells = Cells(
        columns, rows, values, shown, f"{paths[0]} %{{y}}, {paths[1]} %{{x}}: %{{text}}",
        kpi.unit, 0.9 * min(known, default=0.0),
    )  # fmt: skip
    frame = Frame(
        x=Axis(paths[1], names=tuple(columns), grid=False),
        y=replace(name_axis(rows), title=paths[0]),
        height=90 + _ROW * len(rows),
        theme=theme,
        width=640,
        notes=notes,
        legend=False,
    )
    return Picture(
        title=_finding(points, kpi),
        caption=f"{kpi.label} at each pair of values, nothing else changed; {kpi.better} is "
        "better. Empty cells with a cross do not fit or cannot run: the table has the reasons.",
        figure=draw([cells], frame),
        table=tuple(_row(one, paths, kpi) for one in points),
    )


def _value(one: SweepMark | None) -> float:
    return one.figure if one is not None and one.fits and one.figure is not None else nan


def _short(one: SweepMark) -> str:
    return WHY_NOT if one.figure is not None else "cannot run"


def _finding(points: Sequence[SweepMark], kpi: Kpi) -> str:
    fits = [one for one in points if one.fits and one.figure is not None]
    if not fits:
        return f"None of {len(points)} points fits"
    best = (min if kpi.better == "lower" else max)(fits, key=lambda one: one.figure or 0.0)
    worst = (max if kpi.better == "lower" else min)(fits, key=lambda one: one.figure or 0.0)
    said = f"{kpi.label} is best at {', '.join(best.values)}: {best.shown}"
    return said if best is worst else f"{said}; worst at {', '.join(worst.values)}: {worst.shown}"


def _row(one: SweepMark, paths: Sequence[str], kpi: Kpi) -> Row:
    values = dict(zip(paths, one.values, strict=True))
    fits = "fits" if one.fits else _short(one)
    return {**values, kpi.label: one.shown, "Fits": fits, "Why not": one.why}
