"""An iteration of reinforcement learning: what ran when on which GPUs, what GPUs did, and the same
iteration in other ways."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from twin.figures.charts import Ranked, View, name_axis, ranking
from twin.figures.palette import Meaning, Swatch, Theme, series, swatch
from twin.figures.plotly import Axis, Bars, Frame, Picture, capital, draw
from twin.kinds.base import Run
from twin.kinds.iteration.report import IterationReport
from twin.kinds.iteration.types import CAUSES, PHASES, WORKS, Side, Span
from twin.kinds.iteration.ways import measure, names, ranked, sentences
from twin.reports.table import digits, duration, show
from twin.spec.expect import FIGURES

_SIDES: Final[dict[Side, str]] = {
    "all": "All GPUs",
    "engines": "GPUs of engines",
    "trainers": "GPUs of the trainer",
}
_UNITS: Final = (("Hours", 3600.0), ("Minutes", 60.0), ("Seconds", 1.0))
_LEAST: Final = 1e-4
"""A share that is too small to be drawn."""


def views(run: Run) -> Iterator[View]:
    """Every figure of an iteration."""
    report: IterationReport = run.report
    yield View("Summary", "Phases over time", "timeline", lambda theme, _: timeline(report, theme))
    yield View("Summary", "GPU time", "occupation", lambda theme, _: occupation(report, theme))


def comparison_views(reports: Sequence[IterationReport]) -> Sequence[View]:
    """Iterations of several plans side by side."""
    heading = "Colocated, disaggregated, one-step async"
    return (View("", heading, "ways", lambda theme, _: ways(reports, theme)),)


def timeline(report: IterationReport, theme: Theme) -> Picture:
    """The last iteration: every phase over time, coloured by the GPUs that take part in it."""
    last = report.rounds[-1]
    sides: list[Side] = [side for side in _SIDES if any(one.side == side for one in last.spans)]
    phases = [words for phase, words in PHASES.items() if any(s.phase == phase for s in last.spans)]
    title, unit = _unit(last.length_ns / 1e9)
    bars = [
        _bars(side, [one for one in last.spans if one.side == side], series(at, theme)[0], unit)
        for at, side in enumerate(sides)
    ]
    longest = max(last.spans, key=_seconds_of)
    frame = Frame(
        x=Axis(title, span=(0.0, last.length_ns / 1e9 / unit)),
        y=name_axis(map(capital, phases)),
        height=60 + 36 * len(phases),
        theme=theme,
        legend=len(sides) > 1,
    )
    who = "Engines and trainer share all GPUs. " if sides == ["all"] else ""
    return Picture(
        title=f"{capital(PHASES[longest.phase])} take {duration(_seconds_of(longest))} of the last "
        f"iteration's {duration(last.length_ns / 1e9)}",
        caption=f"{who}The last iteration; key figures are means of several iterations.",
        figure=draw(bars, frame),
        table=tuple(
            {
                "Phase": capital(PHASES[span.phase]),
                "GPUs": f"{span.gpus:,}",
                "From": duration(span.start_ns / 1e9),
                "To": duration(span.end_ns / 1e9),
            }
            for span in last.spans
        ),
    )


def _bars(side: Side, spans: Sequence[Span], look: Swatch, unit: float) -> Bars:
    """The phases of one side, each in its row."""
    return Bars(
        name=_SIDES[side],
        swatch=look,
        x=[_seconds_of(one) / unit for one in spans],
        base=[one.start_ns / 1e9 / unit for one in spans],
        y=[capital(PHASES[one.phase]) for one in spans],
        text=[duration(_seconds_of(one)) for one in spans],
        outside=True,
        hover="%{y}<br>%{customdata[0]}",
        detail=[[f"{duration(_seconds_of(one))} on {one.gpus:,} GPUs"] for one in spans],
    )


def _seconds_of(span: Span) -> float:
    return (span.end_ns - span.start_ns) / 1e9


def _unit(seconds: float) -> tuple[str, float]:
    """The unit of an axis that ends so late, and its seconds."""
    return next((one for one in _UNITS if seconds >= 2 * one[1]), _UNITS[-1])


def occupation(report: IterationReport, theme: Theme) -> Picture:
    """What all GPUs do over an iteration, in percent: work, and why they have none."""
    rows: list[tuple[str, float, Meaning]] = [
        *((capital(WORKS[work]), share, "compute") for work, share in report.busy.items()),
        *((capital(CAUSES[cause]), share, "bubble") for cause, share in report.idle.items()),
    ]
    shown = [
        Ranked(name, 100 * share, swatch(meaning, theme), f"{digits(100 * share)} %")
        for name, share, meaning in rows
        if share >= _LEAST
    ]
    x = Axis("Percent of all GPUs' time", span=(0.0, 1.12 * max(one.length for one in shown)))
    idle = show(report.kpis["idle_share"], "%")
    return Picture(
        title=f"GPUs are idle {idle} of the time",
        caption="The shares sum to 100 %. Time inside a training step counts as work; the section "
        "Training step splits it.",
        figure=ranking(shown, x, theme, row=44),
        table=tuple(
            {"GPUs": name, "Share": f"{digits(100 * share)} %"} for name, share, _ in rows if share
        ),
    )


def ways(reports: Sequence[IterationReport], theme: Theme) -> Picture:
    """Iterations of several scenarios side by side, named by how GPUs are shared where that tells
    them apart: their lengths, or, where they do not do the same work, their tokens per second."""
    kpi, _ = measure(reports)
    values = [one.kpis[kpi.key] or 0.0 for one in reports]
    best, called = ranked(reports, kpi)[0], names(reports)
    title, unit = _unit(max(values)) if kpi.unit == "s" else (kpi.label, 1.0)
    rows = [
        Ranked(
            name,
            value / unit,
            swatch("achieved" if one is reports[best] else "ideal", theme),
            one.ranged(kpi) + ("" if one.fits else ", does not fit"),
            f"{one.name}: {one.ranged(kpi)}",
        )
        for name, one, value in zip(called, reports, values, strict=True)
    ]
    x = Axis(title, span=(0.0, max(values) / unit))
    return Picture(
        title="\n".join(sentences(reports)),
        caption="Mean of the settled iterations of each scenario, with its 80 % interval."
        + ("" if kpi.unit == "s" else " They do different work, so lengths say little."),
        figure=ranking(rows, x, theme, row=44),
        table=tuple(map(_row, reports)),
    )


def _row(one: IterationReport) -> dict[str, str]:
    keys = ("iteration_seconds", "trained_tokens_per_second_per_gpu", "idle_share")
    heads = ("Iteration", "Tokens trained on", "Idle")
    told = {head: one.ranged(FIGURES[key]) for head, key in zip(heads, keys, strict=True)}
    return {
        "Scenario": one.name,
        "Mode": one.mode.replace("_", " "),
        **told,
        "Cost": one.ranged(FIGURES["cost_usd_per_iteration"]),
        "Fits": "yes" if one.fits else "no",
    }
