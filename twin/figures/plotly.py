"""The only module that touches plotly, which ships no types: bars, lines, areas, dots, cells, marks
and axes, typed.

A `Picture` is what every figure function returns: the plotly figure with its finding, how to read
it, and its numbers as a table, so that nothing is told by colour or hover alone.

Text in figures: how wide names are, how they wrap, and axis ranges wide enough for the texts
beside bars and marks.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from math import ceil, isnan
from typing import Any, cast

import plotly.graph_objects as go

from twin.figures.drawing import (
    Area,
    Axis,
    Bars,
    Cells,
    Dots,
    Drawing,
    Frame,
    Line,
    Mark,
    Note,
    Row,
    Values,
)
from twin.figures.palette import BACKGROUND, INK, SCALE, Swatch, Theme, contrast

__all__ = [
    "Area",
    "Axis",
    "Bars",
    "Cells",
    "Dots",
    "Drawing",
    "Figure",
    "Frame",
    "Line",
    "Mark",
    "Note",
    "Picture",
    "Row",
    "Values",
    "bar_count",
    "draw",
    "javascript",
    "plain",
]

Figure = go.Figure
"""A plotly figure."""

_FONT = 12
_GRID = "rgba(128,128,128,0.3)"


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure ready to be placed: `title` states the findings, one to a line, `caption` says how
    to read it, `table` has the numbers."""

    title: str
    caption: str
    figure: Figure
    table: tuple[Row, ...] = ()

    @property
    def alt(self) -> str:
        """What the figure says, for those who do not see it."""
        findings = ". ".join(line.rstrip(".") for line in self.title.splitlines())
        return f"{findings}. {self.caption}"


def draw(drawings: Sequence[Drawing], frame: Frame) -> Figure:
    """A figure, one trace per drawing, the first at the back."""
    drawings = [wrapped(one) for one in drawings]
    frame = replace(frame, y=in_lines(frame.y))
    figure = go.Figure([_trace(one, frame.theme) for one in drawings])
    ink = INK[frame.theme]
    named = [one.name for one in drawings if not isinstance(one, Cells) and one.name]
    room = frame.width - label_width(drawings, frame.y)
    shown = legend_height(named, room) if frame.legend and named else 0
    above = shown or 10
    above += 22 * (1 + max((mark.lift for mark in frame.marks if not mark.level), default=-1))
    figure.update_layout(
        barmode="relative",
        bargap=0.3,
        height=frame.height + above,
        showlegend=frame.legend,
        meta={"legend": shown},
        margin={"l": 8, "r": 8, "t": above, "b": 44},
        legend={"orientation": "h", "x": 0, "xref": "container", "xanchor": "left"}
        | {"y": 1, "yref": "container", "yanchor": "top", "traceorder": "normal"}
        | {"itemclick": False, "itemdoubleclick": False, "maxheight": 1},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": ink, "size": _FONT},
        uniformtext={"minsize": _FONT - 1, "mode": "hide"},
        hoverlabel={"bgcolor": BACKGROUND[frame.theme], "font": {"color": ink}},
        xaxis=_axis(replace(frame.x, span=with_room(drawings, frame, room)), ink),
        yaxis=_axis(frame.y, ink),
    )
    for mark in frame.marks:
        _add(figure, mark)
    for note in frame.notes:
        figure.add_annotation(
            x=note.x,
            y=note.y,
            text=note.text,
            xanchor=note.anchor,
            align="left",
            showarrow=False,
            font={"color": note.colour},
        )
    return figure


def plain(figure: Figure) -> dict[str, Any]:
    """A figure as the JSON-like data that plotly's JavaScript draws."""
    return json.loads(str(figure.to_json()))


def javascript() -> str:
    """Plotly's JavaScript, for a page that has to do without a network."""
    return (files("plotly") / "package_data" / "plotly.min.js").read_text("utf-8")


def bar_count(figure: Figure) -> int:
    """Bars drawn in a figure, over all traces."""
    data = cast(Sequence[Any], figure.data)
    return sum(len(trace.x) for trace in data if trace.type == "bar")


def _trace(drawing: Drawing, theme: Theme) -> Any:
    match drawing:
        case Bars():
            return _bars(drawing, theme)
        case Line():
            return _line(drawing)
        case Area():
            return _area(drawing)
        case Dots():
            return _dots(drawing, theme)
        case Cells():
            return _cells(drawing, theme)


def _line(line: Line) -> go.Scatter:
    return go.Scatter(
        name=line.name,
        showlegend=bool(line.name),
        mode="lines",
        x=line.x,
        y=line.y,
        line={"color": line.colour, "width": line.width, "dash": line.dash},
        customdata=line.detail,
        **_hover(line.hover),
    )


