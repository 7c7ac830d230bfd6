"""Layouts as points of days and cost, those that nobody would refuse on a line; and one layout over
sizes of the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Final, Literal

from twin.figures.palette import GOOD, INK, Theme, series, swatch
from twin.figures.plotly import Axis, Dots, Drawing, Frame, Line, Note, Picture, Row, draw
from twin.reports.numbers import count, digits

LOG_FROM: Final = 3.0
"""Largest over smallest figure from which an axis is logarithmic."""
_CLEAR: Final = "rgba(0,0,0,0)"
Role = Literal["picked", "frontier", "fits", "unfit"]


@dataclass(frozen=True, slots=True)
class Point:
    """A layout: days and cost of its run, the group whose look it has, and what is told of it."""

    id: str
    group: str
    days: float
    cost: float
    role: Role
    words: str


@dataclass(frozen=True, slots=True)
class Limits:
    """What is asked for: days, and dollars; None: no limit."""

    days: float | None = None
    cost: float | None = None


def pareto(points: Sequence[Point], limits: Limits, title: str, unit: str, theme: Theme) -> Picture:
    """Days against cost (`unit`), a look per group, the frontier as a line, what does not fit grey
    and hollow."""
    xs, ys = [one.days for one in points], [one.cost for one in points]
    x = _axis("Run time without failures, days", [*xs, limits.days or xs[0]], "d")
    y = _axis(f"Cost without failures, {unit}", [*ys, limits.cost or ys[0]], "")
    drawn: list[Drawing] = [*_limits(limits, x, y, theme)]
    drawn += [*_unfit(points, theme), *_frontier(points, theme), *_groups(points, theme)]
    drawn += _picked(points, theme)
    return Picture(
        title=title,
        caption="Each mark is a layout on one size of the cluster; further left is sooner, further "
        "down is cheaper. No layout is both sooner and cheaper than one on the line. Grey crosses "
        "would be there if they fitted in memory. Click a mark to open it as a scenario.",
        figure=draw(drawn, Frame(x, y, height=400, theme=theme, width=640)),
    )


def _axis(title: str, values: Sequence[float], unit: str) -> Axis:
    """A logarithmic axis where figures differ much, with ticks that people read."""
    low, high = min(values), max(values)
    if high <= LOG_FROM * low or low <= 0:
        room = 0.06 * (high - low) or 0.1 * high or 1.0
        return Axis(title, (max(0.0, low - room), high + room))
    first, last = log10(low), log10(high)
    room = 0.06 * (last - first)
    factors = (1, 2, 5) if last - first < 3 else (1,)
    ticks = tuple(
        (value, f"{count(value)} {unit}".strip())
        for at in range(floor(first - room), ceil(last + room) + 1)
        for factor in factors
        if first - room <= log10(value := factor * 10.0**at) <= last + room
    )
    return Axis(title, (first - room, last + room), ticks, logarithmic=True)


def _ends(axis: Axis) -> list[float]:
    """Where an axis begins and ends, in its unit."""
    assert axis.span is not None
    return [10.0**end if axis.logarithmic else end for end in axis.span]


def _limits(limits: Limits, x: Axis, y: Axis, theme: Theme) -> list[Drawing]:
    """Lines that the goal draws: left of and below them it is met."""
    found: list[Drawing] = []
    if limits.days is not None:
        name = f"Deadline, {digits(limits.days)} d"
        found.append(Line([limits.days] * 2, _ends(y), INK[theme], name, 1.5, "dot"))
    if limits.cost is not None:
        name = f"Budget, {count(limits.cost)} USD"
        found.append(Line(_ends(x), [limits.cost] * 2, INK[theme], name, 1.5, "dash"))
    return found


def _dots(own: Sequence[Point], name: str, look: tuple[str, str, str, float]) -> Dots:
    fill, line, symbol, size = look
    return Dots(
        name,
        [one.days for one in own],
        [one.cost for one in own],
        fill,
        line,
        symbol,
        size,
        "%{customdata[1]}",
        detail=[[one.id, one.words] for one in own],
        outline=1.5,
    )


def _unfit(points: Sequence[Point], theme: Theme) -> list[Drawing]:
    own = [one for one in points if one.role == "unfit"]
    grey = swatch("other", theme).fill
    return [_dots(own, "Does not fit", (grey, grey, "x-thin-open", 9))] if own else []


def _frontier(points: Sequence[Point], theme: Theme) -> list[Drawing]:
    own = sorted((one.days, one.cost) for one in points if one.role in ("picked", "frontier"))
    if len(own) < 2:
        return []
    days, cost = zip(*own, strict=True)
    return [Line(days, cost, GOOD[theme], "Frontier", 2)]


def _groups(points: Sequence[Point], theme: Theme) -> list[Drawing]:
    """The layouts that fit, a colour and a shape for each group."""
    names = list(dict.fromkeys(one.group for one in points if one.role != "unfit"))
    found: list[Drawing] = []
    for at, name in enumerate(names):
        look, symbol = series(at, theme)
        own = [one for one in points if one.group == name and one.role in ("frontier", "fits")]
        if own:
            found.append(_dots(own, name, (look.fill, look.line, symbol, 10)))
    return found


def _picked(points: Sequence[Point], theme: Theme) -> list[Drawing]:
    """The recommended one, as a star in its group's colour."""
    names = list(dict.fromkeys(one.group for one in points if one.role != "unfit"))
    own = [one for one in points if one.role == "picked"]
    return [
        _dots([one], "Recommended", (series(names.index(one.group), theme)[0].fill, INK[theme],
                                     "star", 19))
        for one in own
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Size:
    """One layout on a size of the cluster; `days` None: it does not fit or cannot run, and why."""

    gpus: int
    days: float | None
    words: str
    id: str = ""
    now: bool = False
    """Whether this is the size of the plan."""


def scaling(sizes: Sequence[Size], fidelity: str, theme: Theme) -> Picture:
    """Days of one layout over sizes of the cluster, beside what they would be if every GPU did as
    much as on the smallest that fits."""
    known = [(one, one.days) for one in sizes if one.days is not None]
    (first, most), fits = known[0], [one for one, _ in known]
    days = [value for _, value in known]
    ideal = [most * first.gpus / one.gpus for one in fits]
    shares = [100 * best / value for best, value in zip(ideal, days, strict=True)]
    missing = [one for one in sizes if one.days is None]
    every = sorted(one.gpus for one in sizes)
    span = (log10(every[0]) - 0.08, log10(every[-1]) + 0.16)
    y = _axis("Run time without failures, days", [*days, *ideal], "d")
    grey = swatch("other", theme).fill
    low, high = _ends(y)
    # A little above the axis, which would cut the crosses.
    floor_at = low * (high / low) ** 0.05 if y.logarithmic else low + 0.05 * (high - low)
    drawn: list[Drawing] = [
        Line([one.gpus for one in fits], ideal, grey, "If no GPU did less", 1.5, "dash"),
        Line([one.gpus for one in fits], days, GOOD[theme], width=2),
        *_sizes([one for one in fits if not one.now], "This layout", "circle", 10, theme),
        *_sizes([one for one in fits if one.now], "The plan's size", "star", 18, theme),
    ]
    if missing:
        drawn.append(
            Dots("Cannot run, or does not fit", [one.gpus for one in missing],
                 [floor_at] * len(missing), grey, grey, "x-thin-open", 11, "%{customdata[1]}",
                 detail=[[one.id, one.words] for one in missing], outline=2)
        )  # fmt: skip
    notes = tuple(
        Note(
            log10(one.gpus) + 0.03, log10(at) if y.logarithmic else at, f"{share:.0f} %", INK[theme]
        )
        for one, at, share in zip(fits, days, shares, strict=True)
    )
    x = Axis("GPUs", span, tuple((float(one), f"{one:,}") for one in every), logarithmic=True)
    return Picture(
        title=_scaling_finding(known, shares),
        caption="The plan's own layout with nothing changed but the number of nodes "
        f"({fidelity}). The percentage is what each GPU does of what it does on the smallest size "
        "that fits; on the dashed line it would be 100 %.",
        figure=draw(drawn, Frame(x, y, height=300, theme=theme, width=640, notes=notes)),
        table=tuple(_scaling_row(one, most * first.gpus) for one in sizes),
    )


def _sizes(own: Sequence[Size], name: str, symbol: str, size: float, theme: Theme) -> list[Drawing]:
    if not own:
        return []
    return [
        Dots(
            name,
            [one.gpus for one in own],
            [one.days or 0.0 for one in own],
            GOOD[theme],
            INK[theme],
            symbol,
            size,
            "%{customdata[1]}",
            detail=[[one.id, one.words] for one in own],
        )
    ]


def _scaling_finding(known: Sequence[tuple[Size, float]], shares: Sequence[float]) -> str:
    (first, most), (last, least) = known[0], known[-1]
    if first is last:
        return f"Of these sizes the layout runs on {first.gpus:,} GPUs only: {digits(most)} days"
    return (
        f"{digits(last.gpus / first.gpus)} times the GPUs take the run from {digits(most)} to "
        f"{digits(least)} days: each GPU then does {shares[-1]:.0f} % of what it did"
    )


def _scaling_row(one: Size, work: float) -> Row:
    share = "" if one.days is None else f"{100 * work / one.gpus / one.days:.0f} %"
    said = one.words.replace("<b>", "").replace("</b>", "").split("<br>")
    return {
        "GPUs": f"{one.gpus:,}",
        "Run time, no failures": "" if one.days is None else f"{digits(one.days)} d",
        "Per GPU": share,
        "Said of it": "; ".join(said[1:]),
    }
