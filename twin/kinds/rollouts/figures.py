"""The figures of rollouts: what engines spend their time on, and requests over an iteration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from twin.figures.charts import Ranked, View, ranking
from twin.figures.palette import Meaning, Theme, swatch
from twin.figures.plotly import Area, Axis, Frame, Picture, capital, draw
from twin.kinds.base import Run
from twin.kinds.rollouts.plan import SPENT, RolloutIteration
from twin.kinds.rollouts.report import RolloutReport
from twin.reports.table import digits, duration, show

_LEAST: Final = 1e-4
"""A share that is too small to be drawn."""
_STATES: Final[tuple[tuple[str, str, Meaning], ...]] = (
    ("running", "Generating", "compute"),
    ("waiting", "Waiting for an environment", "tensor"),
    ("queued", "Queued", "bubble"),
)
"""Fields of a moment, in words, with their looks."""


def views(run: Run) -> Iterator[View]:
    """Every figure of rollouts."""
    report: RolloutReport = run.report
    last = report.trace.iterations[-1]
    yield View(
        "Summary", "Where engines spend their time", "spent", lambda theme, _: spent(report, theme)
    )
    yield View(
        "Summary", "Requests over the iteration", "requests", lambda theme, _: requests(last, theme)
    )


def spent(report: RolloutReport, theme: Theme) -> Picture:
    """Shares of the engines' time, in percent."""
    rows = [
        Ranked(
            capital(SPENT[part]),
            100 * share,
            swatch("bubble" if part == "idle" else "compute", theme),
            f"{digits(100 * share)} %",
        )
        for part, share in report.spent.items()
        if share >= _LEAST
    ]
    x = Axis("Percent of the engines' time", span=(0.0, 1.12 * max(one.length for one in rows)))
    idle = show(report.kpis["idle_share"], "%")
    return Picture(
        title=f"Engines are idle {idle} of the time",
        caption="Means over the later half of the iterations; the shares sum to 100 %.",
        figure=ranking(rows, x, theme, row=44),
        table=tuple({"Engines": one.name, "Share": one.text} for one in rows),
    )


def requests(last: RolloutIteration, theme: Theme) -> Picture:
    """Requests by state over the last iteration, stacked."""
    at = [(load.ns - last.begin_ns) / 1e9 for load in last.loads]
    times = np.array([*at, last.length_ns / 1e9])
    areas = [
        Area(
            name=name,
            swatch=swatch(meaning, theme),
            x=times,
            y=np.array([*counts, counts[-1]]),
            hover=f"{name}: %{{y:,.0f}} at %{{x:.4~g}} s",
        )
        for field, name, meaning in _STATES
        if any(counts := [float(getattr(load, field)) for load in last.loads])
    ]
    most = max((one.running + one.waiting + one.queued for one in last.loads), default=1)
    frame = Frame(
        x=Axis("Seconds since the iteration began", span=(0.0, float(times[-1])), grid=False),
        y=Axis("Requests", span=(0.0, 1.08 * most)),
        height=330,
        theme=theme,
    )
    nine = last.at(0.9)
    tail = "" if nine is None else f"; nine of ten are done after {duration(nine / 1e9)}"
    return Picture(
        title=f"{len(last.done_ns):,} requests are done in {duration(last.length_ns / 1e9)}{tail}",
        caption="The last iteration. The long tail at the end has few requests on many engines.",
        figure=draw(areas, frame),
        table=tuple(
            {
                "Requests done": f"{100 * share:.0f} %",
                "After": duration(ns / 1e9) if (ns := last.at(share)) is not None else "never",
            }
            for share in (0.5, 0.9, 0.99, 1.0)
        ),
    )
