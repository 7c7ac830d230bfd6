"""Text in figures: how wide names are, how they wrap, and axis ranges wide enough for the texts
beside bars and marks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from twin.figures.drawing import Axis, Bars, Drawing, Frame

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
