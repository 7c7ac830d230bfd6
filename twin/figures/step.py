"""Where the step time goes: causes as stacked bars, and losses from the ideal time to the achieved
step. Every bar sums to its step."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from twin.figures.charts import Rung, cascade
from twin.figures.palette import Meaning, Swatch, Theme, swatch
from twin.figures.plotly import Axis, Bars, Figure, Frame, Picture, Row, draw
from twin.figures.text_layout import capital, lowered
from twin.reports.breakdown import CAUSE_WORDS, CAUSES, bottleneck
from twin.reports.compare import compare
from twin.reports.numbers import digits, show
from twin.reports.report import Report
from twin.reports.verdict import difference
from twin.reports.waterfall import Loss, Waterfall

MEANING: Final[dict[str, Meaning]] = {
    "compute": "compute",
    "contention": "contention",
    "exposed_tensor": "tensor",
    "exposed_expert": "expert",
    "exposed_pipeline": "pipeline",
    "exposed_data": "data",
    "exposed_context": "context",
    "exposed_offload": "offload",
    "optimizer": "optimizer",
    "bubble": "bubble",
    "other": "other",
}
"""The colour of each cause of the report's breakdown."""

LOSS_MEANING: Final[dict[str, Meaning]] = {
    "extra_flop": "compute",
    "precision": "backward",
    "memory_bound": "memory_bound",
    "efficiency": "efficiency",
    "launch": "launch",
    "recompute": "recompute",
    "host": "host",
    **{cause: colour for cause, colour in MEANING.items() if cause != "compute"},
}
"""The colour of each loss, as in every other figure: the parts of computing, and the other causes
of the breakdown."""

LEGEND: Final[dict[str, str]] = {
    "compute": "Compute",
    "contention": "Slowed kernels",
    "exposed_tensor": "Tensor comm.",
    "exposed_expert": "Expert comm.",
    "exposed_pipeline": "Pipeline comm.",
    "exposed_data": "Data comm.",
    "exposed_context": "Context comm.",
    "exposed_offload": "Host copies",
    "optimizer": "Optimizer",
    "bubble": "Bubble",
    "other": "Other",
}
"""The causes in the few letters that a legend has room for; hover and table have the sentence."""

_LETTERS: Final = 18
"""Letters in a line of a bar's name."""
_NARROW = 0.05
"""Share of the longest bar below which a segment carries no text: the table has it."""


def scenario_steps(reports: Sequence[Report], theme: Theme) -> Picture:
    """How each scenario spends its step, in seconds; the first is the baseline."""
    rows = [(report.name, report.breakdown_ns) for report in reports]
    return Picture(
        title=_finding(reports),
        caption=(
            "Each bar is one training step, averaged over pipeline stages: seconds, and share of "
            "the step in percent. The first bar is the baseline."
        ),
        figure=stacked(rows, theme),
        table=causes_table(rows),
    )


def stage_steps(report: Report, theme: Theme) -> Picture:
    """How the ranks of each pipeline stage spend the step, in seconds."""
    rows = [(role.role, role.breakdown_ns) for role in report.roles]
    busiest = max(rows, key=lambda row: row[1]["compute"])
    idlest = max(rows, key=lambda row: row[1]["bubble"])
    title = (
        f"{capital(busiest[0])} computes longest, {_seconds(busiest[1]['compute'])}; "
        f"{idlest[0]} waits longest in the bubble, {_seconds(idlest[1]['bubble'])}"
    )
    return Picture(
        title=title if len(rows) > 1 else f"{capital(rows[0][0])} is the only stage",
        caption="Each bar is the same step, seen from one pipeline stage.",
        figure=stacked(rows, theme),
        table=causes_table(rows),
    )


def _finding(reports: Sequence[Report]) -> str:
    """One scenario: its largest loss. More: how the step of each other one differs, and why, a
    line each."""
    first = reports[0]
    if len(reports) > 1:
        deltas = compare(reports).deltas
        return "\n".join(difference(first, delta).rstrip(".") for delta in deltas)
    worst = bottleneck(first.breakdown_ns)
    share = show(first.breakdown_ns[worst] / first.step_ns, "%")
    return f"The largest loss beside compute is {CAUSE_WORDS[worst]}, {share} of the step"


