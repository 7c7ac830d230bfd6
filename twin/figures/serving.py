"""Serving: throughput against speed per user, the parts of a step, and the effect of twice the
heads.

Accuracy: predictions against published measurements, median errors by group, and the coverage
of intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log10
from typing import Final

from twin.figures.charts import (
    CLEAR,
    Clickable,
    Ranked,
    clickable_dots,
    log_axis,
    name_axis,
    ranking,
    row_axis,
)
from twin.figures.palette import BAD, GOOD, INK, Meaning, Theme, series, swatch
from twin.figures.plotly import (
    Axis,
    Bars,
    Dots,
    Drawing,
    Frame,
    Line,
    Mark,
    Note,
    Picture,
    Row,
    capital,
    draw,
)
from twin.inference.curve import PARTS, AtContext, Part, Point
from twin.loading.files import table
from twin.reports.serving import Doubled, Serving, heads, limit, percent, sentence, shown
from twin.reports.table import count, digits, duration

_MEANING: Final[dict[Part, Meaning]] = table(__name__, "_MEANING")
_SHORT: Final = table(__name__, "_SHORT")
"""What figures of the comparison of heads are called beside bars."""


def throughput(found: Serving, theme: Theme) -> Picture:
    """Tokens per second and GPU against tokens per second that each user gets: a line per context,
    a dot per number of users, and the same in one batch where halves take turns."""
    drawn: list[Drawing] = []
    notes: list[Note] = []
    shown_at = [at for at in found.curve.contexts if at.points]
    points = [one for at in shown_at for one in at.points]
    fastest = max(max(one.per_user, 1 / one.in_line) for one in points)
    for place, at in enumerate(shown_at):
        drawn += _context(at, place, theme, turns=found.engine.two_batches)
        last = at.points[-1]
        words = f"{last.users:,} users"
        at_left = last.per_user - 0.015 * fastest
        notes.append(Note(at_left, log10(last.per_gpu), words, INK[theme], "right"))
    frame = Frame(
        x=Axis("Tokens per second of each user", (0.0, 1.06 * fastest)),
        y=log_axis("Tokens per second of a GPU", [one.per_gpu for one in points]),
        height=420,
        theme=theme,
        width=640,
        notes=tuple(notes),
    )
    dashed = " Dashed: the same without halves that take turns." if found.engine.two_batches else ""
    return Picture(
        title=sentence(found).replace(". ", "\n").rstrip("."),
        caption="Right is faster for each user, up is more per GPU. Each line begins at the right "
        "with one user per group. Users double from dot to dot until memory ends, or the engine's "
        f"`batch`.{dashed} Decoding only.",
        figure=draw(drawn, frame),
        table=tuple(_row(found, at, one) for at in shown_at for one in at.points),
    )


def _context(at: AtContext, place: int, theme: Theme, *, turns: bool) -> list[Drawing]:
    look, symbol = series(place, theme)
    xs, ys = [one.per_user for one in at.points], [one.per_gpu for one in at.points]
    name = f"{at.context:,} tokens of context"
    drawn: list[Drawing] = [Line(xs, ys, look.line, width=2)]
    if turns:
        drawn.insert(
            0,
            Line(
                [1 / one.in_line for one in at.points],
                [one.sequences / one.in_line / one.group for one in at.points],
                look.line,
                width=1.5,
                dash="dash",
            ),
        )
    drawn.append(
        Dots(
            name,
            xs,
            ys,
            look.fill,
            look.line,
            symbol,
            9,
            "%{customdata[0]}",
            detail=[[_told(at, one)] for one in at.points],
        )
    )
    return drawn


def _told(at: AtContext, one: Point) -> str:
    share = digits(100 * one.parts[one.bound] / one.step)
    return (
        f"<b>{one.users:,} users at {at.context:,} tokens</b><br>{digits(one.per_user)} tok/s each,"
        f" {count(one.per_gpu)} tok/s per GPU<br>step of {duration(one.step)}: {share} % "
        f"{PARTS[one.bound]}"
    )


def _row(found: Serving, at: AtContext, one: Point) -> Row:
    last = one is at.points[-1]
    reach = found.reach.get(at.context) if last else None
    span = reach and f"{count(one.per_gpu * reach.low)} to {count(one.per_gpu * reach.high)}"
    return {
        "Context": f"{at.context:,}",
        "Users": f"{one.users:,}",
        "Each user": f"{digits(one.per_user)} tok/s",
        "Each GPU": f"{count(one.per_gpu)} tok/s",
        "By its ranges": span or "",
        "With prompts": f"{count(one.with_prompts)} tok/s",
        "Step": duration(one.step),
        "Without turns": duration(one.in_line),
        "Roofline": duration(one.light),
        "Most of it": PARTS[one.bound],
        "No more because": limit(at) if last else "",
    }


def steps(found: Serving, theme: Theme) -> Picture:
    """What a step is made of at every context and number of users, stacked."""
    rows = [
        (f"{at.context:,} tokens, {one.users:,} users", one)
        for at in found.curve.contexts
        for one in at.points
    ]
    parts: list[Part] = [part for part in PARTS if any(one.parts[part] > 0 for _, one in rows)]
    bars = [
        Bars(
            name=capital(PARTS[part]),
            swatch=swatch(_MEANING[part], theme),
            x=[1e3 * one.parts[part] for _, one in rows],
            y=[name for name, _ in rows],
            hover="%{y}<br>%{customdata[0]}",
            detail=[[f"{PARTS[part]}: {duration(one.parts[part])}"] for _, one in rows],
        )
        for part in parts
    ]
    frame = Frame(
        x=Axis("Milliseconds", (0.0, 1.02 * max(1e3 * one.step for _, one in rows))),
        y=name_axis(name for name, _ in rows),
        height=70 + 26 * len(rows),
        theme=theme,
        width=640,
    )
    return Picture(
        title=_finding([one for _, one in rows]),
        caption="One step gives every user a token. GEMMs that memory bandwidth binds count as "
        "weights.",
        figure=draw(bars, frame),
        table=tuple(
            {"Context and users": name, "Step": duration(one.step)}
            | {capital(PARTS[part]): duration(one.parts[part]) for part in parts}
            for name, one in rows
        ),
    )


def _finding(points: list[Point]) -> str:
    bounds = {one.bound for one in points}
    if len(bounds) == 1:
        return f"Most of every step are {PARTS[points[0].bound]}"
    found = (
        f"{PARTS[bound]} in {sum(one.bound == bound for one in points)}"
        for bound in PARTS
        if bound in bounds
    )
    return f"Of {len(points)} steps, most of the time are {', '.join(found)}"


def twice_the_heads(found: Serving, theme: Theme) -> Picture:
    """By how much twice the heads change each figure at the longest context."""
    known = [(one, one.change) for one in found.doubled if one.change is not None]
    changes = [100 * change for _, change in known]
    rows = [
        Ranked(
            _SHORT[one.key],
            100 * change,
            swatch("ideal" if one.unit == "FLOP" else "achieved", theme),
            percent(one),
            f"{one.name}: {shown(one, one.own)}, then {shown(one, one.twice)}",
            _edge(one, change, theme),
        )
        for one, change in known
    ]
    x = Axis("Percent more", (min(0.0, 1.1 * min(changes)), 1.1 * max(changes)))
    return Picture(
        title=heads(found).rstrip("."),
        caption="At 131,072 tokens, with the same engine. Steps are bound by memory, so twice the "
        "heads cost little. Prompts are bound by FLOP. Wider matrices leave less cache.",
        figure=ranking(rows, x, theme, row=40),
        table=tuple(
            {
                "Figure": one.name,
                f"{found.heads} heads": shown(one, one.own),
                f"{2 * found.heads} heads": shown(one, one.twice),
                "Change": percent(one),
            }
            for one in found.doubled
        ),
    )


def _edge(one: Doubled, change: float, theme: Theme) -> str | None:
    """The outline says whether a change is for the better; FLOP are neither."""
    if one.unit == "FLOP" or not change:
        return None
    good = change > 0 if one.key in ("users", "rate") else change < 0
    return GOOD[theme] if good else BAD[theme]


BAND: Final = 0.2
"""How far off the dashed lines of the scatter are."""
_GROUPS: Final = 12
"""Groups with a look of their own, those with most rows; others share one."""
_WIDEST: Final = 1.0
"""Error at which a bar is cut; beyond, the number says it."""
_LEVEL: Final = 0.8
"""Share of measured values that intervals are meant to hold."""
_REST: Final = "others"
_LETTERS: Final = 21
"""Letters of a name in the legend; of a longer one both ends."""


@dataclass(frozen=True, slots=True)
class RowMark:
    """A published row: measured and predicted in one unit, above zero; the group whose look it has;
    whether it is held out (scored); and its hover text."""

    id: str
    group: str
    measured: float
    predicted: float
    judges: bool
    words: str


@dataclass(frozen=True, slots=True)
class GroupError:
    """Median errors of the same rows: by the twin, and by each baseline that answers them."""

    name: str
    rows: int
    twin: float
    others: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Intervals of a group, and how many contain the measurement."""

    name: str
    held: int
    intervals: int


