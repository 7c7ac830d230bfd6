"""What must be true: the range of each input that was moved, and where in it the decision flips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log
from typing import Final, Literal

from twin.figures.palette import BAD, GOOD, INK, Swatch, Theme, swatch
from twin.figures.plotly import Axis, Bars, Dots, Drawing, Frame, Line, Picture, Row, draw
from twin.figures.words import capital
from twin.reports.numbers import digits

State = Literal["holds", "other", "nobody"]
_ROW: Final = 54


@dataclass(frozen=True, slots=True)
class Flip:
    """A value at which the decision flips: on which side of it, and who is chosen there (empty:
    nobody meets the goal)."""

    value: float
    side: Literal["below", "above"]
    wins: str


@dataclass(frozen=True, slots=True)
class Runway:
    """One input, in its unit: the range over which it was moved, what it is now (None: unknown),
    what its source says it may be, and its flips (ascending)."""

    name: str
    unit: str
    low: float
    high: float
    now: float | None
    logarithmic: bool
    flips: tuple[Flip, ...]
    none: str = ""
    likely: tuple[float, float] | None = None

    def place(self, value: float) -> float:
        """Where a value lies in the range: 0 at its low end, 1 at its high one."""
        if self.logarithmic and self.low > 0 and value > 0:
            share = log(value / self.low) / log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, share))

    @property
    def parts(self) -> list[tuple[float, float, State, str]]:
        """The range in parts, each from and to a place, with who is chosen in it."""
        if not self.flips:
            return [(0.0, 1.0, "holds", "")]
        edges = [0.0, *(self.place(one.value) for one in self.flips), 1.0]
        found: list[tuple[float, float, State, str]] = []
        for at, (start, end) in enumerate(pairwise(edges)):
            beside = self.flips[max(at - 1, 0)]
            wanted = "below" if at == 0 else "above"
            lost = beside.side == wanted
            state: State = "holds" if not lost else "other" if beside.wins else "nobody"
            found.append((start, end, state, beside.wins if lost else ""))
        return found

    @property
    def words(self) -> str:
        """What must be true, in words."""
        said = [
            f"at {'most' if one.side == 'above' else 'least'} {digits(one.value)} {self.unit}"
            for one in self.flips
        ]
        return " and ".join(one.strip() for one in said) or self.none


def runways(rows: Sequence[Runway], *, decided: bool, theme: Theme) -> Picture:
    """Every input over its range; `decided`: some layout meets the goal now."""
    looks: dict[State, tuple[str, Swatch]] = {
        "holds": (
            "The decision holds" if decided else "Nothing meets the goal",
            Swatch(GOOD[theme], GOOD[theme], ""),
        ),
        "other": ("Another layout is chosen", Swatch(BAD[theme], BAD[theme], "/")),
        "nobody": ("Nothing meets the goal", swatch("bubble", theme)),
    }
    drawn: list[Drawing] = []
    for state, (name, look) in looks.items():
        own = [(at, part) for at, one in enumerate(rows) for part in one.parts if part[2] == state]
        if own:
            drawn.append(_bars(name, look, own, rows))
    drawn += _marks(rows, theme)
    frame = Frame(
        x=Axis(span=(-0.02, 1.02), ticks=((0.0, "least"), (1.0, "most")), grid=False),
        y=Axis(
            span=(-0.6, max(len(rows), 1) - 0.4),
            ticks=tuple((float(at), _label(one)) for at, one in enumerate(rows)),
            reverse=True,
            grid=False,
        ),
        height=60 + _ROW * max(len(rows), 1),
        theme=theme,
    )
    return Picture(
        title=_finding(rows),
        caption="Each bar is one input over the range written beside it, moved by itself. Where "
        "the bar changes, the decision flips. The diamond is what the input is now; the thin line "
        "above a bar is what its source says it may be.",
        figure=draw(drawn, frame),
        table=tuple(_row(one) for one in rows),
    )


def _bars(
    name: str,
    look: Swatch,
    own: Sequence[tuple[int, tuple[float, float, State, str]]],
    rows: Sequence[Runway],
) -> Bars:
    return Bars(
        name,
        look,
        x=[end - start for _, (start, end, _, _) in own],
        y=[float(at) for at, _ in own],
        base=[start for _, (start, _, _, _) in own],
        thickness=[0.42] * len(own),
        detail=[[f"<b>{rows[at].name}</b>: {rows[at].words}<br>{wins}"] for at, (*_, wins) in own],
        hover="%{customdata[0]}",
    )


def _marks(rows: Sequence[Runway], theme: Theme) -> list[Drawing]:
    """What inputs are now, and what their sources allow."""
    found: list[Drawing] = []
    for at, one in enumerate(rows):
        if one.likely is not None:
            ends = [one.place(end) for end in one.likely]
            found.append(Line(ends, [at - 0.3] * 2, INK[theme], width=2))
    now = [(at, one, one.now) for at, one in enumerate(rows) if one.now is not None]
    if now:
        found.append(
            Dots(
                "Now",
                [one.place(value) for _, one, value in now],
                [float(at) for at, _, _ in now],
                "#FFFFFF",
                "#000000",
                "diamond",
                13,
                "%{customdata[0]}",
                detail=[[f"{one.name} now: {digits(value)} {one.unit}"] for _, one, value in now],
                outline=2,
            )
        )
    return found


def _label(one: Runway) -> str:
    return f"{one.name}<br>{digits(one.low)} to {digits(one.high)} {one.unit}".rstrip()


def _finding(rows: Sequence[Runway]) -> str:
    """The flip that is nearest to what is."""
    near = [
        (abs(one.place(flip.value) - one.place(one.now)), one, flip)
        for one in rows
        if one.now is not None
        for flip in one.flips
    ]
    if not near:
        return "Nothing that was moved flips the decision"
    _, one, flip = min(near, key=lambda found: found[0])
    assert one.now is not None
    edge = f"{digits(flip.value)} {one.unit}".strip()
    beyond = flip.wins or "nothing meets the goal"
    return (
        f"{capital(one.name)} is nearest to a flip: {flip.side} {edge} (now "
        f"{digits(one.now)}) it is {beyond}"
    )


def _row(one: Runway) -> Row:
    return {
        "Input": one.name,
        "Now": "unknown" if one.now is None else f"{digits(one.now)} {one.unit}".strip(),
        "Must be": one.words,
        "Beyond it": "; ".join(flip.wins or "nothing meets the goal" for flip in one.flips),
    }
