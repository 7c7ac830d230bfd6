"""A measured step beside its prediction: on one axis of time, by cause, and action by action."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from twin.engine.trace import Trace
from twin.evidence.measured.compare import ActionComparison, StepComparison, error
from twin.figures.palette import BAD, GOOD, INK, Swatch, Theme
from twin.figures.plotly import Axis, Bars, Drawing, Frame, Mark, Picture, Row, draw
from twin.figures.step import causes_table, stacked
from twin.figures.timeline import Lanes, timeline
from twin.reports.breakdown import CAUSE_WORDS, CAUSES
from twin.reports.table import duration, show, signed

_WIDEST: Final = 200.0
"""Percent at which a bar of an action's error is cut: beyond, the number says it."""


def both_timelines(
    both: Trace,
    compared: StepComparison,
    theme: Theme,
    window: tuple[int, int],
    lanes: Lanes = "compute",
) -> Picture:
    """A window (ns) of both steps, stage by stage, pass by pass."""
    picture = timeline(both, theme, window, lanes)
    reading = "Each stage twice: as it was measured, and below it as it was predicted. "
    took, said = (show(ns / 1e9, "s") for ns in (compared.measured_ns, compared.predicted_ns))
    title = f"The step took {took}, and was predicted to take {said}"
    return replace(picture, title=title, caption=reading + picture.caption)


def both_steps(compared: StepComparison, theme: Theme) -> Picture:
    """How the mean rank spent its step, and how it was predicted to."""
    rows = [("measured", compared.measured_row), ("predicted", compared.predicted_row)]
    return Picture(
        title=_gap(compared),
        caption=(
            "Each bar is one training step as the mean rank spends it: seconds, and share of that "
            "step in percent. A timeline cannot tell kernels slowed by communication from others, "
            "so what is measured counts them as compute."
        ),
        figure=stacked(rows, theme),
        table=causes_table(rows),
    )


def _gap(compared: StepComparison) -> str:
    """Where the two differ most."""
    mine, other = compared.measured_row, compared.predicted_row
    worst = max(CAUSES, key=lambda cause: abs(other[cause] - mine[cause]))
    off = (other[worst] - mine[worst]) / 1e9
    if not off:
        return "Both spend the step alike"
    way = "more" if off > 0 else "less"
    return f"They differ most in {CAUSE_WORDS[worst]}: predicted is {duration(abs(off))} {way}"


def actions(compared: StepComparison, theme: Theme) -> Picture:
    """The error of every action that both know, in percent of what was measured."""
    known = [one for one in compared.actions if one.error is not None]
    errors = [100 * (one.error or 0.0) for one in known]
    drawings: list[Drawing] = [
        Bars(
            name=name,
            swatch=Swatch(colour[theme], colour[theme], pattern),
            x=[max(-_WIDEST, min(_WIDEST, size)) for size, _ in own],
            y=[one.name for _, one in own],
            text=[f"{signed(size)} %" for size, _ in own],
            outside=True,
            detail=[[_words(one)] for _, one in own],
            hover="%{y}: %{customdata[0]}",
        )
        for name, colour, pattern, sign in (
            ("Predicted too long", GOOD, "", 1),
            ("Predicted too short", BAD, "/", -1),
        )
        if (own := [(s, one) for s, one in zip(errors, known, strict=True) if s * sign > 0])
    ]
    reach = max((min(_WIDEST, abs(size)) for size in errors), default=1.0) or 1.0
    frame = Frame(
        x=Axis("Percent of what was measured", span=(-1.04 * reach, 1.04 * reach)),
        y=Axis(reverse=True, grid=False, names=tuple(one.name for one in known)),
        height=60 + 24 * max(len(known), 1),
        theme=theme,
        marks=(Mark(0.0, "measured", INK[theme], dash="solid", anchor="center"),),
    )
    return Picture(
        title=_worst(known),
        caption=(
            "Medians, averaged over chunks, without waiting. F and B are forward and backward, I "
            "and W the backward for inputs and for weights. A transfer begins when its ranks are "
            "ready."
        ),
        figure=draw(drawings, frame),
    )


def action_rows(actions: Sequence[ActionComparison]) -> tuple[Row, ...]:
    """Every action: what was measured, what was predicted, and the error."""
    return tuple(
        {
            "Action": one.name,
            "Measured median": _time(one.measured_seconds),
            "Predicted": _time(one.predicted_seconds),
            "Error": _percent(one.error),
            "How many": f"{one.count:,}",
        }
        for one in actions
    )


def chunk_rows(actions: Sequence[ActionComparison]) -> tuple[Row, ...]:
    """The actions that run in more than one chunk, chunk by chunk."""
    return tuple(
        {
            "Action": one.name,
            "Chunk": str(part.chunk),
            "Measured median": _time(part.measured_seconds),
            "Predicted": _time(part.predicted_seconds),
            "Error": _percent(error(part.measured_seconds, part.predicted_seconds)),
        }
        for one in actions
        if len(one.chunks) > 1
        for part in one.chunks
    )


def _percent(off: float | None) -> str:
    return "" if off is None else f"{signed(100 * off)} %"


def _words(one: ActionComparison) -> str:
    return f"measured {_time(one.measured_seconds)}, predicted {_time(one.predicted_seconds)}"


def _time(seconds: float | None) -> str:
    return "none" if seconds is None else duration(seconds)


def _worst(known: Sequence[ActionComparison]) -> str:
    if not known:
        return "No action is known on both sides"
    worst = max(known, key=lambda one: one.weight)
    if not worst.weight:
        return "Every action took what was predicted"
    return f"The action that makes most of the difference is {worst.name}: {_words(worst)}"