def scatter(points: Sequence[RowMark], unit: str, title: str, theme: Theme) -> Picture:
    """Predicted against measured, log-log, a look per group; fitted rows are hollow."""
    values = [value for one in points for value in (one.measured, one.predicted)] or [1.0]
    x = log_axis(f"Measured, {unit}", values, lambda value: f"{value:g}")
    frame = Frame(
        x=x,
        y=replace(x, title=f"Predicted, {unit}"),
        height=520,
        theme=theme,
    )
    return Picture(
        title=title,
        caption="Each dot is a published row. On the line prediction equals measurement; the "
        f"dashed lines are {100 * BAND:.0f} % off. Hollow dots are fitted rows, or near copies of "
        "them: they are not scored.",
        figure=draw([*_lines(x, theme), *_dots(points, theme)], frame),
    )


def _lines(axis: Axis, theme: Theme) -> list[Drawing]:
    """The line of perfect prediction, and the errors of `BAND` beside it."""
    x = [10.0**end for end in axis.span or ()]
    grey = swatch("other", theme).line
    return [
        Line(x, x, INK[theme], width=1.5),
        Line(x, [(1 + BAND) * one for one in x], grey, width=1, dash="dash"),
        Line(x, [(1 - BAND) * one for one in x], grey, width=1, dash="dash"),
    ]


