"""The pictures of studies, and the only file that knows plotly: one or two panels over a common
axis, every curve named at its end in its own colour, light and dark.

Drawn in Chromium (Playwright), which measures text as readers see it. Needs the extras `ui` and
`e2e`, and a Chromium; where one is missing `missing` says which, and reports go without pictures.
Sizes and colours are in `figure.yaml`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from math import log10
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Literal

from reference.files import yaml_table

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

Theme = Literal["light", "dark"]
Colour = Literal["blue", "vermilion", "green", "purple", "orange", "grey"]
THEMES: Final[tuple[Theme, ...]] = ("light", "dark")
MISSING: Final = "Chromium (or its path in TWIN_CHROMIUM)"
"""What to install where `executable` finds none."""
_STYLE: Final[dict[str, Any]] = yaml_table(Path(__file__).with_suffix(".yaml"))
_SIZES: Final = SimpleNamespace(**_STYLE["sizes"])


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

    @property
    def range(self) -> list[float]:
        """Of the axis, in the axis's own numbers: logarithms where it is logarithmic."""
        values = [y for curve in self.curves for y in curve.y]
        low, high = self.span or (min(values), max(values))
        if self.log:
            low, high = log10(low), log10(high)
        return _widened(low, high, 0.0 if self.span else 0.05)


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture: what was found, how to read it, and panels one below the other."""

    title: str
    caption: str
    x_title: str
    panels: Sequence[Panel]
    x_log: bool = False
    x_ticks: Sequence[float] = ()

    @property
    def height(self) -> int:
        """In CSS pixels."""
        count = len(self.panels)
        return _SIZES.title + _SIZES.foot + count * _SIZES.panel + (count - 1) * _SIZES.gap


def missing() -> str:
    """What has to be installed before pictures can be drawn; empty: nothing."""
    if find_spec("plotly") is None:
        return "plotly (extra `ui`)"
    if find_spec("playwright") is None:
        return "Playwright (extra `e2e`)"
    return "" if executable() else MISSING


def executable() -> str | None:
    """The Chromium that TWIN_CHROMIUM names, else the one on the path; None: there is none."""
    wanted = os.environ.get("TWIN_CHROMIUM", "/usr/bin/chromium")
    return wanted if Path(wanted).is_file() else shutil.which("chromium")


def launch(playwright: Playwright) -> Browser:
    """A browser without a window. Asserts that there is one to start: Playwright would otherwise
    look for one of its own."""
    path = executable()
    assert path is not None, MISSING
    return playwright.chromium.launch(executable_path=path, args=_STYLE["chromium"])


def write(figure: Figure, folder: Path, stem: str) -> list[str]:
    """Save STEM-light.png and STEM-dark.png; their names. Asserts that nothing is missing."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  an extra

    names = [f"{stem}-{theme}.png" for theme in THEMES]
    with sync_playwright() as playwright:
        browser = launch(playwright)
        page = browser.new_page(
            viewport={"width": _SIZES.width, "height": figure.height}, device_scale_factor=2
        )
        for theme, name in zip(THEMES, names, strict=True):
            page.set_content(_page(figure, theme))
            page.wait_for_selector(".main-svg")
            page.screenshot(path=folder / name)
        browser.close()
    return names


def _page(figure: Figure, theme: Theme) -> str:
    javascript = (files("plotly") / "package_data" / "plotly.min.js").read_text("utf-8")
    plot, background = json.dumps(plotly_json(figure, theme)), _STYLE["themes"][theme]["background"]
    return _STYLE["page"].format(background=background, javascript=javascript, figure=plot)


