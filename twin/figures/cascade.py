"""Bars that begin where the one above ends: how one amount becomes another, part by part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from twin.figures.palette import INK, Swatch, Theme
from twin.figures.plotly import Axis, Bars, Drawing, Figure, Frame, Line, Mark, draw

ROW: int = 26
"""Pixels of one rung."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One bar: from `start` on by `size`, which may be negative; `text` stands beside it."""

    label: str
    start: float
    size: float
    swatch: Swatch
    text: str
    hover: str

    @property
    def end(self) -> float:
        """Where the next one begins."""
        return self.start + self.size


def cascade(rungs: Sequence[Rung], title: str, theme: Theme, marks: Sequence[Mark] = ()) -> Figure:
    """The rungs from top to bottom; `title` names the axis across, with its unit."""
    looks = list(dict.fromkeys(rung.swatch for rung in rungs))
    drawings: list[Drawing] = [_joints(rungs, theme)]
    drawings += [_bars(rungs, look) for look in looks]
    reach = max([*(max(rung.start, rung.end) for rung in rungs), *(mark.at for mark in marks)])
    least = min(0.0, *(min(rung.start, rung.end) for rung in rungs))
    frame = Frame(
        x=Axis(title, span=(least - (0.02 * reach if least < 0 else 0), 1.02 * reach)),
        y=Axis(
            span=(-0.6, len(rungs) - 0.4),
            ticks=tuple((float(at), rung.label) for at, rung in enumerate(rungs)),
            reverse=True,
            grid=False,
        ),
        height=54 + ROW * len(rungs),
        theme=theme,
        marks=tuple(marks),
        legend=False,
    )
    return draw(drawings, frame)


def _bars(rungs: Sequence[Rung], look: Swatch) -> Bars:
    own = [(at, rung) for at, rung in enumerate(rungs) if rung.swatch == look]
    return Bars(
        name="",
        swatch=look,
        x=[abs(rung.size) for _, rung in own],
        y=[float(at) for at, _ in own],
        base=[min(rung.start, rung.end) for _, rung in own],
        thickness=[0.72] * len(own),
        text=[rung.text for _, rung in own],
        outside=True,
        detail=[[rung.hover] for _, rung in own],
        hover="%{customdata[0]}",
    )


def _joints(rungs: Sequence[Rung], theme: Theme) -> Line:
    """Thin lines from where a bar ends to where the next begins."""
    x = [value for rung in rungs[:-1] for value in (rung.end, rung.end, np.nan)]
    y = [value for at in range(len(rungs) - 1) for value in (at, at + 1, np.nan)]
    return Line(x, y, INK[theme], width=0.8, dash="dot")
