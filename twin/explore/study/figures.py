"""Figures of studies: memory levers, and degrees of expert parallelism that stay hidden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from twin.answers.nearest import MemoryLever
from twin.explore.study.hidden import LIMIT, HiddenExpert, Trial, sentence
from twin.figures.charts import Ranked, name_axis, ranking
from twin.figures.palette import ALARM, Swatch, Theme, swatch
from twin.figures.plotly import Axis, Bars, Frame, Mark, Picture, Row, draw
from twin.reports.numbers import digits, gibibytes, show
from twin.reports.report import MemoryReport

_GIB: Final = 2.0**30
_ROW: Final = 30
"""Pixels of one bar."""


def memory_levers(
    levers: Sequence[MemoryLever], memory: MemoryReport, name: str, theme: Theme
) -> Picture:
    """What single changes of the plan would free on the fullest GPU, in GiB."""
    look = swatch("free", theme)
    rows = [
        Ranked(
            lever.label,
            lever.saved_bytes / _GIB,
            look,
            _freed(lever),
            f"{lever.path}, {lever.label}: {_freed(lever)}<br>{lever.price}",
        )
        for lever in levers
    ]
    widest = max((lever.saved_bytes for lever in levers), default=0.0) / _GIB
    x = Axis("GiB freed on the fullest GPU", span=(0.0, 1.04 * max(widest, 0.1)))
    return Picture(
        title=f"{name}: {_best_lever(levers, memory)}",
        caption=(
            "Each bar is the plan with that one change, planned anew; other stages may become the "
            "fullest. What it costs is in the table; two changes at once do not add up."
        ),
        figure=ranking(rows, x, theme, row=46),
        table=tuple(
            {
                "Change": lever.label,
                "Frees": gibibytes(lever.saved_bytes),
                "Peak then": gibibytes(lever.peak_bytes),
                "Fits": "yes" if lever.fits else "no",
                "Price": lever.price,
            }
            | ({} if lever.step_seconds is None else {"Step": _longer(lever.step_seconds)})
            for lever in levers
        ),
    )


def _freed(lever: MemoryLever) -> str:
    price = "" if lever.step_seconds is None else f",<br>step {_longer(lever.step_seconds)}"
    return f"{gibibytes(lever.saved_bytes)}, {'fits' if lever.fits else 'does not fit'}{price}"


def _longer(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{show(abs(seconds), 's')}"


def _best_lever(levers: Sequence[MemoryLever], memory: MemoryReport) -> str:
    if not levers:
        return "no single change of the layout frees memory on the fullest GPU"
    best = levers[0]
    saved = f"{best.label} frees most, {gibibytes(best.saved_bytes)}"
    if memory.peak.peak_bytes <= memory.budget:
        return saved
    fitting = sum(lever.fits for lever in levers)
    return f"{saved}; {fitting} of {len(levers)} single changes make the plan fit"


def hidden_degrees(found: HiddenExpert, name: str, theme: Theme) -> Picture:
    """What shows of the all-to-all at each degree, in percent of the step: solid in the steady
    state, hatched in the ramp."""
    shown = [one for one in found.trials if not one.impossible]
    steady = swatch("expert", theme)
    ramp: Swatch = replace(steady, pattern="/")
    rows = [_trial(one) for one in shown]
    longest = max((one.steady_share + one.ramp_share for one in shown), default=1.0)
    bars = [
        Bars(
            name="Steady state",
            swatch=steady,
            x=[100 * one.steady_share for one in shown],
            y=rows,
            hover="%{y}: %{x:.2~f} % in the steady state",
        ),
        Bars(
            name="Ramp: the pipeline fills and drains",
            swatch=ramp,
            x=[100 * one.ramp_share for one in shown],
            y=rows,
            text=[_said(one) for one in shown],
            outside=True,
            hover="%{y}: %{x:.2~f} % in the ramp",
        ),
    ]
    frame = Frame(
        x=Axis("Percent of the step", span=(0.0, max(104.0 * longest, 250 * LIMIT))),
        y=name_axis(rows),
        height=60 + _ROW * max(len(rows), 1),
        theme=theme,
        marks=(Mark(100 * LIMIT, f"hidden: {100 * LIMIT:g} %", ALARM[theme]),),
    )
    return Picture(
        title="\n".join(f"{name}: {one}" for one in _sentences(found)),
        caption=(
            "The plan at each degree of expert parallelism, for its heads and for twice as many: "
            "more attention hides more. Hidden means that the solid part stays left of the line; "
            "the hatched part has nothing to hide under at any degree."
        ),
        figure=draw(bars, frame),
        table=tuple(_trial_row(one) for one in found.trials),
    )


def _sentences(found: HiddenExpert) -> list[str]:
    return [
        sentence(HiddenExpert(found.of(heads))).rstrip(".").replace("With", "with", 1)
        for heads in found.heads
    ]


def _trial(one: Trial) -> str:
    return f"{one.heads} heads, expert {one.expert}"


def _said(one: Trial) -> str:
    fits = "" if one.fits else ", does not fit"
    word = "hidden" if one.hidden else "shows"
    return f"{digits(100 * one.steady_share)} % steady, {word}{fits}"


def _trial_row(one: Trial) -> Row:
    head = {"Heads": str(one.heads), "Expert": str(one.expert)}
    if one.impossible:
        return head | {"Steady": f"impossible: {one.impossible}"}
    return head | {
        "Steady": show(one.steady_share, "%"),
        "Ramp": show(one.ramp_share, "%"),
        "Hidden": "yes" if one.hidden else "no",
        "Step": show(one.step_seconds, "s"),
        "Can hide, per layer": _ms(one.window_seconds),
        "All-to-all alone": _ms(one.demand_seconds),
        "RDMA": _ms(one.nic_seconds),
        "NVLink": _ms(one.nvlink_seconds),
        "Memory": "fits" if one.fits else "does not fit",
    }


def _ms(seconds: float) -> str:
    return f"{digits(1e3 * seconds)} ms"
