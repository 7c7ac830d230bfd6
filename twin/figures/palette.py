"""One colour per meaning, the same in every figure, legible on light and on dark.

The colours are Okabe and Ito's (Color Universal Design, 2008; hex codes from the authors' table).
Where one of them stands out less than 3:1 from a background (WCAG 2.2, success criterion 1.4.11),
an outline of the same hue carries the contrast; their black becomes near-white on dark. Patterns
are the second channel: idle time is hatched, slow-downs are crossed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Theme = Literal["light", "dark"]

BACKGROUND: dict[Theme, str] = {"light": "#FFFFFF", "dark": "#0E1117"}
INK: dict[Theme, str] = {"light": "#121417", "dark": "#FAFAFA"}
ALARM: dict[Theme, str] = {"light": "#B3261E", "dark": "#FF8A80"}
"""What must not be overlooked: a capacity that is exceeded."""

GOOD: dict[Theme, str] = {"light": "#0072B2", "dark": "#56B4E9"}
"""A change for the better; always with a word or an arrow beside it."""
BAD: dict[Theme, str] = {"light": "#D55E00", "dark": "#E69F00"}
"""A change for the worse."""

Meaning = Literal[
    "compute",
    "forward",
    "backward",
    "weight",
    "recompute",
    "optimizer",
    "contention",
    "imbalance",
    "tensor",
    "expert",
    "pipeline",
    "data",
    "context",
    "offload",
    "bubble",
    "other",
    "parameters",
    "gradients",
    "optimizer_dense",
    "optimizer_expert",
    "activations",
    "logits",
    "working_set",
    "gradient_stand_ins",
    "user_buffers",
    "reserve",
    "free",
    "ideal",
    "achieved",
    "memory_bound",
    "efficiency",
    "launch",
    "host",
    "hidden",
]

_ORANGE, _SKY, _GREEN, _YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
_BLUE, _VERMILION, _PURPLE, _BLACK = "#0072B2", "#D55E00", "#CC79A7", "#000000"
_GREY = "#868E96"
_MINT = "#8FDCC3"
"""The backward pass's green, paler: its second half."""

_OUTLINE = {_ORANGE: "#8A5F00", _SKY: "#1F78A8", _YELLOW: "#7D7600", _MINT: "#00664A"}
"""On white only: the same hue, darkened until it stands out."""
_ON_DARK = {_BLACK: "#E8EAED"}

_FILL: dict[Meaning, tuple[str, str]] = {
    "compute": (_BLUE, ""),
    "forward": (_BLUE, ""),
    "backward": (_GREEN, ""),
    "weight": (_MINT, ""),
    "recompute": (_PURPLE, ""),
    "optimizer": (_BLACK, ""),
    "contention": (_BLUE, "x"),
    "imbalance": (_VERMILION, "/"),
    "tensor": (_ORANGE, ""),
    "expert": (_VERMILION, ""),
    "pipeline": (_SKY, ""),
    "data": (_YELLOW, ""),
    "context": (_YELLOW, "\\"),
    "offload": (_SKY, "-"),
    "bubble": (_GREY, "/"),
    "other": (_GREY, ""),
    # Memory borrows the colour of what makes it: forward keeps activations, backward gradients.
    "parameters": (_PURPLE, ""),
    "gradients": (_GREEN, ""),
    "optimizer_dense": (_BLACK, ""),
    "optimizer_expert": (_BLACK, "x"),
    "activations": (_BLUE, ""),
    "logits": (_BLUE, "."),
    "working_set": (_GREY, ""),
    "gradient_stand_ins": (_GREEN, "/"),
    "user_buffers": (_ORANGE, "/"),
    "reserve": (_GREY, "/"),
    "free": (_SKY, "."),
    # The waterfall from speed of light: what is achieved is solid, what kernels lose is hatched.
    "ideal": (_BLUE, ""),
    "achieved": (_BLACK, ""),
    "memory_bound": (_BLUE, "."),
    "efficiency": (_BLUE, "-"),
    "launch": (_PURPLE, "/"),
    "host": (_PURPLE, "\\"),
    # Communication that costs nothing, since kernels run beside it.
    "hidden": (_GREY, "."),
}

MEANINGS: tuple[Meaning, ...] = tuple(_FILL)
"""Every meaning that has a colour."""

SERIES: tuple[str, ...] = (_BLUE, _VERMILION, _GREEN, _PURPLE, _ORANGE, _SKY, _BLACK, _GREY)
"""Colours of things that have no meaning of their own, such as GPUs beside each other."""
SYMBOLS: tuple[str, ...] = ("circle", "square", "diamond", "triangle-up", "cross")
"""The second channel of dots: no two of forty series share colour and symbol."""

SCALE: dict[Theme, tuple[tuple[float, str], ...]] = {
    "light": ((0.0, "#FFFFFF"), (0.5, "#9CC9E8"), (1.0, "#00456B")),
    "dark": ((0.0, "#0E1117"), (0.5, "#1F5F8B"), (1.0, "#9BD7FF")),
}
"""From nothing to most: one hue, whose lightness grows evenly away from the background, so that it
reads without colour."""

LINKS: dict[Theme, tuple[str, ...]] = {
    "light": ("#ADB5BD", "#56B4E9", "#0072B2", "#D55E00"),
    "dark": ("#5C636A", "#56B4E9", "#7FC8F8", "#FF9E57"),
}
"""Links from unused to busy, which are drawn thicker, too."""


@dataclass(frozen=True, slots=True)
class Swatch:
    """How a meaning is drawn: fill, outline, and a hatch (empty: solid)."""

    fill: str
    line: str
    pattern: str


def swatch(meaning: Meaning, theme: Theme) -> Swatch:
    """The colours of a meaning on one background."""
    colour, pattern = _FILL[meaning]
    if theme == "dark":
        fill = _ON_DARK.get(colour, colour)
        return Swatch(fill, fill, pattern)
    return Swatch(colour, _OUTLINE.get(colour, colour), pattern)


def series(place: int, theme: Theme) -> tuple[Swatch, str]:
    """The look of one of several things without a meaning of their own, and its symbol."""
    colour = SERIES[place % len(SERIES)]
    look = Swatch(colour, _OUTLINE.get(colour, colour), "")
    if theme == "dark":
        fill = _ON_DARK.get(colour, colour)
        look = Swatch(fill, fill, "")
    return look, SYMBOLS[place % len(SYMBOLS)]


def contrast(first: str, second: str) -> float:
    """Contrast ratio of two `#RRGGBB` colours, 1 to 21 (WCAG 2.2, definition of contrast ratio)."""
    low, high = sorted((_luminance(first), _luminance(second)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2, from IEC 61966-2-1)."""
    red, green, blue = (_linear(int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
