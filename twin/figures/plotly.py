"""The only module that touches plotly, which ships no types: bars, marks and axes, typed.

A `Picture` is what every figure function returns: the plotly figure with its finding, how to read
it, and its numbers as a table, so that nothing is told by colour or hover alone.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Literal, cast

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from twin.figures.palette import BACKGROUND, INK, Swatch, Theme, contrast

Figure = go.Figure
"""A plotly figure."""

Values = Sequence[float] | NDArray[np.float64]
Row = Mapping[str, str]

_FONT = 12
_LETTER = 6.2
"""Pixels of a letter, rather too many than too few."""
_TAG = re.compile(r"<[^>]*>")
_GRID = "rgba(128,128,128,0.3)"


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure ready to be placed: `title` states the findings, one to a line, `caption` says how
    to read it, `table` has the numbers."""

    title: str
    caption: str
    figure: Figure
    table: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True)
class Bars:
    """Horizontal bars of one kind, drawn as one trace. `x` are lengths; `base` says where each
    starts (None: stacked on the trace before)."""

    name: str
    swatch: Swatch
    x: Values
    y: Sequence[str] | Values
    hover: str
    base: Values | None = None
    thickness: Values | None = None
    opacity: Values | None = None
    text: Sequence[str] | None = None
    detail: Sequence[Sequence[Any]] | NDArray[Any] | None = None
    outline: float = 1.0
    edge: str | None = None
    """Colour of the outline in place of the swatch's own."""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis: its title, its range and, where it names things, ticks."""

    title: str = ""
    span: tuple[float, float] | None = None
    ticks: tuple[tuple[float, str], ...] | None = None
    reverse: bool = False
    grid: bool = True


@dataclass(frozen=True, slots=True)
class Mark:
    """A reference across the figure: a line at `at`, or a band up to `until`, labelled above."""

    at: float
    label: str
    colour: str
    until: float | None = None
    dash: Literal["solid", "dash", "dot"] = "dash"
    anchor: Literal["left", "center", "right"] = "left"
    lift: int = 0
    """Rows by which the label is lifted, so that neighbouring labels do not meet."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Everything around the bars."""

    x: Axis
    y: Axis
    height: int
    """Pixels, without the legend and the marks' labels above the bars."""
    theme: Theme
    width: int = 370
    """Pixels of the labels and the bars for which the legend is laid out: those beside the app's
    sidebar on a page of 800. Where there are more, the legend takes fewer rows than it has room
    for."""
    marks: tuple[Mark, ...] = field(default=())


def draw(bars: Sequence[Bars], frame: Frame) -> Figure:
    """A figure of horizontal bars, one trace per kind."""
    figure = go.Figure([_trace(one) for one in bars])
    ink = INK[frame.theme]
    above = _legend_height([one.name for one in bars], frame.width - _label_width(bars, frame.y))
    above += 22 * (1 + max((mark.lift for mark in frame.marks), default=-1))
    figure.update_layout(
        barmode="relative",
        bargap=0.3,
        height=frame.height + above,
        margin={"l": 8, "r": 8, "t": above, "b": 44},
        legend={"orientation": "h", "x": 0, "xref": "container", "xanchor": "left"}
        | {"y": 1, "yref": "container", "yanchor": "top", "traceorder": "normal"}
        | {"itemclick": False, "itemdoubleclick": False, "maxheight": 1},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": ink, "size": _FONT},
        uniformtext={"minsize": _FONT - 1, "mode": "hide"},
        hoverlabel={"bgcolor": BACKGROUND[frame.theme], "font": {"color": ink}},
        xaxis=_axis(frame.x),
        yaxis=_axis(frame.y),
    )
    for mark in frame.marks:
        _add(figure, mark)
    return figure


def bar_count(figure: Figure) -> int:
    """Bars drawn in a figure, over all traces."""
    data = cast(Sequence[Any], figure.data)
    return sum(len(trace.x) for trace in data)


def _legend_height(names: Sequence[str], width: float) -> int:
    """Pixels of the legend's rows; plotly gives every entry the width of the longest, and breaks
    rows at the width of the plot without its labels."""
    entry = 38 + _LETTER * max((len(name) for name in names), default=0)
    rows = ceil(len(names) / max(1, int(width / entry)))
    return 19 * rows + 10


def _label_width(bars: Sequence[Bars], axis: Axis) -> float:
    """Pixels that the names along the y axis take."""
    names = [name for one in bars for name in one.y if isinstance(name, str)]
    if axis.ticks is not None:
        names = [line for _, label in axis.ticks for line in label.split("<br>")]
    return _LETTER * max((len(_TAG.sub("", name)) for name in names), default=0)


def _trace(bars: Bars) -> go.Bar:
    readable = max(("#000000", "#FFFFFF"), key=lambda text: contrast(text, bars.swatch.fill))
    pattern = {"shape": bars.swatch.pattern, "fillmode": "overlay", "size": 7, "solidity": 0.15}
    pattern |= {"fgcolor": readable, "fgopacity": 0.6}
    return go.Bar(
        name=bars.name,
        orientation="h",
        x=bars.x,
        y=bars.y,
        base=bars.base,
        width=bars.thickness,
        text=bars.text,
        textposition="inside" if bars.text is not None else "none",
        insidetextanchor="middle",
        insidetextfont={"color": readable},
        textangle=0,
        customdata=bars.detail,
        hovertemplate=bars.hover + "<extra></extra>",
        marker={
            "color": bars.swatch.fill,
            "opacity": bars.opacity if bars.opacity is not None else 1.0,
            "line": {"color": bars.edge or bars.swatch.line, "width": bars.outline},
            "pattern": pattern if bars.swatch.pattern else None,
        },
    )


def _axis(axis: Axis) -> dict[str, Any]:
    span = list(axis.span) if axis.span is not None else None
    if span is not None and axis.reverse:
        span.reverse()
    settings: dict[str, Any] = {
        "title": {"text": axis.title},
        "showgrid": axis.grid,
        "gridcolor": _GRID,
        "zeroline": False,
        "automargin": True,
    }
    if span is not None:
        settings["range"] = span
    elif axis.reverse:
        settings["autorange"] = "reversed"
    if axis.ticks is not None:
        settings["tickmode"] = "array"
        settings["tickvals"] = [at for at, _ in axis.ticks]
        settings["ticktext"] = [label for _, label in axis.ticks]
    return settings


def _add(figure: Figure, mark: Mark) -> None:
    line = {"color": mark.colour, "width": 2, "dash": mark.dash}
    if mark.until is None:
        figure.add_vline(x=mark.at, line=line)
        at = mark.at
    else:
        figure.add_vrect(
            x0=mark.at,
            x1=mark.until,
            line=line | {"width": 1},
            fillcolor=mark.colour,
            opacity=0.14,
            layer="below",
        )
        at = (mark.at + mark.until) / 2
    figure.add_annotation(
        x=at,
        y=1,
        yref="paper",
        yanchor="bottom",
        yshift=2 + 20 * mark.lift,
        xanchor=mark.anchor if mark.until is None else "center",
        text=mark.label,
        showarrow=False,
        font={"color": mark.colour},
    )
