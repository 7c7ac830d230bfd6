"""Views: the figures of an answer as a page lays them out, each with the choices that a reader
has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from twin.figures.palette import Theme
from twin.figures.plotly import Picture


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