def _dots(points: Sequence[RowMark], theme: Theme) -> list[Drawing]:
    """Dots of each group, the largest group at the back; of a group the hollow ones first."""
    sizes: dict[str, int] = {}
    for one in points:
        sizes[one.group] = sizes.get(one.group, 0) + 1
    ranked = sorted(sizes, key=lambda name: (-sizes[name], name))
    shown = ranked if len(ranked) <= _GROUPS else ranked[: _GROUPS - 1]
    drawn: list[Drawing] = []
    names = [*shown, _REST] if len(shown) < len(ranked) else shown
    for at, name in enumerate(names):
        look, symbol = series(at, theme)
        own = [one for one in points if (one.group if one.group in shown else _REST) == name]
        for judges in (False, True):
            part = [one for one in own if one.judges is judges]
            if part:
                both = judges or not any(one.judges for one in own)
                label = _short(name) if both else ""
                own_look = look if judges else replace(look, fill=CLEAR)
                marks = [Clickable(one.measured, one.predicted, one.id, one.words) for one in part]
                drawn.append(clickable_dots(marks, label, own_look, symbol, 7))
    return drawn


def _short(name: str) -> str:
    half = _LETTERS // 2
    return name if len(name) <= _LETTERS else f"{name[:half]}…{name[-half:]}"


