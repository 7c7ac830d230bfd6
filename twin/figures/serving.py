"""Serving: throughput against speed per user, the parts of a step, and the effect of twice the
heads."""

from __future__ import annotations

from math import log10
from typing import Final

from twin.figures.charts import Ranked, log_axis, name_axis, ranking
from twin.figures.palette import BAD, GOOD, INK, Meaning, Theme, series, swatch
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
    draw,
)
from twin.figures.text_layout import capital
from twin.inference.curve import PARTS, AtContext, Part, Point
from twin.reports.numbers import count, digits, duration
from twin.reports.serving import Doubled, Serving, heads, limit, percent, sentence, shown

_MEANING: Final[dict[Part, Meaning]] = {
    "weights": "parameters",
    "cache": "data",
    "traffic": "other",
    "arithmetic": "compute",
    "launches": "launch",
    "tensor": "tensor",
    "expert": "expert",
    "host": "host",
}
_SHORT: Final = {
    "flop_report": "FLOP of a token, as Kimi K2's report counts",
    "flop_whole": "FLOP of a token, keys and values whole",
    "flop_absorbed": "FLOP of a token, as engines decode",
    "flop_prompt": "FLOP of a prompt",
    "step": "Seconds of a step",
    "prompt": "Seconds of a prompt",
    "cache": "Bytes of the cache",
    "weights": "Bytes of weights",
    "users": "Users, at most",
    "rate": "Tokens per second and GPU",
}
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
        caption="Further right each user waits less, further up a GPU does more. Each line begins "
        "at the right with one user in every group, and users double from dot to dot up to where "
        f"memory or the engine's `batch` ends.{dashed} Rates are those of decoding alone.",
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
        caption="One step: a token for every user. Each context's rows have more and more users. "
        "Bytes are read at the rate of the device memory; matrix products that this rate binds "
        "count as weights.",
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
        caption="At 131,072 tokens, with the same engine. FLOP first, then what they cost: a step "
        "that waits for memory reads the cache once for all heads, a prompt waits for arithmetic, "
        "and wider matrices leave less room for the cache.",
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
