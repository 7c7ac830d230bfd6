"""The pictures of studies, and the only file that knows plotly: one or two panels over a common
axis, every curve named at its end in its own colour, light and dark.

Drawn in Chromium (Playwright), which measures text as readers see it. Needs the extras `ui` and
`e2e`, and a Chromium; where one is missing `missing` says which, and reports go without pictures.
Colours are Okabe and Ito's (Color Universal Design, 2008), as in the simulator's figures.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from math import log10
from pathlib import Path
from typing import Any, Final, Literal

from reference.studies import chromium

Theme = Literal["light", "dark"]
Colour = Literal["blue", "vermilion", "green", "purple", "orange", "grey"]

THEMES: Final[tuple[Theme, ...]] = ("light", "dark")
_BACKGROUND: Final = {"light": "#FFFFFF", "dark": "#0E1117"}
_INK: Final = {"light": "#31333F", "dark": "#FAFAFA"}
_FAINT: Final = {"light": "#6B6F7B", "dark": "#A3A8B4"}
_GRID: Final = "rgba(128,128,128,0.25)"
# On white the lighter hues are darkened until they stand out 4.5:1 as text (WCAG 2.2, 1.4.3).
_COLOURS: Final[dict[Colour, tuple[str, str]]] = {
    "blue": ("#0072B2", "#56B4E9"),
    "vermilion": ("#C04A00", "#FF7F3F"),
    "green": ("#00785A", "#2FC99A"),
    "purple": ("#A8407C", "#E39CC8"),
    "orange": ("#8A5F00", "#E69F00"),
    "grey": ("#6B6F7B", "#A3A8B4"),
}
_WIDTH, _PANEL, _TITLE, _FOOT, _GAP = 960, 260, 104, 52, 40
"""CSS pixels: of the picture, of a panel's height, above and below the panels, and between them."""
_LEFT, _RIGHT = 76, 190
"""Room for the ticks, and for the names of curves."""
_LINE = 17
"""Pixels from a name to the next at least."""
_PAGE = """<body style="margin:0;background:{background}"><div id="figure"></div>
<script>{javascript}</script>
<script>Plotly.newPlot("figure", {figure}, {{staticPlot: true}})</script>"""


@dataclass(frozen=True, slots=True)
class Curve:
    """Points in order. `label` is written at the last one; empty: none, as for further seeds."""

    x: Sequence[float]
    y: Sequence[float]
    colour: Colour
    label: str = ""
    width: float = 2
    dots: bool = False
    faint: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One vertical axis. `level` is a dashed line with its name."""

    title: str
    curves: Sequence[Curve]
    log: bool = False
    level: tuple[float, str] | None = None
    span: tuple[float, float] | None = None
    """Lowest and highest value shown; None: those of all curves, with a little room."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture: what was found, how to read it, and panels one below the other."""

    title: str
    caption: str
    x_title: str
    panels: Sequence[Panel]
    x_log: bool = False
    x_ticks: Sequence[float] = ()


def missing() -> str:
    """What has to be installed before pictures can be drawn; empty: nothing."""
    if find_spec("plotly") is None:
        return "plotly (extra `ui`)"
    if find_spec("playwright") is None:
        return "Playwright (extra `e2e`)"
    return "" if chromium.executable() else chromium.MISSING


def write(figure: Figure, folder: Path, stem: str) -> list[str]:
    """Save STEM-light.png and STEM-dark.png; their names. Asserts that nothing is missing."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  an extra

    names = [f"{stem}-{theme}.png" for theme in THEMES]
    with sync_playwright() as playwright:
        browser = chromium.launch(playwright)
        page = browser.new_page(
            viewport={"width": _WIDTH, "height": _height(figure)}, device_scale_factor=2
        )
        for theme, name in zip(THEMES, names, strict=True):
            page.set_content(_page(figure, theme))
            page.wait_for_selector(".main-svg")
            page.screenshot(path=folder / name)
        browser.close()
    return names


def plotly_json(figure: Figure, theme: Theme) -> dict[str, Any]:
    """The figure as plotly's JavaScript takes it."""
    ends = {"data": [], "annotations": [], "shapes": [], "axes": {}}
    height, count = _height(figure), len(figure.panels)
    inner = height - _TITLE - _FOOT
    xs = [x for panel in figure.panels for curve in panel.curves for x in curve.x]
    for number, panel in enumerate(figure.panels):
        axis = "y" if number == 0 else f"y{number + 1}"
        top = 1 - number * (_PANEL + _GAP) / inner
        low, high = _span(panel)
        ends["axes"][f"yaxis{axis[1:]}"] = _axis(panel, (top - _PANEL / inner, top), theme)
        ends["data"] += [_trace(curve, axis, theme) for curve in panel.curves]
        ends["annotations"] += _names(panel, (low, high), axis, theme)
        ends["annotations"].append(_above(panel.title, top, theme))
        if panel.level:
            ends["shapes"].append(_level(panel.level[0], axis, theme))
    spread = (log10(min(xs)), log10(max(xs))) if figure.x_log else (min(xs), max(xs))
    ticks = {"tickvals": figure.x_ticks, "ticktext": [f"{x:g}" for x in figure.x_ticks]}
    ends["axes"]["xaxis"] = {
        "title": {"text": figure.x_title, "standoff": 8, "font": {"size": 13}},
        "type": "log" if figure.x_log else "linear",
        "range": _widened(*spread, 0.02 if figure.x_log else 0.0),
        "anchor": "y" if count == 1 else f"y{count}",
        "gridcolor": _GRID,
        "zeroline": False,
        "ticks": "",
        **(ticks if figure.x_ticks else {}),
    }
    layout = {
        "width": _WIDTH,
        "height": height,
        "title": {
            "text": f"<b>{figure.title}</b>",
            "font": {"size": 18, "color": _INK[theme]},
            "subtitle": {"text": figure.caption, "font": {"size": 13, "color": _FAINT[theme]}},
            "x": 0.02,
            "xanchor": "left",
            "y": 1 - 28 / height,
            "yanchor": "middle",
        },
        "margin": {"l": _LEFT, "r": _RIGHT, "t": _TITLE, "b": _FOOT},
        "showlegend": False,
        "paper_bgcolor": _BACKGROUND[theme],
        "plot_bgcolor": _BACKGROUND[theme],
        "font": {
            "family": "Source Sans Pro, Source Sans 3, Liberation Sans, Arial, sans-serif",
            "size": 13,
            "color": _INK[theme],
        },
        "annotations": ends["annotations"],
        "shapes": ends["shapes"],
        **ends["axes"],
    }
    return {"data": ends["data"], "layout": layout}


