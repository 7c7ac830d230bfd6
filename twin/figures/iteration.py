"""An iteration of reinforcement learning: what ran when on which GPUs, what GPUs did, and the same
iteration in other ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from twin.figures.palette import Meaning, Theme, swatch
from twin.figures.plotly import Axis, Bars, Frame, Picture, draw
from twin.report.numbers import digits, duration, show
from twin.rl.iteration import CAUSES, PHASES, WORKS, IterationReport
from twin.rl.iteration.types import Phase, Side, Span

_MEANING: Final[dict[Phase, Meaning]] = {
    "rollout": "compute",
    "rewards": "other",
    "load": "offload",
    "score": "tensor",
    "train": "optimizer",
    "unload": "offload",
    "update": "data",
    "wake": "bubble",
}
_SIDES: Final[dict[Side, str]] = {
    "all": "All GPUs",
    "engines": "GPUs of engines",
    "trainers": "GPUs of the trainer",
}


def timeline(report: IterationReport, theme: Theme) -> Picture:
    """The last iteration: every phase on its GPUs over time."""
    last = report.rounds[-1]
    sides = [name for side, name in _SIDES.items() if any(s.side == side for s in last.spans)]
    bars = [_bar(span, theme) for span in last.spans]
    longest = max(last.spans, key=lambda span: span.end_ns - span.start_ns)
    took = duration((longest.end_ns - longest.start_ns) / 1e9)
    frame = Frame(
        x=Axis("Seconds", span=(0.0, last.length_ns / 1e9)),
        y=Axis(reverse=True, grid=False, names=tuple(sides)),
        height=90 + 48 * len(sides),
        theme=theme,
        legend=True,
    )
    return Picture(
        title=f"{_capital(PHASES[longest.phase])} take {took} of the last "
        f"iteration's {duration(last.length_ns / 1e9)}",
        caption="Each bar is a phase on the GPUs that take part in it. Figures elsewhere are means "
        "of several iterations.",
        figure=draw(bars, frame),
        table=tuple(
            {
                "Phase": _capital(PHASES[span.phase]),
                "GPUs": f"{span.gpus:,}",
                "From": duration(span.start_ns / 1e9),
                "To": duration(span.end_ns / 1e9),
            }
            for span in last.spans
        ),
    )


def _bar(span: Span, theme: Theme) -> Bars:
    name, took = _capital(PHASES[span.phase]), (span.end_ns - span.start_ns) / 1e9
    return Bars(
        name=name,
        swatch=swatch(_MEANING[span.phase], theme),
        x=[took],
        base=[span.start_ns / 1e9],
        y=[_SIDES[span.side]],
        hover=f"{name}<br>{duration(took)} on {span.gpus:,} GPUs",
        outline=0.5,
    )


def occupation(report: IterationReport, theme: Theme) -> Picture:
    """What all GPUs do over an iteration, in percent: work, and why they have none."""
    rows = [(_capital(WORKS[work]), share, "compute") for work, share in report.busy.items()]
    rows += [(_capital(CAUSES[cause]), share, "bubble") for cause, share in report.idle.items()]
    shown = [row for row in rows if row[1]]
    meanings: dict[str, Meaning] = {"compute": "compute", "bubble": "bubble"}
    bars = [
        Bars(
            name=name,
            swatch=swatch(meanings[meaning], theme),
            x=[100 * share],
            y=[name],
            text=[f"{digits(100 * share)} %"],
            outside=True,
            hover=f"{name}: {digits(100 * share)} %",
        )
        for name, share, meaning in shown
    ]
    frame = Frame(
        x=Axis("Percent of all GPUs' time", span=(0.0, 112 * max(share for _, share, _ in shown))),
        y=Axis(reverse=True, grid=False, names=tuple(name for name, _, _ in shown)),
        height=60 + 30 * len(shown),
        theme=theme,
        legend=False,
    )
    idle = show(report.kpis["idle_share"], "%")
    return Picture(
        title=f"GPUs have nothing to do for {idle} of the time",
        caption="Rows sum to all GPUs' time. What GPUs do inside of an optimizer step is the "
        "step's own breakdown, and counts as work here.",
        figure=draw(bars, frame),
        table=tuple(
            {"GPUs do": name, "Share": f"{digits(100 * share)} %"} for name, share, _ in shown
        ),
    )


def ways(reports: Sequence[IterationReport], theme: Theme) -> Picture:
    """Iterations of several scenarios side by side."""
    best = min(reports, key=_seconds)
    bars = [
        Bars(
            name=one.name,
            swatch=swatch("achieved" if one is best else "ideal", theme),
            x=[_seconds(one)],
            y=[one.name],
            text=[duration(_seconds(one))],
            outside=True,
            hover=f"{one.name}: {duration(_seconds(one))}",
        )
        for one in reports
    ]
    frame = Frame(
        x=Axis("Seconds", span=(0.0, 1.12 * max(map(_seconds, reports)))),
        y=Axis(reverse=True, grid=False, names=tuple(one.name for one in reports)),
        height=60 + 36 * len(reports),
        theme=theme,
        legend=False,
    )
    return Picture(
        title=f"The shortest iteration is that of {best.name}: {duration(_seconds(best))}",
        caption="Mean of the settled iterations of each scenario.",
        figure=draw(bars, frame),
        table=tuple(
            {
                "Scenario": one.name,
                "Mode": one.mode.replace("_", " "),
                "Iteration": duration(_seconds(one)),
                "Nothing to do": show(one.kpis["idle_share"], "%"),
                "Cost": show(one.kpis["cost_usd_per_iteration"], "USD"),
                "Fits": "yes" if one.fits else "no",
            }
            for one in reports
        ),
    )


def _seconds(report: IterationReport) -> float:
    return report.kpis["iteration_seconds"] or 0.0


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
