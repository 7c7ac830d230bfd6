"""What a figure is made of, as plain data: bars, lines, areas, dots, cells, marks, notes, axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from twin.figures.palette import Swatch, Theme

Values = Sequence[float] | NDArray[np.float64]
Row = Mapping[str, str]


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
    outside: bool = False
    """The text stands beside the bars, not in them."""
    reach: tuple[Values, Values] | None = None
    """Whiskers: how far each bar's end may lie lower and higher; 0 where that is unknown."""
    detail: Sequence[Sequence[Any]] | NDArray[Any] | None = None
    outline: float = 1.0
    edge: str | None = None
    """Colour of the outline in place of the swatch's own."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points; NaN breaks it. Nameless lines have no entry in the legend."""

    x: Values
    y: Values
    colour: str
    name: str = ""
    width: float = 2.0
    dash: Literal["solid", "dash", "dot"] = "solid"
    hover: str = ""
    detail: Sequence[Sequence[Any]] | NDArray[Any] | None = None


@dataclass(frozen=True, slots=True)
class Area:
    """A quantity that is constant from each x to the next, stacked on the areas before it."""

    name: str
    swatch: Swatch
    x: Values
    y: Values
    hover: str


@dataclass(frozen=True, slots=True)
class Dots:
    """Marked places, each with a text beside or in it."""

    name: str
    x: Values
    y: Values
    fill: str
    line: str
    symbol: str
    size: float
    hover: str = ""
    text: Sequence[str] | None = None
    detail: Sequence[Sequence[Any]] | NDArray[Any] | None = None
    outline: float = 1.0


@dataclass(frozen=True, slots=True)
class Cells:
    """A table of values as colours, from the background's end of the scale to the other, with the
    values as text; rows are `y`."""

    x: Sequence[str] | Sequence[int]
    y: Sequence[str] | Sequence[int]
    values: Sequence[Sequence[float]]
    text: Sequence[Sequence[str]]
    """Empty: only colours."""
    hover: str
    unit: str
    least: float = 0.0
    """The value that is drawn as the background."""
    detail: Sequence[Sequence[str]] = ()
    """Words of a cell for `hover`, where its value is not enough."""


Drawing = Bars | Line | Area | Dots | Cells
"""What a figure is made of."""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis: its title, its range and, where it names things, ticks."""

    title: str = ""
    span: tuple[float, float] | None = None
    ticks: tuple[tuple[float, str], ...] | None = None
    names: tuple[str, ...] = ()
    """Named places in this order, where drawings may miss some or come in another."""
    reverse: bool = False
    grid: bool = True
    logarithmic: bool = False
    """Equal steps are equal factors; `span` then holds exponents of ten."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A reference across the figure: a line at `at`, or a band up to `until`, labelled above; with
    `level` it is a height, labelled at the left."""

    at: float
    label: str
    colour: str
    until: float | None = None
    dash: Literal["solid", "dash", "dot"] = "dash"
    anchor: Literal["left", "center", "right"] = "left"
    lift: int = 0
    """Rows by which the label is lifted, so that neighbouring labels do not meet."""
    level: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """Words at a place of the figure."""

    x: float
    y: float
    text: str
    colour: str
    anchor: Literal["left", "center", "right"] = "left"


@dataclass(frozen=True, slots=True)
class Frame:
    """Everything around the drawings."""

    x: Axis
    y: Axis
    height: int
    """Pixels, without the legend and the marks' labels above the bars."""
    theme: Theme
    width: int = 370
    """Pixels of the labels and the bars for which the legend, and the room for texts beside bars,
    are laid out: those beside the app's sidebar on a page of 900. Where there are more, the legend
    takes fewer rows than it has room for."""
    marks: tuple[Mark, ...] = field(default=())
    notes: tuple[Note, ...] = field(default=())
    legend: bool = True
