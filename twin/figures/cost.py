"""Cost of a run: days lost by cause, dollars and watts by part.

Sweeps: a key figure over the values of one field as a line, over two fields as cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Final

from twin.figures.charts import CLEAR, Clickable, clickable_dots, crosses, name_axis
from twin.figures.palette import GOOD, INK, Meaning, Swatch, Theme, swatch
from twin.figures.plotly import Axis, Bars, Cells, Drawing, Frame, Line, Note, Picture, Row, draw
from twin.goodput import LOSSES, Goodput
from twin.goodput.closed import Loss
from twin.loading.files import table
from twin.reports.table import digits, show
from twin.spec.kpis import Kpi, Unit

_MEANING: Final[dict[Loss, Meaning]] = table(__name__, "_MEANING")
_NAMES: Final[dict[Loss, str]] = table(__name__, "_NAMES")
_PARTS: Final[dict[str, tuple[str, Meaning]]] = table(__name__, "_PARTS")
"""Parts of cost and power in words, and their looks."""
_SIMULATED: Final = "simulated"
_CLOSED: Final = "closed form"


def days_lost(found: Goodput, theme: Theme) -> Picture:
    """Days without progress by cause, in simulation, with what 80 % of the runs lost, and in the
    closed form."""
    wall = found.wall_ns / 86400e9
    progress = found.useful_ns / 86400e9
    rows: dict[Loss, tuple[float, float]] = {
        name: (found.losses_ns[name] / 86400e9, found.expected_losses[name] * wall)
        for name in LOSSES
        if found.losses_ns[name] or found.expected_losses[name]
    }
    lost = wall - progress
    drawn: list[Drawing] = []
    for at, (name, days) in enumerate(rows.items()):
        last = at == len(rows) - 1
        low, high = (_lost(progress, share) for share in reversed(found.interval))
        drawn.append(
            Bars(
                _NAMES[name],
                swatch(_MEANING[name], theme),
                x=list(days),
                y=[_SIMULATED, _CLOSED],
                hover=f"{LOSSES[name]}: %{{x:.3g}} days",
                reach=([max(0.0, lost - low), 0.0], [max(0.0, high - lost), 0.0]) if last else None,
            )
        )
    frame = Frame(
        x=Axis("Days without progress"),
        y=name_axis((_SIMULATED, _CLOSED)),
        height=170,
        theme=theme,
    )
    share = 100 * found.fraction
    return Picture(
        title=f"Of {digits(wall)} days {digits(lost)} are lost: {share:.1f} % of the time makes "
        "progress" + (f"; most goes to {_worst(found)}" if rows else ""),
        caption=f"Mean of {found.seeds} simulated runs; the whisker spans the total loss of 80 % "
        "of them. The closed form is a check by formulas, with unlimited spares.",
        figure=draw(drawn, frame),
        table=tuple(_loss_row(name, days, wall) for name, days in rows.items()),
    )


def _lost(progress: float, share: float) -> float:
    """Days lost beside so many of progress, where that is a share of the time."""
    return progress / share - progress if share else 0.0


def _worst(found: Goodput) -> str:
    worst = max(found.losses_ns, key=lambda name: found.losses_ns[name])
    return _NAMES[worst].lower()


def _loss_row(name: Loss, days: tuple[float, float], wall: float) -> Row:
    return {
        "Lost to": LOSSES[name],
        "Simulated": f"{digits(days[0])} d",
        "Share": f"{100 * days[0] / wall:.2f} %",
        "Closed form": f"{digits(days[1])} d",
    }


def amounts(
    rows: Mapping[str, Mapping[str, float]], unit: Unit, what: str, theme: Theme
) -> Picture:
    """Amounts by part, a stacked bar for each row; `what` names the amount."""
    names = list(dict.fromkeys(name for own in rows.values() for name in own))
    shown = [name for name in names if any(own.get(name) for own in rows.values())]
    drawn: list[Drawing] = [
        Bars(
            _PARTS[name][0],
            swatch(_PARTS[name][1], theme),
            x=[own.get(name, 0.0) for own in rows.values()],
            y=list(rows),
            text=[show(own.get(name, 0.0), unit) for own in rows.values()],
            hover=f"{_PARTS[name][0]}, %{{y}}: %{{text}}",
        )
        for name in shown
    ]
    frame = Frame(
        x=Axis(f"{what}, {unit}"),
        y=name_axis(rows),
        height=70 + 50 * len(rows),
        theme=theme,
    )
    totals = {row: sum(own.values()) for row, own in rows.items()}
    said = ", ".join(f"{show(total, unit)} {row}" for row, total in totals.items())
    return Picture(
        title=f"{what}: {said}",
        caption=f"{what} by part; the parts of a bar sum to the figure above.",
        figure=draw(drawn, frame),
        table=tuple(
            {"Part": _PARTS[name][0]}
            | {row.capitalize(): show(own.get(name, 0.0), unit) for row, own in rows.items()}
            for name in shown
        ),
    )


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
