"""Why the step takes as long as it does: from the speed of light to what is achieved."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from twin.figures.cascade import Rung, cascade
from twin.figures.palette import Meaning, Swatch, Theme, swatch
from twin.figures.plotly import Picture, Row
from twin.figures.step import MEANING as CAUSES
from twin.reports.numbers import digits, show
from twin.reports.waterfall import Loss, Waterfall

MEANING: Final[dict[str, Meaning]] = {
    "extra_flop": "compute",
    "precision": "backward",
    "memory_bound": "memory_bound",
    "efficiency": "efficiency",
    "launch": "launch",
    "recompute": "recompute",
    "host": "host",
    **{cause: colour for cause, colour in CAUSES.items() if cause != "compute"},
}
"""The colour of each loss, as in every other figure: the parts of computing, and the other causes
of the breakdown."""


def speed_of_light(waterfall: Waterfall, name: str, theme: Theme) -> Picture:
    """The losses of a step, in seconds, between the ideal step and the one that was simulated."""
    rungs = [
        Rung(
            "Speed of light",
            0.0,
            waterfall.ideal_ns / 1e9,
            swatch("ideal", theme),
            f"{_seconds(waterfall.ideal_ns)}, 100 % MFU",
            "The model's FLOP at the BF16 peak of all GPUs, and nothing else",
        )
    ]
    for loss in waterfall.losses:
        text = f"{signed(loss.ns)} ({_share(loss.ns, waterfall)})"
        rungs.append(
            Rung(
                loss.label,
                rungs[-1].end,
                loss.ns / 1e9,
                look(loss, theme),
                text,
                f"<b>{loss.label}</b>: {text}<br>{loss.reason}",
            )
        )
    achieved = f"{_seconds(waterfall.step_ns)}, {show(waterfall.mfu(waterfall.step_ns), '%')} MFU"
    step = waterfall.step_ns / 1e9
    rungs.append(Rung("Achieved step", 0.0, step, swatch("achieved", theme), achieved, achieved))
    return Picture(
        title=f"{name}: {_finding(waterfall)}",
        caption=(
            "From top to bottom: the model's FLOP at the peak of every GPU, then what each loss "
            "adds, as seconds of the mean rank and as share of the step, down to the step as "
            "simulated."
        ),
        figure=cascade(rungs, "Seconds of one step", theme),
        table=_table(waterfall),
    )


def look(loss: Loss, theme: Theme) -> Swatch:
    """The colour of a loss; hatched, as idle time is, where it falls into the ramp."""
    usual = swatch(MEANING[loss.key], theme)
    return replace(usual, pattern="/") if loss.phase == "ramp" else usual


def _finding(waterfall: Waterfall) -> str:
    times = digits(waterfall.step_ns / waterfall.ideal_ns)
    if not waterfall.losses:
        return "the step runs at the speed of light"
    worst = max(waterfall.losses, key=lambda loss: loss.ns)
    return (
        f"a step takes {times} times its speed of light; the largest loss is "
        f"{worst.label[:1].lower()}{worst.label[1:]}, {_share(worst.ns, waterfall)} of the step"
    )


def _table(waterfall: Waterfall) -> tuple[Row, ...]:
    """Every rung with the utilisation of a step that ends there."""
    ideal = {"Step": "Speed of light", "Takes": _seconds(waterfall.ideal_ns)}
    rows: list[Row] = [
        ideal | _after(waterfall, waterfall.ideal_ns) | {"Why": "the model's FLOP at peak"}
    ]
    spent = waterfall.ideal_ns
    for loss in waterfall.losses:
        spent += loss.ns
        rows.append(
            {"Step": loss.label, "Takes": signed(loss.ns)}
            | _after(waterfall, spent)
            | {"Why": loss.reason}
        )
    total = {"Step": "Achieved step", "Takes": _seconds(waterfall.step_ns)}
    return (*rows, total | _after(waterfall, waterfall.step_ns) | {"Why": ""})


def _after(waterfall: Waterfall, spent: int) -> dict[str, str]:
    return {"Up to here": _seconds(spent), "MFU": show(waterfall.mfu(spent), "%")}


def _share(ns: int, waterfall: Waterfall) -> str:
    return f"{digits(100 * ns / waterfall.step_ns)} %"


def signed(ns: int) -> str:
    """Nanoseconds in words, also where a loss is a gain."""
    return _seconds(ns) if ns >= 0 else f"-{_seconds(-ns)}"


def _seconds(ns: int) -> str:
    return show(ns / 1e9, "s")
