"""Where the step goes: one stacked bar per scenario, or per pipeline stage of one scenario.

Every bar sums to its step.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Final

from twin.figures.palette import Meaning, Theme, swatch
from twin.figures.plotly import Axis, Bars, Figure, Frame, Picture, Row, draw
from twin.figures.words import capital
from twin.reports.breakdown import CAUSE_WORDS, CAUSES, bottleneck
from twin.reports.compare import compare
from twin.reports.numbers import digits, show
from twin.reports.report import Report
from twin.reports.verdict import difference

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

LEGEND: Final[dict[str, str]] = {
    "compute": "Compute",
    "contention": "Slowed kernels",
    "exposed_tensor": "Tensor wait",
    "exposed_expert": "Expert wait",
    "exposed_pipeline": "Pipeline wait",
    "exposed_data": "Data wait",
    "exposed_context": "Context wait",
    "exposed_offload": "Host wait",
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
            "Each bar is one training step as the mean rank spends it: seconds, and share of that "
            "step in percent. The first bar is the baseline."
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