def _area(area: Area) -> go.Scatter:
    swatch = area.swatch
    return go.Scatter(
        name=area.name,
        mode="lines",
        x=area.x,
        y=area.y,
        stackgroup="one",
        line={"color": swatch.line, "width": 0.5, "shape": "hv"},
        fillcolor=swatch.fill,
        fillpattern=_pattern(swatch) if swatch.pattern else None,
        **_hover(area.hover),
    )


def _dots(dots: Dots, theme: Theme) -> go.Scatter:
    return go.Scatter(
        name=dots.name,
        showlegend=bool(dots.name),
        mode="markers" if dots.text is None else "markers+text",
        x=dots.x,
        y=dots.y,
        text=dots.text,
        textposition="middle center",
        textfont={"size": _FONT - 2, "color": _readable(dots.fill, theme)},
        customdata=dots.detail,
        marker={
            "symbol": dots.symbol,
            "size": dots.size,
            "color": dots.fill,
            "line": {"color": dots.line, "width": dots.outline},
        },
        **_hover(dots.hover),
    )


def _cells(cells: Cells, theme: Theme) -> go.Heatmap:
    return go.Heatmap(
        x=cells.x,
        y=cells.y,
        z=cells.values,
        text=cells.text or None,
        texttemplate="%{text}" if cells.text else None,
        customdata=cells.detail or None,
        colorscale=[[at, colour] for at, colour in SCALE[theme]],
        zmin=cells.least,
        zmax=max((one for row in cells.values for one in row if not isnan(one)), default=1.0),
        xgap=1,
        ygap=1,
        colorbar={"title": {"text": cells.unit}, "thickness": 12},
        **_hover(cells.hover),
    )


def _hover(template: str) -> dict[str, Any]:
    if not template:
        return {"hoverinfo": "skip"}
    return {"hovertemplate": template + "<extra></extra>"}


def _readable(fill: str, theme: Theme) -> str:
    """Black or white, whichever stands out on a fill; the theme's ink where nothing is filled."""
    if not fill.startswith("#"):
        return INK[theme]
    return max(("#000000", "#FFFFFF"), key=lambda text: contrast(text, fill))


def _pattern(swatch: Swatch) -> dict[str, Any]:
    readable = _readable(swatch.fill, "light")
    return {"shape": swatch.pattern, "fillmode": "overlay", "size": 7, "solidity": 0.15} | {
        "fgcolor": readable,
        "fgopacity": 0.6,
    }


def _whiskers(bars: Bars, theme: Theme) -> dict[str, Any] | None:
    if bars.reach is None:
        return None
    low, high = bars.reach
    return {"type": "data", "symmetric": False, "array": high, "arrayminus": low} | {
        "color": INK[theme],
        "thickness": 1.5,
        "width": 5,
    }


def _bars(bars: Bars, theme: Theme) -> go.Bar:
    readable = _readable(bars.swatch.fill, theme)
    return go.Bar(
        name=bars.name,
        orientation="h",
        x=bars.x,
        y=bars.y,
        base=bars.base,
        width=bars.thickness,
        text=bars.text,
        textposition=_text_position(bars),
        constraintext="none" if bars.outside else "both",
        insidetextanchor="middle",
        insidetextfont={"color": readable},
        outsidetextfont={"color": INK[theme]},
        cliponaxis=not bars.outside,
        textangle=0,
        error_x=_whiskers(bars, theme),
        customdata=bars.detail,
        hovertemplate=bars.hover + "<extra></extra>",
        marker={
            "color": bars.swatch.fill,
            "opacity": bars.opacity if bars.opacity is not None else 1.0,
            "line": {"color": bars.edge or bars.swatch.line, "width": bars.outline},
            "pattern": _pattern(bars.swatch) if bars.swatch.pattern else None,
        },
    )


def _text_position(bars: Bars) -> str:
    if bars.text is None:
        return "none"
    return "outside" if bars.outside else "inside"


def _axis(axis: Axis, ink: str) -> dict[str, Any]:
    span = list(axis.span) if axis.span is not None else None
    if span is not None and axis.reverse:
        span.reverse()
    settings: dict[str, Any] = {
        "title": {"text": axis.title, "font": {"color": ink}},
        "tickfont": {"color": ink},
        "showgrid": axis.grid,
        "gridcolor": _GRID,
        "zeroline": False,
        "automargin": True,
    }
    if axis.logarithmic:
        settings["type"] = "log"
    if span is not None:
        settings["range"] = span
    elif axis.reverse:
        settings["autorange"] = "reversed"
    if axis.names:
        settings["categoryorder"] = "array"
        settings["categoryarray"] = list(axis.names)
    if axis.ticks is not None:
        settings["tickmode"] = "array"
        settings["tickvals"] = [at for at, _ in axis.ticks]
        settings["ticktext"] = [label for _, label in axis.ticks]
    return settings


def _add(figure: Figure, mark: Mark) -> None:
    if mark.level:
        _add_level(figure, mark)
        return
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


