"""Memory of one rank over the step, on the device with its fullest moment and on the host, by
category."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from twin.engine.trace import Trace
from twin.figures.memory import MEANING, words
from twin.figures.palette import ALARM, INK, Theme, swatch
from twin.figures.plotly import Area, Axis, Dots, Drawing, Frame, Line, Note, Picture, Row, draw
from twin.figures.timeline import repeat_mark, repeat_note
from twin.figures.words import capital
from twin.reports.memory_series import MemorySeries, thinned
from twin.reports.numbers import gibibytes, show
from twin.reports.report import MemoryReport

POINTS = 1_000
"""Points in time that are drawn; beyond, slices of time are drawn at their fullest."""
_GIB = 2.0**30
_READING = (
    "Bytes on one GPU over the step, stacked by category; a pass counts at its fullest instant "
    "from its first kernel to its last."
)
_HOST_READING = (
    "Bytes that one GPU keeps in host memory over the step, stacked by category; activations count "
    "from the start of their copy out to the end of their copy back."
)


def memory_over_time(
    series: MemorySeries, memory: MemoryReport, trace: Trace, theme: Theme
) -> Picture:
    """Bytes on one rank over the played part of the step, stacked by category, in GiB."""
    few = thinned(series, POINTS)
    window = (0, series.end_ns)
    drawings = _areas(few, few.categories, theme)
    drawings += [_limit(memory, series, theme), _peak(series, theme)]
    top = max(memory.budget, series.peak_bytes) / _GIB
    frame = Frame(
        x=Axis("Seconds since the step began", span=(0.0, series.end_ns / 1e9), grid=False),
        y=Axis("GiB on one GPU", span=(0.0, 1.14 * top)),
        height=330,
        theme=theme,
        marks=repeat_mark(trace, window, theme),
        notes=(_peak_note(series, memory, theme),),
    )
    return Picture(
        title=f"{capital(series.role)} {_finding(series, memory)}",
        caption=" ".join(
            [
                _READING,
                *(["Drawn are the fullest instants."] if few is not series else []),
                *repeat_note(trace),
            ]
        ),
        figure=draw(drawings, frame),
        table=_table(series),
    )


def host_over_time(series: MemorySeries, trace: Trace, theme: Theme) -> Picture:
    """Bytes of one rank in host memory over the played part of the step, stacked by category, in
    GiB; for a series that has any."""
    few = thinned(series, POINTS)
    most, least = float(series.host_total.max()), float(series.host_total.min())
    frame = Frame(
        x=Axis("Seconds since the step began", span=(0.0, series.end_ns / 1e9), grid=False),
        y=Axis("GiB of one GPU in host memory", span=(0.0, 1.08 * most / _GIB)),
        height=330,
        theme=theme,
        marks=repeat_mark(trace, (0, series.end_ns), theme),
    )
    return Picture(
        title=(
            f"{capital(series.role)} keeps up to {gibibytes(most)} in host "
            f"memory, of which {gibibytes(most - least)} come and go"
        ),
        caption=" ".join([_HOST_READING, *repeat_note(trace)]),
        figure=draw(_areas(few, few.host, theme), frame),
        table=tuple(
            {
                "Category": words(name),
                "Least": show(float(np.min(sizes)), "bytes"),
                "Most": show(float(np.max(sizes)), "bytes"),
            }
            for name, sizes in {**series.host, "all": series.host_total}.items()
        ),
    )


def _areas(
    few: MemorySeries, categories: Mapping[str, NDArray[np.float64]], theme: Theme
) -> list[Drawing]:
    """Bytes stacked by category, those that are ever something."""
    return [
        Area(
            name=words(name),
            swatch=swatch(MEANING.get(name, "other"), theme),
            x=np.append(few.times, few.end_ns) / 1e9,
            y=np.append(sizes, sizes[-1]) / _GIB,
            hover=f"{words(name)}: %{{y:.3~g}} GiB at %{{x:.4~g}} s",
        )
        for name, sizes in categories.items()
        if sizes.any()
    ]


def _finding(series: MemorySeries, memory: MemoryReport) -> str:
    free = memory.budget - series.peak_bytes
    swing = float(series.total.max() - series.total.min())
    verdict = f"{gibibytes(free)} below the budget" if free >= 0 else f"{gibibytes(-free)} over it"
    return (
        f"peaks at {gibibytes(series.peak_bytes)}, {verdict}, during the {series.peak_moment}; "
        f"{gibibytes(swing)} of it come and go"
    )


def _limit(memory: MemoryReport, series: MemorySeries, theme: Theme) -> Line:
    height = memory.budget / _GIB
    end = series.end_ns / 1e9
    name = f"Budget {gibibytes(memory.budget)}"
    return Line([0.0, end], [height, height], ALARM[theme], name, hover=name)


def _peak(series: MemorySeries, theme: Theme) -> Dots:
    return Dots(
        name="",
        x=[series.peak_ns / 1e9],
        y=[series.peak_bytes / _GIB],
        fill=INK[theme],
        line=INK[theme],
        symbol="triangle-down",
        size=11,
        hover=f"{gibibytes(series.peak_bytes)}: {series.peak_moment}",
    )


def _peak_note(series: MemorySeries, memory: MemoryReport, theme: Theme) -> Note:
    late = series.peak_ns > 0.6 * series.end_ns
    return Note(
        series.peak_ns / 1e9,
        series.peak_bytes / _GIB + 0.05 * memory.budget / _GIB,
        f"peak {gibibytes(series.peak_bytes)}",
        INK[theme],
        "right" if late else "left",
    )


def _table(series: MemorySeries) -> tuple[Row, ...]:
    """Per category: the least, the most, and what it has at the peak."""
    peak = int(np.searchsorted(series.times, series.peak_ns))
    rows = [
        _row(words(name), sizes, float(sizes[peak]))
        for name, sizes in series.categories.items()
        if sizes.any()
    ]
    return (*rows, _row("All", series.total, series.peak_bytes))


def _row(name: str, sizes: Sequence[float] | np.ndarray, at_peak: float) -> Row:
    return {
        "Category": name,
        "Least": show(float(np.min(sizes)), "bytes"),
        "Most": show(float(np.max(sizes)), "bytes"),
        "At the peak": show(at_peak, "bytes"),
    }
