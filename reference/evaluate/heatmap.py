"""A matrix of shares as an SVG that any browser shows, light and dark, without a library.

One hue from light to dark, so that it reads without colour, and the number stands in every cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, Final

_LIGHT: Final = (222, 235, 247)
_DARK: Final = (8, 69, 148)
"""Ends of ColorBrewer's `Blues`."""
_CELL, _HIGH, _LEFT, _TOP = 88, 44, 150, 84
"""Pixels: width and height of a cell, room for the names of rows, and above the cells."""

_STYLE: Final = (
    "<style>text{fill:#31333f}@media(prefers-color-scheme:dark){text{fill:#fafafa}}"
    ".on{fill:#fff}.off{fill:#31333f}</style>"
)


def svg(matrix: Mapping[str, Any], title: str) -> str:
    """The picture; cells show the share, and below it how many cases it is of."""
    rows, columns = matrix["rows"], matrix["columns"]
    width = _LEFT + _CELL * len(columns["values"]) + 16
    height = _TOP + _HIGH * len(rows["values"]) + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"',
        'role="img" font-family="sans-serif">',
        _STYLE,
        f"<title>{escape(matrix['title'])}</title>",
        _text(12, 22, matrix["title"], "start", 15),
        _text(12, 40, title, "start", 11),
        _text(_LEFT - 10, _TOP - 10, f"{rows['name']} \\ {columns['name']}", "end"),
    ]
    for at, name in enumerate(columns["values"]):
        parts.append(_text(_LEFT + _CELL * (at + 0.5), _TOP - 10, str(name), "middle"))
    for down, (name, cells) in enumerate(zip(rows["values"], matrix["cells"], strict=True)):
        y = _TOP + _HIGH * down
        parts.append(_text(_LEFT - 10, y + _HIGH / 2 + 5, str(name), "end"))
        parts += [_cell(_LEFT + _CELL * at, y, cell) for at, cell in enumerate(cells)]
    foot = "dark: all, light: none; below each share the number of cases"
    parts.append(_text(12, height - 10, foot, "start", 11))
    return "\n".join([*parts, "</svg>", ""])


def _cell(x: float, y: float, cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return _text(x + _CELL / 2, y + _HIGH / 2 + 5, "-", "middle")
    value = cell["value"]
    mixed = (round(a + (b - a) * value) for a, b in zip(_LIGHT, _DARK, strict=True))
    fill = "#" + "".join(f"{one:02x}" for one in mixed)
    ink = "on" if value > 0.5 else "off"
    box = f'<rect x="{x + 1}" y="{y + 1}" width="{_CELL - 2}" height="{_HIGH - 2}" fill="{fill}"/>'
    middle = x + _CELL / 2
    share = _text(middle, y + 20, f"{value:.2f}", "middle", kind=ink)
    return box + share + _text(middle, y + 36, str(cell["cases"]), "middle", 10, ink)


def _text(x: float, y: float, text: str, anchor: str, size: int = 13, kind: str = "") -> str:
    class_ = f' class="{kind}"' if kind else ""
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}"{class_}>'
        f"{escape(text)}</text>"
    )