def _add_level(figure: Figure, mark: Mark) -> None:
    line = {"color": mark.colour, "width": 1.5, "dash": mark.dash}
    if mark.until is None:
        figure.add_hline(y=mark.at, line=line)
    else:
        figure.add_hrect(
            y0=mark.at,
            y1=mark.until,
            line={"width": 0},
            fillcolor=mark.colour,
            opacity=0.14,
            layer="below",
        )
    figure.add_annotation(
        x=0,
        xref="paper",
        xanchor="left",
        y=mark.at if mark.until is None else max(mark.at, mark.until),
        yanchor="bottom",
        text=mark.label,
        showarrow=False,
        font={"color": mark.colour},
    )


_LETTER = 6.2
"""Pixels of a letter, rather too many than too few."""
_LONGEST_NAME = 26
"""Letters of a name beside its bar; a longer one is broken into lines."""
_MARGINS = 16
"""Pixels left and right of a figure that stay empty."""
_GAP = 6
"""Pixels between a bar and the text beside it."""
_WORD = re.compile(r"[^ .]*[ .]?")
_TAG = re.compile(r"<[^>]*>")


def capital(words: str) -> str:
    """The words with a capital first letter."""
    return words[:1].upper() + words[1:]


def lowered(words: str) -> str:
    """The words with a small first letter."""
    return words[:1].lower() + words[1:]


def legend_height(names: Sequence[str], width: float) -> int:
    """Pixels of the legend's rows; plotly gives every entry the width of the longest, and breaks
    rows at the width of the plot without its labels."""
    entry = 38 + _LETTER * max((len(name) for name in names), default=0)
    rows = ceil(len(names) / max(1, int(width / entry)))
    return 19 * rows + 10


def label_width(drawings: Sequence[Drawing], axis: Axis) -> float:
    """Pixels that the names along the y axis take."""
    names = [name for one in drawings for name in one.y if isinstance(name, str)]
    if axis.ticks is not None:
        names = [label for _, label in axis.ticks]
    return max(map(_pixels, names), default=0.0)


def _pixels(text: str) -> float:
    """Pixels of the longest line of a text."""
    return _LETTER * max(len(_TAG.sub("", line)) for line in text.split("<br>"))


def _lines(name: str) -> str:
    """A name in lines that are short enough, broken after spaces and dots; one that is marked up
    stays as it is."""
    lines = name.split("<br>")
    return name if _TAG.search("".join(lines)) else "<br>".join(map(_broken, lines))


def _broken(line: str) -> str:
    found = [""]
    for word in _WORD.findall(line):
        if found[-1] and len(found[-1] + word.rstrip()) > _LONGEST_NAME:
            found.append("")
        found[-1] += word
    return "<br>".join(part.rstrip() for part in found)


def wrapped(drawing: Drawing) -> Drawing:
    """Bars with their names in lines."""
    if not isinstance(drawing, Bars) or not all(isinstance(one, str) for one in drawing.y):
        return drawing
    return replace(drawing, y=[_lines(str(one)) for one in drawing.y])


def in_lines(axis: Axis) -> Axis:
    """The axis with its names in lines."""
    ticks = axis.ticks and tuple((at, _lines(label)) for at, label in axis.ticks)
    return replace(axis, names=tuple(map(_lines, axis.names)), ticks=ticks)


def with_room(drawings: Sequence[Drawing], frame: Frame, room: float) -> tuple[float, float] | None:
    """The range across, wide enough that what stands beside bars, places and marks ends inside
    `room` pixels."""
    if frame.x.span is None:
        return None
    room -= _MARGINS
    low, high = frame.x.span
    texts = [
        *_beside([one for one in drawings if isinstance(one, Bars)]),
        *((one.x, _pixels(one.text)) for one in frame.notes if one.anchor == "left"),
        *((one.at, _pixels(one.label)) for one in frame.marks if one.anchor == "left"),
    ]
    for _ in range(8):  # a wider range moves what stands on the other side, too
        for at, pixels in texts:
            stretch = 1 / (1 - min(0.75, abs(pixels) / max(room, 1.0)))
            if pixels >= 0:
                high = max(high, low + (at - low) * stretch)
            else:
                low = min(low, high - (high - at) * stretch)
    return low, high


def _beside(drawn: Sequence[Bars]) -> list[tuple[float, float]]:
    """Where each text outside of its bar begins, and its pixels: less than 0 where it stands on the
    left."""
    found: list[tuple[float, float]] = []
    stacked: dict[float | str, float] = {}
    for bars in drawn:
        texts = bars.text if bars.outside and bars.text is not None else [""] * len(bars.x)
        starts = [stacked.get(y, 0.0) for y in bars.y] if bars.base is None else bars.base
        for y, start, length, text in zip(bars.y, starts, bars.x, texts, strict=True):
            stacked[y] = end = float(start) + float(length)
            if text:
                pixels = _pixels(text) + _GAP
                found.append((end, pixels if length >= 0 else -pixels))
    return found