_BASELINES: Final = (
    "The baselines know the same fitted rows, and nothing of layouts: `nearest` runs a row at the "
    "FLOP rate of the most similar one, `efficiency` at the usual share of its GPU's peak."
)
_BARS: Final[tuple[Meaning, ...]] = ("ideal", "tensor", "other")


def group_errors(
    groups: Sequence[GroupError], names: Sequence[str], what: str, theme: Theme
) -> Picture:
    """Median errors of groups, ours above those of the baselines called `names`."""
    every = ("The twin", *names)
    thickness = 0.8 / len(every)
    drawn: list[Drawing] = []
    for at, (name, meaning) in enumerate(zip(every, _BARS, strict=False)):
        known = [
            (place, errors[at], one)
            for place, one in enumerate(groups)
            if (errors := (one.twin, *one.others))[at] is not None
        ]
        sizes = [size or 0.0 for _, size, _ in known]
        drawn.append(
            Bars(
                name=name,
                swatch=swatch(meaning, theme),
                x=[100 * min(size, _WIDEST) for size in sizes],
                y=[place + (at - (len(every) - 1) / 2) * thickness for place, _, _ in known],
                base=[0.0] * len(known),
                thickness=[0.9 * thickness] * len(known),
                text=[f"{digits(100 * size)} %" for size in sizes],
                outside=True,
                detail=[[one.name] for _, _, one in known],
                hover=f"%{{customdata[0]}}, {name}: %{{text}}",
            )
        )
    frame = Frame(
        x=Axis("Median error, percent", span=(0.0, 104.0 * _WIDEST)),
        y=row_axis([f"{one.name} ({one.rows:,})" for one in groups]),
        height=70 + 58 * max(len(groups), 1),
        theme=theme,
    )
    return Picture(
        title=_beaten(groups, what),
        caption="The median error of each group; the number of rows is in "
        f"brackets. Bars end at {100 * _WIDEST:.0f} %. {_BASELINES if names else ''}",
        figure=draw(drawn, frame),
    )


def _beaten(groups: Sequence[GroupError], what: str) -> str:
    """In how many groups the twin has smaller errors than every baseline."""
    known = [one for one in groups if any(other is not None for other in one.others)]
    if not known:
        worst = max(groups, key=lambda one: one.twin)
        error = digits(100 * worst.twin)
        return f"Of {len(groups):,} {what}, {worst.name} has the largest median error: {error} %"
    won = sum(one.twin < min(x for x in one.others if x is not None) for one in known)
    return f"In {won:,} of {len(known):,} {what} the twin is closer than the baselines"


def coverage(groups: Sequence[Coverage], theme: Theme) -> Picture:
    """The share of measurements inside their 80 % interval by group; the first group is all."""
    names = [f"{one.name} ({one.held:,} of {one.intervals:,})" for one in groups]
    bars = Bars(
        name="Inside the 80 % interval",
        swatch=swatch("ideal", theme),
        x=[100 * one.held / one.intervals for one in groups],
        y=names,
        hover="%{y}: %{x:.0f} %",
    )
    frame = Frame(
        x=Axis("Inside the 80 % interval, percent", span=(0.0, 100.0)),
        y=name_axis(names),
        height=60 + 30 * len(groups),
        theme=theme,
        legend=False,
        marks=(Mark(100 * _LEVEL, "target: 80 %", INK[theme], anchor="center"),),
    )
    first = groups[0]
    share = digits(100 * first.held / first.intervals)
    return Picture(
        title=f"{share} % of {first.intervals:,} measurements are inside their 80 % interval",
        caption="Left of the dashed line the intervals of that group are too narrow, right of it "
        "too wide. Groups of few rows say little.",
        figure=draw([bars], frame),
    )