def apart(places: Sequence[float], least: float) -> list[float]:
    """Places moved as little as it takes, in order, until neighbours are `least` apart: names that
    would cover each other.

    >>> apart([10.0, 11.0, 40.0], 8.0)
    [6.5, 14.5, 40.0]
    """
    order = sorted(range(len(places)), key=lambda index: places[index])
    groups: list[list[int]] = []
    centres: list[float] = []
    for index in order:
        groups.append([index])
        centres.append(places[index])
        while len(groups) > 1 and _touch(groups, centres, least):
            last, centre = groups.pop(), centres.pop()
            size = len(groups[-1])
            joined = centres[-1] * size + centre * len(last)
            groups[-1] += last
            centres[-1] = joined / len(groups[-1])
    moved = [0.0] * len(places)
    for group, centre in zip(groups, centres, strict=True):
        for number, index in enumerate(group):
            moved[index] = centre + (number - (len(group) - 1) / 2) * least
    return moved


def _touch(groups: Sequence[Sequence[int]], centres: Sequence[float], least: float) -> bool:
    return centres[-1] - centres[-2] < least * (len(groups[-1]) + len(groups[-2])) / 2


def _page(figure: Figure, theme: Theme) -> str:
    javascript = (files("plotly") / "package_data" / "plotly.min.js").read_text("utf-8")
    plot = json.dumps(plotly_json(figure, theme))
    return _PAGE.format(background=_BACKGROUND[theme], javascript=javascript, figure=plot)


def _height(figure: Figure) -> int:
    count = len(figure.panels)
    return _TITLE + _FOOT + count * _PANEL + (count - 1) * _GAP


def _span(panel: Panel) -> tuple[float, float]:
    """Of the axis, in the axis's own numbers: logarithms where it is logarithmic."""
    values = [y for curve in panel.curves for y in curve.y]
    low, high = panel.span or (min(values), max(values))
    if panel.log:
        low, high = log10(low), log10(high)
    return _widened(low, high, 0.0 if panel.span else 0.05)


def _widened(low: float, high: float, share: float) -> tuple[float, float]:
    room = (high - low) * share or (0.0 if high > low else abs(high) * 0.05 or 1.0)
    return low - room, high + room


def _axis(panel: Panel, domain: tuple[float, float], theme: Theme) -> dict[str, Any]:
    return {
        "domain": [max(0.0, domain[0]), domain[1]],
        "range": _span(panel),
        "type": "log" if panel.log else "linear",
        "dtick": 1 if panel.log else None,
        "gridcolor": _GRID,
        "zeroline": False,
        "color": _INK[theme],
    }


def _trace(curve: Curve, axis: str, theme: Theme) -> dict[str, Any]:
    colour = _COLOURS[curve.colour][THEMES.index(theme)]
    return {
        "type": "scatter",
        "mode": "lines+markers" if curve.dots else "lines",
        "x": list(curve.x),
        "y": list(curve.y),
        "yaxis": axis,
        "opacity": 0.45 if curve.faint else 1.0,
        "line": {"color": colour, "width": curve.width},
        "marker": {"color": colour, "size": 7},
    }


def _names(
    panel: Panel, span: tuple[float, float], axis: str, theme: Theme
) -> list[dict[str, Any]]:
    """The names of the curves and of the level, right of the panel, none over another."""
    ends = [(one.y[-1], one.label, _COLOURS[one.colour]) for one in panel.curves if one.label]
    if panel.level:
        ends.append((panel.level[0], panel.level[1], _COLOURS["grey"]))
    low, high = span
    values = [log10(value) if panel.log else value for value, _, _ in ends]
    pixels = [(value - low) / (high - low) * _PANEL for value in values]
    moved = apart(pixels, _LINE)
    return [
        {
            "x": 1,
            "xref": "paper",
            "xanchor": "left",
            "xshift": 8,
            "y": value,
            "yref": axis,
            "yshift": to - at,
            "text": name,
            "align": "left",
            "showarrow": False,
            "font": {"color": colours[THEMES.index(theme)]},
        }
        for value, at, to, (_, name, colours) in zip(values, pixels, moved, ends, strict=True)
    ]


def _above(text: str, top: float, theme: Theme) -> dict[str, Any]:
    """A panel's title, above its left corner."""
    return {
        "x": 0,
        "y": top,
        "xref": "paper",
        "yref": "paper",
        "xanchor": "left",
        "yanchor": "bottom",
        "align": "left",
        "yshift": 2,
        "text": text,
        "showarrow": False,
        "font": {"color": _INK[theme]},
    }


def _level(value: float, axis: str, theme: Theme) -> dict[str, Any]:
    line = {"color": _COLOURS["grey"][THEMES.index(theme)], "width": 1.5, "dash": "dash"}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": axis} | {
        "y0": value,
        "y1": value,
        "line": line,
    }