def stacked(rows: Sequence[tuple[str, Mapping[str, int]]], theme: Theme) -> Figure:
    """Named breakdowns in ns, a bar each."""
    longest = max(sum(row.values()) for _, row in rows)
    labels = [name for name, _ in rows]
    bars: list[Bars] = []
    for cause in CAUSES:
        if not any(row[cause] for _, row in rows):
            continue
        words = [_seconds_and_share(row, cause) for _, row in rows]
        bars.append(
            Bars(
                name=LEGEND[cause],
                swatch=swatch(MEANING[cause], theme),
                x=[row[cause] / 1e9 for _, row in rows],
                y=labels,
                text=[
                    word if row[cause] >= _NARROW * longest else ""
                    for word, (_, row) in zip(words, rows, strict=True)
                ],
                detail=[[word] for word in words],
                hover=f"%{{y}}<br>{capital(CAUSE_WORDS[cause])}: %{{customdata[0]}}",
            )
        )
    frame = Frame(
        x=Axis("Seconds of one step", span=(0, longest / 1e9 * 1.01)),
        y=Axis(
            ticks=tuple((float(at), _broken(name)) for at, name in enumerate(labels)),
            reverse=True,
            grid=False,
        ),
        height=70 + 44 * len(rows),
        theme=theme,
    )
    return draw(bars, frame)


def _broken(name: str) -> str:
    """A name in lines, so that it leaves room for the bars."""
    return "<br>".join(textwrap.wrap(name, _LETTERS))


def causes_table(rows: Sequence[tuple[str, Mapping[str, int]]]) -> tuple[Row, ...]:
    """Named breakdowns in ns, a column each."""
    used = [cause for cause in CAUSES if any(row[cause] for _, row in rows)]
    lines = [
        {"Cause": capital(CAUSE_WORDS[cause])}
        | {name: _seconds_and_share(row, cause) for name, row in rows}
        for cause in used
    ]
    total = {"Cause": "Step"} | {name: _seconds(sum(row.values())) for name, row in rows}
    return (*lines, total)


def _seconds_and_share(row: Mapping[str, int], cause: str) -> str:
    return f"{_seconds(row[cause])} ({digits(100 * row[cause] / sum(row.values()))} %)"


def _seconds(ns: int) -> str:
    return show(ns / 1e9, "s")


def step_losses(waterfall: Waterfall, name: str, theme: Theme) -> Picture:
    """The losses of a step, in seconds, between the ideal step and the one that was simulated."""
    rungs = [
        Rung(
            "Ideal time at peak FLOP/s",
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
        title=f"{name}: {_largest_loss(waterfall)}",
        caption=(
            "From top to bottom: the model's FLOP at the peak of every GPU, then what each loss "
            "adds: seconds averaged over pipeline stages, and share of the step."
        ),
        figure=cascade(rungs, "Seconds of one step", theme),
        table=_losses_table(waterfall),
    )


def look(loss: Loss, theme: Theme) -> Swatch:
    """The colour of a loss; hatched, as idle time is, where it falls into the ramp."""
    usual = swatch(LOSS_MEANING[loss.key], theme)
    return replace(usual, pattern="/") if loss.phase == "ramp" else usual


def _largest_loss(waterfall: Waterfall) -> str:
    times = digits(waterfall.step_ns / waterfall.ideal_ns)
    if not waterfall.losses:
        return "the step takes its theoretical minimum"
    worst = max(waterfall.losses, key=lambda loss: loss.ns)
    return (
        f"a step takes {times}x its theoretical minimum; the largest loss is "
        f"{lowered(worst.label)}, {_share(worst.ns, waterfall)} of the step"
    )


def _losses_table(waterfall: Waterfall) -> tuple[Row, ...]:
    """Every rung with the utilisation of a step that ends there."""
    ideal = {"Step": "Ideal time at peak FLOP/s", "Takes": _seconds(waterfall.ideal_ns)}
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
