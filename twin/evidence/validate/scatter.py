"""Predicted against measured as a picture (SVG): log-log, one dot per row, light and dark.

Drawn here and not by plotly, which a page of a report would need a browser for. Colours are Okabe
and Ito's, darkened or lightened until they stand out 3:1 (WCAG 2.2, 1.4.11).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import ceil, floor, log10
from typing import Final

from twin.evidence.validate.answer import Answer

_WIDTH, _SIDE, _LEFT, _TOP, _LEGEND = 900, 560, 70, 40, 240
"""CSS pixels: of the picture, of the square that holds dots, and beside and above it."""
_COLOURS: Final = (
    ("#0072B2", "#56B4E9"), ("#C04A00", "#FF7F3F"), ("#00785A", "#2FC99A"), ("#A8407C", "#E39CC8"),
    ("#8A5F00", "#E69F00"), ("#6B6F7B", "#A3A8B4"), ("#1F78A8", "#8FD3F4"), ("#5B4FA2", "#B3A8F0"),
)  # fmt: skip
_MARKS: Final = ("circle", "square", "diamond")
"""The second channel: dots that share a colour differ in shape."""
_BAND: Final = 0.1
"""How far off the band between the dashed lines reaches."""


def scatter(answers: Sequence[Answer], unit: str, title: str) -> str:
    """The picture of answers in one metric, by GPU."""
    own = [one for one in answers if one.predicted and one.measured]
    low, high = _span([value for one in own for value in (one.predicted, one.measured) if value])
    names = sorted({one.gpu for one in own})
    body = [*_frame(low, high, unit, title), *_lines(low, high)]
    for place, name in enumerate(names):
        body += _dots([one for one in own if one.gpu == name], place, low, high)
        body += _key(name, place, sum(one.gpu == name for one in own))
    height = _TOP + _SIDE + 50
    styles = "".join(f".c{n}{{fill:{one[0]}}}" for n, one in enumerate(_COLOURS))
    dark = "".join(f".c{n}{{fill:{one[1]}}}" for n, one in enumerate(_COLOURS))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'font-family="sans-serif" font-size="13"><title>{escape(title)}</title>\n<style>'
        "svg{background:#FFFFFF}text{fill:#31333F}.grid{stroke:#8884;stroke-width:1}"
        ".ideal{stroke:#31333F}.band{stroke:#6B6F7B;stroke-dasharray:5 4}"
        f".dot{{fill-opacity:.75}}{styles}@media (prefers-color-scheme: dark){{"
        "svg{background:#0E1117}text{fill:#FAFAFA}.ideal{stroke:#FAFAFA}.band{stroke:#A3A8B4}"
        f"{dark}}}</style>\n" + "\n".join(body) + "\n</svg>\n"
    )


def _span(values: Sequence[float]) -> tuple[float, float]:
    """Logarithms of the ends of both axes."""
    if not values:
        return 0.0, 1.0
    low, high = log10(min(values)), log10(max(values))
    room = max(0.05 * (high - low), 0.1)
    return low - room, high + room


def _x(value: float, low: float, high: float) -> float:
    return _LEFT + _SIDE * (log10(value) - low) / (high - low)


def _y(value: float, low: float, high: float) -> float:
    return _TOP + _SIDE * (high - log10(value)) / (high - low)


def _frame(low: float, high: float, unit: str, title: str) -> Iterator[str]:
    """Title, grid, and what the axes say."""
    yield f'<text x="{_LEFT}" y="22" font-size="16">{escape(title)}</text>'
    for exponent in range(floor(low), ceil(high) + 1):
        for digit in (1, 2, 5):
            value = digit * 10.0**exponent
            if low <= log10(value) <= high:
                x, y = _x(value, low, high), _y(value, low, high)
                yield f'<path class="grid" d="M{x:.1f} {_TOP}v{_SIDE}M{_LEFT} {y:.1f}h{_SIDE}"/>'
                end = _TOP + _SIDE + 18
                yield f'<text x="{x:.1f}" y="{end}" text-anchor="middle">{value:g}</text>'
                yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
    middle, end = _LEFT + _SIDE / 2, _TOP + _SIDE + 40
    yield f'<text x="{middle}" y="{end}" text-anchor="middle">measured, {escape(unit)}</text>'
    up = _TOP + _SIDE / 2
    yield (
        f'<text transform="translate(18 {up}) rotate(-90)" text-anchor="middle">'
        f"predicted, {escape(unit)}</text>"
    )


def _lines(low: float, high: float) -> Iterator[str]:
    """Where predicted is measured, and a tenth beside it."""
    for name, off in (("ideal", 0.0), ("band", log10(1.0 + _BAND)), ("band", -log10(1.0 + _BAND))):
        first, last = max(low, low - off), min(high, high - off)
        ends = [(_x(10**at, low, high), _y(10 ** (at + off), low, high)) for at in (first, last)]
        (x, y), (to_x, to_y) = ends
        yield f'<path class="{name}" d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}"/>'


def _dots(own: Sequence[Answer], place: int, low: float, high: float) -> Iterator[str]:
    for one in own:
        assert one.predicted is not None, "asked of rows with both"
        assert one.measured is not None, "asked of rows with both"
        x, y = _x(one.measured, low, high), _y(one.predicted, low, high)
        yield _mark(place, x, y, f"{one.id}: {one.predicted:.4g} predicted, {one.measured:.4g}")


def _key(name: str, place: int, rows: int) -> Iterator[str]:
    x, y = _LEFT + _SIDE + 24, _TOP + 12 + 22 * place
    yield _mark(place, x, y, name)
    yield f'<text x="{x + 12}" y="{y + 4}">{escape(name)} ({rows})</text>'


def _mark(place: int, x: float, y: float, words: str) -> str:
    """A dot with words that show where a pointer rests."""
    colour = f'class="dot c{place % len(_COLOURS)}"'
    told = f"<title>{escape(words)}</title>"
    shape = _MARKS[place // len(_COLOURS) % len(_MARKS)] if place >= len(_COLOURS) else "circle"
    if shape == "circle":
        return f'<circle {colour} cx="{x:.1f}" cy="{y:.1f}" r="4">{told}</circle>'
    turn = f' transform="rotate(45 {x:.1f} {y:.1f})"' if shape == "diamond" else ""
    return (
        f'<rect {colour} x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"{turn}>{told}</rect>'
    )