def plotly_json(figure: Figure, theme: Theme) -> dict[str, Any]:
    """The figure as plotly's JavaScript takes it."""
    colours: dict[str, str] = _STYLE["themes"][theme]
    layout: dict[str, Any] = {
        **_STYLE["layout"],
        "width": _SIZES.width,
        "height": figure.height,
        "margin": {"l": _SIZES.left, "r": _SIZES.right, "t": _SIZES.title, "b": _SIZES.foot},
        "font": _STYLE["layout"]["font"] | {"color": colours["ink"]},
        "paper_bgcolor": colours["background"],
        "plot_bgcolor": colours["background"],
        "title": _STYLE["title"]
        | {
            "text": f"<b>{figure.title}</b>",
            "font": {"size": 18, "color": colours["ink"]},
            "subtitle": {"text": figure.caption, "font": {"size": 13, "color": colours["faint"]}},
            "y": 1 - 28 / figure.height,
        },
        "xaxis": _x_axis(figure),
        "annotations": [],
        "shapes": [],
    }
    data: list[dict[str, Any]] = []
    inner = figure.height - _SIZES.title - _SIZES.foot
    for number, panel in enumerate(figure.panels):
        axis = f"y{number + 1}" if number else "y"
        top = 1 - number * (_SIZES.panel + _SIZES.gap) / inner
        domain = [max(0.0, top - _SIZES.panel / inner), top]
        layout[f"yaxis{axis[1:]}"] = _y_axis(panel, domain, colours["ink"])
        data += [_trace(curve, axis, colours) for curve in panel.curves]
        title = {"y": top, "text": panel.title, "font": {"color": colours["ink"]}}
        layout["annotations"] += [*_names(panel, axis, colours), _STYLE["panel_title"] | title]
        if panel.level:
            line = {"color": colours["grey"], "width": 1.5, "dash": "dash"}
            ends = {"yref": axis, "y0": panel.level[0], "y1": panel.level[0], "line": line}
            layout["shapes"].append(_STYLE["level"] | ends)
    return {"data": data, "layout": layout}


def _x_axis(figure: Figure) -> dict[str, Any]:
    xs = [x for panel in figure.panels for curve in panel.curves for x in curve.x]
    ends = (log10(min(xs)), log10(max(xs))) if figure.x_log else (min(xs), max(xs))
    ticks = {"tickvals": figure.x_ticks, "ticktext": [f"{x:g}" for x in figure.x_ticks]}
    return {
        **_STYLE["axis"],
        "title": {"text": figure.x_title, "standoff": 8, "font": {"size": 13}},
        "type": "log" if figure.x_log else "linear",
        "range": _widened(*ends, 0.02 if figure.x_log else 0.0),
        "anchor": f"y{len(figure.panels)}" if len(figure.panels) > 1 else "y",
        "ticks": "",
        **(ticks if figure.x_ticks else {}),
    }


def _y_axis(panel: Panel, domain: Sequence[float], colour: str) -> dict[str, Any]:
    scale = {"type": "log", "dtick": 1} if panel.log else {"type": "linear", "dtick": None}
    return {**_STYLE["axis"], **scale, "domain": domain, "range": panel.range, "color": colour}


def _trace(curve: Curve, axis: str, colours: dict[str, str]) -> dict[str, Any]:
    colour = colours[curve.colour]
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


def _names(panel: Panel, axis: str, colours: dict[str, str]) -> list[dict[str, Any]]:
    """The names of the curves and of the level, right of the panel, none over another."""
    ends = [(curve.y[-1], curve.label, curve.colour) for curve in panel.curves if curve.label]
    ends += [(*panel.level, "grey")] if panel.level else []
    low, high = panel.range
    values = [log10(value) if panel.log else value for value, _, _ in ends]
    pixels = [(value - low) / (high - low) * _SIZES.panel for value in values]
    return [
        _STYLE["name"]
        | {"y": value, "yref": axis, "yshift": moved - pixel, "text": name}
        | {"font": {"color": colours[colour]}}
        for value, pixel, moved, (_, name, colour) in zip(
            values, pixels, apart(pixels, _SIZES.line), ends, strict=True
        )
    ]


def apart(places: Sequence[float], least: float) -> list[float]:
    """Places moved as little as it takes, in order, until neighbours are `least` apart: names that
    would cover each other.

    >>> apart([10.0, 11.0, 40.0], 8.0)
    [6.5, 14.5, 40.0]
    """
    order = sorted(range(len(places)), key=lambda index: places[index])
    groups: list[tuple[list[int], float]] = []
    for index in order:
        group, centre = [index], places[index]
        while groups and centre - groups[-1][1] < least * (len(group) + len(groups[-1][0])) / 2:
            before, its = groups.pop()
            centre = (its * len(before) + centre * len(group)) / (len(before) + len(group))
            group = before + group
        groups.append((group, centre))
    moved = [0.0] * len(places)
    for group, centre in groups:
        for number, index in enumerate(group):
            moved[index] = centre + (number - (len(group) - 1) / 2) * least
    return moved


def _widened(low: float, high: float, share: float) -> list[float]:
    room = (high - low) * share or (0.0 if high > low else abs(high) * 0.05 or 1.0)
    return [low - room, high + room]
