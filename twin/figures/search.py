"""Search results: layouts by run time and cost, one layout over cluster sizes, and the break-even
points of a decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import log, log10
from typing import Final, Literal

from twin.figures.charts import Clickable, clickable_dots, crosses, log_axis, row_axis
from twin.figures.palette import BAD, GOOD, INK, Swatch, Theme, series, swatch
from twin.figures.plotly import (
    Axis,
    Bars,
    Dots,
    Drawing,
    Frame,
    Line,
    Note,
    Picture,
    Row,
    capital,
    draw,
)
from twin.reports.table import count, digits, percent

LOG_FROM: Final = 3.0
"""Largest over smallest value from which an axis is logarithmic."""
_ROW: Final = 54
Role = Literal["picked", "frontier", "fits", "unfit"]
State = Literal["holds", "other", "nobody"]


@dataclass(frozen=True, slots=True)
class LayoutMark:
    """A layout: days and cost of its run, the group whose look it has, and its hover text."""

    id: str
    group: str
    days: float
    cost: float
    role: Role
    words: str

    @property
    def clickable(self) -> Clickable:
        """Its place in the chart."""
        return Clickable(self.days, self.cost, self.id, self.words)


@dataclass(frozen=True, slots=True)
class Limits:
    """The deadline in days and the budget in dollars; None: no limit."""

    days: float | None = None
    cost: float | None = None


def pareto(
    layouts: Sequence[LayoutMark], limits: Limits, title: str, unit: str, theme: Theme
) -> Picture:
    """Days against cost (`unit`): a look per group, the Pareto-optimal layouts joined by a line,
    layouts that do not fit as grey crosses."""
    days, costs = [one.days for one in layouts], [one.cost for one in layouts]
    x = _axis("Run time without failures, days", [*days, limits.days or days[0]], "d")
    y = _axis(f"Cost without failures, {unit}", [*costs, limits.cost or costs[0]], "")
    unfit = [one.clickable for one in layouts if one.role == "unfit"]
    drawn = [
        *_limits(limits, x, y, theme),
        *crosses(unfit, "Does not fit", theme),
        *_frontier(layouts, theme),
        *_groups(layouts, theme),
    ]
    return Picture(
        title=title,
        caption="Each mark is a layout on one cluster size; further left is sooner, further down "
        "is cheaper. No layout is both sooner and cheaper than a layout on the line. Grey crosses "
        "do not fit in memory. Click a mark to open it as a scenario.",
        figure=draw(drawn, Frame(x, y, height=400, theme=theme, width=640)),
    )


def _axis(title: str, values: Sequence[float], unit: str) -> Axis:
    """A logarithmic axis where values differ much."""
    low, high = min(values), max(values)
    if high > LOG_FROM * low > 0:
        return log_axis(title, values, lambda value: f"{count(value)} {unit}".strip())
    room = 0.06 * (high - low) or 0.1 * high or 1.0
    return Axis(title, (max(0.0, low - room), high + room))


def _ends(axis: Axis) -> list[float]:
    """The first and last value of an axis, in its unit."""
    assert axis.span is not None
    return [10.0**end if axis.logarithmic else end for end in axis.span]


def _limits(limits: Limits, x: Axis, y: Axis, theme: Theme) -> list[Drawing]:
    """The deadline and the budget as lines."""
    found: list[Drawing] = []
    if limits.days is not None:
        name = f"Deadline, {digits(limits.days)} d"
        found.append(Line([limits.days] * 2, _ends(y), INK[theme], name, 1.5, "dot"))
    if limits.cost is not None:
        name = f"Budget, {count(limits.cost)} USD"
        found.append(Line(_ends(x), [limits.cost] * 2, INK[theme], name, 1.5, "dash"))
    return found


def _frontier(layouts: Sequence[LayoutMark], theme: Theme) -> list[Drawing]:
    own = sorted((one.days, one.cost) for one in layouts if one.role in ("picked", "frontier"))
    if len(own) < 2:
        return []
    days, cost = zip(*own, strict=True)
    return [Line(days, cost, GOOD[theme], "Pareto-optimal", 2)]


def _groups(layouts: Sequence[LayoutMark], theme: Theme) -> list[Drawing]:
    """Layouts that fit, a colour and a shape per group; the recommended one last, as a star."""
    names = list(dict.fromkeys(one.group for one in layouts if one.role != "unfit"))
    found: list[Drawing] = []
    picked: list[Drawing] = []
    for at, name in enumerate(names):
        look, symbol = series(at, theme)
        own = [one for one in layouts if one.group == name and one.role != "unfit"]
        others = [one.clickable for one in own if one.role != "picked"]
        best = [one.clickable for one in own if one.role == "picked"]
        if others:
            found.append(clickable_dots(others, name, look, symbol))
        if best:
            star = Swatch(look.fill, INK[theme], "")
            picked.append(clickable_dots(best, "Recommended", star, "star", 19))
    return [*found, *picked]


@dataclass(frozen=True, slots=True)
class SizeMark:
    """One layout on one cluster size; `days` is None where it does not fit or cannot run."""

    gpus: int
    days: float | None
    words: str
    id: str = ""
    now: bool = False
    """True for the size of the plan."""

    def at(self, days: float) -> Clickable:
        """Its place in the chart."""
        return Clickable(self.gpus, days, self.id, self.words)


@dataclass(frozen=True, slots=True)
class SearchMark:
    """A plan that was better than all before: what found it, when, and its step."""

    name: str
    seconds: float
    step_seconds: float


def searched(marks: Sequence[SearchMark], theme: Theme) -> Picture:
    """The best step over the time that was searched, as stairs."""
    first, last = marks[0], marks[-1]
    steps = [one.step_seconds for one in marks]
    end = 1.05 * max(last.seconds, 1.0)
    x = [
        at
        for one, after in pairwise((*marks, replace(last, seconds=end)))
        for at in (one.seconds, after.seconds)
    ]
    stairs = Line(x, [step for step in steps for _ in range(2)], GOOD[theme], width=2)
    spots = [
        Clickable(
            one.seconds, one.step_seconds, one.name, f"{one.name}: {digits(one.step_seconds)} s"
        )
        for one in marks
    ]
    dots = clickable_dots(spots, "Better plan", Swatch(GOOD[theme], INK[theme], ""))
    frame = Frame(
        Axis("Seconds searched", (-0.02 * end, end)),
        _axis("Seconds of one step", steps, "s"),
        height=280,
        theme=theme,
        legend=False,
    )
    gain = 1 - last.step_seconds / first.step_seconds
    found = f"The best plan takes {percent(gain)} off the step"
    return Picture(
        title=found if gain else "No plan found so far is faster than the written one",
        caption="A point is a plan that is faster than all found before it.",
        figure=draw([stairs, dots], frame),
        table=(),
    )


def scaling(sizes: Sequence[SizeMark], theme: Theme) -> Picture:
    """Days of one layout over cluster sizes, beside perfect scaling from the smallest size that
    fits."""
    known = [(one, one.days) for one in sizes if one.days is not None]
    (first, most), fits = known[0], [one for one, _ in known]
    days = [value for _, value in known]
    ideal = [most * first.gpus / one.gpus for one in fits]
    shares = [100 * best / value for best, value in zip(ideal, days, strict=True)]
    every = sorted(one.gpus for one in sizes)
    y = _axis("Run time without failures, days", [*days, *ideal], "d")
    low, high = _ends(y)
    # A little above the axis, which would cut the crosses.
    floor_at = low * (high / low) ** 0.05 if y.logarithmic else low + 0.05 * (high - low)
    missing = [one.at(floor_at) for one in sizes if one.days is None]
    ideal_line = swatch("other", theme).fill
    gpus = [one.gpus for one in fits]
    drawn: list[Drawing] = [
        Line(gpus, ideal, ideal_line, "Perfect scaling", 1.5, "dash"),
        Line(gpus, days, GOOD[theme], width=2),
        *_sizes(known, "This layout", ("circle", 10), theme, now=False),
        *_sizes(known, "The plan's size", ("star", 18), theme, now=True),
        *crosses(missing, "Cannot run, or does not fit", theme),
    ]
    notes = tuple(
        Note(
            log10(one.gpus) + 0.03, log10(at) if y.logarithmic else at, f"{share:.0f} %", INK[theme]
        )
        for one, at, share in zip(fits, days, shares, strict=True)
    )
    span = (log10(every[0]) - 0.08, log10(every[-1]) + 0.16)
    x = Axis("GPUs", span, tuple((float(one), f"{one:,}") for one in every), logarithmic=True)
    return Picture(
        title=_scaling_finding(known, shares),
        caption="The plan's own layout on other numbers of nodes. The percentage is "
        "the throughput per GPU against the smallest size that fits; 100 % is the dashed line.",
        figure=draw(drawn, Frame(x, y, height=300, theme=theme, width=640, notes=notes)),
        table=tuple(_scaling_row(one, most * first.gpus) for one in sizes),
    )


def _sizes(
    known: Sequence[tuple[SizeMark, float]],
    name: str,
    look: tuple[str, float],
    theme: Theme,
    *,
    now: bool,
) -> list[Drawing]:
    own = [one.at(days) for one, days in known if one.now is now]
    return [clickable_dots(own, name, Swatch(GOOD[theme], INK[theme], ""), *look)] if own else []


def _scaling_finding(known: Sequence[tuple[SizeMark, float]], shares: Sequence[float]) -> str:
    (first, most), (last, least) = known[0], known[-1]
    if first is last:
        return f"Of these sizes the layout runs on {first.gpus:,} GPUs only: {digits(most)} days"
    return (
        f"{digits(last.gpus / first.gpus)} times the GPUs take the run from {digits(most)} to "
        f"{digits(least)} days: throughput per GPU falls to {shares[-1]:.0f} %"
    )


def _scaling_row(one: SizeMark, work: float) -> Row:
    share = "" if one.days is None else f"{100 * work / one.gpus / one.days:.0f} %"
    said = one.words.replace("<b>", "").replace("</b>", "").split("<br>")
    return {
        "GPUs": f"{one.gpus:,}",
        "Run time, no failures": "" if one.days is None else f"{digits(one.days)} d",
        "Per GPU": share,
        "Details": "; ".join(said[1:]),
    }


@dataclass(frozen=True, slots=True)
class Flip:
    """A value at which the decision changes: on which side of it, and which layout wins there
    (empty: none meets the goal)."""

    value: float
    side: Literal["below", "above"]
    wins: str


@dataclass(frozen=True, slots=True)
class InputRange:
    """One input in its unit: the range that was tried, its value now (None: unknown), the range of
    its source, and its break-even points, ascending."""

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
        """Where a value lies in the range: 0 at its low end, 1 at its high end."""
        if self.logarithmic and self.low > 0 and value > 0:
            share = log(value / self.low) / log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, share))

    @property
    def parts(self) -> list[tuple[float, float, State, str]]:
        """The range in parts: from and to a place, the decision there, and the layout that wins."""
        if not self.flips:
            return [(0.0, 1.0, "holds", "")]
        edges = [0.0, *(self.place(one.value) for one in self.flips), 1.0]
        found: list[tuple[float, float, State, str]] = []
        for at, (start, end) in enumerate(pairwise(edges)):
            beside = self.flips[max(at - 1, 0)]
            lost = beside.side == ("below" if at == 0 else "above")
            state: State = "holds" if not lost else "other" if beside.wins else "nobody"
            found.append((start, end, state, beside.wins if lost else ""))
        return found

    @property
    def words(self) -> str:
        """The values for which the decision holds, in words."""
        said = [
            f"at {'most' if one.side == 'above' else 'least'} {digits(one.value)} {self.unit}"
            for one in self.flips
        ]
        return " and ".join(one.strip() for one in said) or self.none


def break_even(rows: Sequence[InputRange], *, decided: bool, theme: Theme) -> Picture:
    """Every input over its range; `decided`: some layout meets the goal now."""
    looks: dict[State, tuple[str, Swatch]] = {
        "holds": (
            "The decision holds" if decided else "Nothing meets the goal",
            Swatch(GOOD[theme], GOOD[theme], ""),
        ),
        "other": ("Another layout wins", Swatch(BAD[theme], BAD[theme], "/")),
        "nobody": ("Nothing meets the goal", swatch("bubble", theme)),
    }
    drawn: list[Drawing] = []
    for state, (name, look) in looks.items():
        own = [(at, part) for at, one in enumerate(rows) for part in one.parts if part[2] == state]
        if own:
            drawn.append(_range_bars(name, look, own, rows))
    drawn += _markers(rows, theme)
    frame = Frame(
        x=Axis(span=(-0.02, 1.02), ticks=((0.0, "least"), (1.0, "most")), grid=False),
        y=row_axis([_label(one) for one in rows]),
        height=60 + _ROW * max(len(rows), 1),
        theme=theme,
    )
    return Picture(
        title=_nearest_flip(rows),
        caption="Each bar is one input over the range beside it, moved alone. Where the colour "
        "changes, another decision wins. The diamond is the value now; the thin line above a bar "
        "is the range of its source.",
        figure=draw(drawn, frame),
        table=tuple(_range_row(one) for one in rows),
    )


def _range_bars(
    name: str,
    look: Swatch,
    own: Sequence[tuple[int, tuple[float, float, State, str]]],
    rows: Sequence[InputRange],
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


def _markers(rows: Sequence[InputRange], theme: Theme) -> list[Drawing]:
    """The values of inputs now, and the ranges of their sources."""
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


def _label(one: InputRange) -> str:
    return f"{one.name}<br>{digits(one.low)} to {digits(one.high)} {one.unit}".rstrip()


def _nearest_flip(rows: Sequence[InputRange]) -> str:
    near = [
        (abs(one.place(flip.value) - one.place(one.now)), one, flip)
        for one in rows
        if one.now is not None
        for flip in one.flips
    ]
    if not near:
        return "No input that was moved changes the decision"
    _, one, flip = min(near, key=lambda found: found[0])
    assert one.now is not None
    edge = f"{digits(flip.value)} {one.unit}".strip()
    beyond = f"{flip.wins} wins" if flip.wins else "nothing meets the goal"
    return (
        f"{capital(one.name)} is nearest to a break-even point: {flip.side} {edge} (now "
        f"{digits(one.now)}) {beyond}"
    )


def _range_row(one: InputRange) -> Row:
    return {
        "Input": one.name,
        "Now": "unknown" if one.now is None else f"{digits(one.now)} {one.unit}".strip(),
        "Decision holds": one.words,
        "Beyond it": "; ".join(flip.wins or "nothing meets the goal" for flip in one.flips),
    }
