"""Charts that several figures share: rankings, cascades, clickable marks, and their axes.

Views: the figures of an answer as a page lays them out, each with the choices that a reader
has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, log10
from typing import Any, Final, Literal

import numpy as np

from twin.figures.drawing import Axis, Bars, Dots, Drawing, Frame, Line, Mark
from twin.figures.palette import INK, Swatch, Theme, swatch
from twin.figures.plotly import Figure, Picture, draw
from twin.reports.table import count

CLEAR = "rgba(0,0,0,0)"
"""The fill of hollow marks."""
PERCENT_TICKS = tuple((float(at), str(at)) for at in range(0, 101, 20))
"""Labels of an axis that ends at 100 %."""
ROW = 26
"""Pixels of one rung."""


def row_axis(labels: Sequence[str]) -> Axis:
    """Labelled rows at 0, 1, 2, ... from top to bottom."""
    ticks = tuple((float(at), label) for at, label in enumerate(labels))
    return Axis(span=(-0.6, max(len(labels), 1) - 0.4), ticks=ticks, reverse=True, grid=False)


def name_axis(names: Iterable[str]) -> Axis:
    """Named rows from top to bottom, for bars whose `y` are names."""
    return Axis(names=tuple(names), reverse=True, grid=False)


def log_axis(title: str, values: Sequence[float], label: Callable[[float], str] = count) -> Axis:
    """A logarithmic axis around positive values, labelled at round numbers."""
    low, high = log10(min(values)), log10(max(values))
    room = 0.06 * (high - low) or 0.3
    span = (low - room, high + room)
    factors = (1, 2, 5) if high - low < 3 else (1,)
    ticks = tuple(
        (value, label(value))
        for power in range(floor(span[0]), ceil(span[1]) + 1)
        for factor in factors
        if span[0] <= log10(value := factor * 10.0**power) <= span[1]
    )
    return Axis(title, span, ticks, logarithmic=True)


@dataclass(frozen=True, slots=True)
class Ranked:
    """One bar of a ranking: its name, length and look, the text beside it, and the hover text (the
    text where empty)."""

    name: str
    length: float
    swatch: Swatch
    text: str
    hover: str = ""
    edge: str | None = None
    """Colour of the outline; None: that of the swatch."""


def ranking(rows: Sequence[Ranked], x: Axis, theme: Theme, *, row: int = 36) -> Figure:
    """Named bars with their values beside them, from top to bottom, `row` pixels each."""
    bars = [
        Bars(
            name=one.name,
            swatch=one.swatch,
            x=[one.length],
            y=[one.name],
            text=[one.text],
            outside=True,
            hover=one.hover or f"{one.name}: {one.text}",
            edge=one.edge,
        )
        for one in rows
    ]
    height = 60 + row * max(len(rows), 1)
    names = name_axis(one.name for one in rows)
    return draw(bars, Frame(x=x, y=names, height=height, theme=theme, legend=False))


@dataclass(frozen=True, slots=True)
class Clickable:
    """A mark that can be clicked: its place, the name that a click chooses, and its hover text."""

    x: float
    y: float
    id: str
    words: str


def clickable_dots(
    spots: Sequence[Clickable], name: str, look: Swatch, symbol: str = "circle", size: float = 10
) -> Dots:
    """Marks of one series; a click gives the `id` of the mark."""
    return Dots(
        name,
        [one.x for one in spots],
        [one.y for one in spots],
        look.fill,
        look.line,
        symbol,
        size,
        "%{customdata[1]}",
        detail=[[one.id, one.words] for one in spots],
        outline=1.5,
    )


def crosses(spots: Sequence[Clickable], name: str, theme: Theme) -> list[Drawing]:
    """Grey crosses for what does not fit or cannot run; nothing where there is none."""
    grey = swatch("other", theme).fill
    return [clickable_dots(spots, name, Swatch(grey, grey, ""), "x-thin-open", 10)] if spots else []


@dataclass(frozen=True, slots=True)
class Rung:
    """One bar of a cascade: from `start` on by `size`, which may be negative; `text` stands beside
    it."""

    label: str
    start: float
    size: float
    swatch: Swatch
    text: str
    hover: str

    @property
    def end(self) -> float:
        """Where the next rung begins."""
        return self.start + self.size


def cascade(rungs: Sequence[Rung], title: str, theme: Theme, marks: Sequence[Mark] = ()) -> Figure:
    """Rungs from top to bottom, each from the end of the one above; `title` names the axis across,
    with its unit."""
    reach = max([*(max(rung.start, rung.end) for rung in rungs), *(mark.at for mark in marks)])
    end = reach if marks else None
    looks: dict[tuple[Swatch, _Side], None] = dict.fromkeys(
        (rung.swatch, _side(rung, end)) for rung in rungs
    )
    drawings: list[Drawing] = [_joints(rungs, theme)]
    drawings += [_rung_bars(rungs, end, look, side) for look, side in looks]
    least = min(0.0, *(min(rung.start, rung.end) for rung in rungs))
    frame = Frame(
        x=Axis(title, span=(least - (0.02 * reach if least < 0 else 0), 1.02 * reach)),
        y=row_axis([rung.label for rung in rungs]),
        height=54 + ROW * len(rungs),
        theme=theme,
        marks=tuple(marks),
        legend=False,
    )
    return draw(drawings, frame)


_Side = Literal["left", "inside", "right"]


_LONG: Final = 1 / 3
"""Share of the chart from which on a bar has room for its text."""


def _side(rung: Rung, end: float | None) -> _Side:
    """Where a rung's text stands: right of it. Where a mark stands at the end of the chart, which
    must not strike it through: inside a long bar, and left of one in the right half."""
    if end is None:
        return "right"
    if abs(rung.size) >= _LONG * end:
        return "inside"
    return "left" if min(rung.start, rung.end) >= end / 2 else "right"


def _rung_bars(rungs: Sequence[Rung], end: float | None, look: Swatch, side: _Side) -> Bars:
    own = [
        (at, rung)
        for at, rung in enumerate(rungs)
        if rung.swatch == look and _side(rung, end) == side
    ]
    # The text of a bar that goes to the left stands on its left.
    way, first = (-1, max) if side == "left" else (1, min)
    return Bars(
        name="",
        swatch=look,
        x=[way * abs(rung.size) for _, rung in own],
        y=[float(at) for at, _ in own],
        base=[first(rung.start, rung.end) for _, rung in own],
        thickness=[0.72] * len(own),
        text=[rung.text for _, rung in own],
        outside=side != "inside",
        detail=[[rung.hover] for _, rung in own],
        hover="%{customdata[0]}",
    )


def _joints(rungs: Sequence[Rung], theme: Theme) -> Line:
    """Thin lines from where a bar ends to where the next begins."""
    x = [value for rung in rungs[:-1] for value in (rung.end, rung.end, np.nan)]
    y = [value for at in range(len(rungs) - 1) for value in (at, at + 1, np.nan)]
    return Line(x, y, INK[theme], width=0.8, dash="dot")


@dataclass(frozen=True, slots=True)
class Control:
    """A choice: one of `options` (names by value), a switch, or a window of the time up to `end_ns`
    (start and end in ns). `draw` takes its value under `key`."""

    key: str
    label: str
    kind: Literal["choice", "switch", "window"]
    default: Any
    options: Mapping[Any, str] = field(default_factory=dict[Any, str])
    end_ns: int = 0
    help: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """A figure of an answer: the section and heading under which it stands, and what draws it from
    the theme and the values of its controls."""

    section: str
    heading: str
    key: str
    """Names it among all views of the answer."""
    draw: Callable[[Theme, Mapping[str, Any]], Picture]
    controls: tuple[Control, ...] = ()
    folded: bool = False
    """Drawn only when a reader opens it."""

    def drawn(self, theme: Theme, **values: Any) -> Picture:
        """The figure with its controls at their defaults, but for those that `values` name."""
        defaults = {control.key: control.default for control in self.controls}
        own = {key: value for key, value in values.items() if key in defaults}
        return self.draw(theme, defaults | own)
