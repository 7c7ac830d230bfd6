"""The pipeline as it ran: stages down, time across; communication in thin lanes; gaps are waiting.

Where the engine proved that a window of the step repeats, the window is drawn once and marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from twin.engine.program import STREAMS
from twin.engine.trace import Trace
from twin.figures.bars import BUDGET, Drawn, drawn, inside, slices
from twin.figures.palette import BACKGROUND, INK, MEANINGS, Meaning, Theme, contrast, swatch
from twin.figures.plotly import Axis, Bars, Figure, Frame, Mark, Picture, draw
from twin.report.breakdown import mean
from twin.report.numbers import duration, show

Lanes = Literal["compute", "all"]
"""`compute`: what the GPU computes; `all`: communication as well."""

KIND_WORDS: Final[dict[Meaning, str]] = {
    "compute": "Other compute",
    "forward": "Forward",
    "backward": "Backward",
    "recompute": "Recompute",
    "optimizer": "Optimizer",
    "tensor": "Tensor-parallel collective",
    "expert": "Expert all-to-all",
    "pipeline": "Pipeline send",
    "data": "Data-parallel collective",
    "context": "Context-parallel exchange",
    "offload": "Host copy",
    "other": "Other",
}
_COMPUTE_SHARE: Final = 0.5
"""Height of the compute lane in a row of 0.9, when communication lanes share the row."""

_SEPARATED: Final = 1_500
"""Bars of one kind up to which gaps between neighbours can be seen."""


def played_ns(trace: Trace) -> int:
    """Length of the played part of the step (ns): what a timeline can show."""
    return int(trace.spans.end.max(initial=0))


def overview(trace: Trace, theme: Theme, budget: int = BUDGET) -> Picture:
    """The whole played step at a glance: how each stage spends each slice of time."""
    window = (0, played_ns(trace))
    bars = slices(inside(trace, window, frozenset([0])), window, budget)
    reading = (
        f"Stages down, time across in slices of {duration(bars.slice_ns / 1e9)}; colours show what "
        "a stage computes, where it is empty the stage waits."
    )
    return Picture(
        title=_finding(trace),
        caption=" ".join([reading, *_repeat_note(trace)]),
        figure=_figure(trace, bars, [0], window, theme),
    )


def timeline(
    trace: Trace,
    theme: Theme,
    window: tuple[int, int],
    lanes: Lanes = "compute",
    budget: int = BUDGET,
) -> Picture:
    """A window (ns) of the played step, pass by pass, with at most `budget` bars."""
    streams = _streams(trace, lanes)
    bars = drawn(trace, window, frozenset(streams), budget)
    compute = bars.take(bars.stream == 0)
    computing = float(((compute.end - compute.start) * compute.filled).sum())
    waiting = 1 - computing / max((window[1] - window[0]) * len(trace.roles), 1)
    return Picture(
        title=(
            f"From {_second(window[0])} to {_second(window[1])} the stages wait "
            f"{show(max(waiting, 0.0), '%')} of the time"
        ),
        caption=" ".join([_reading(lanes), *_grain_note(bars), *_repeat_note(trace)]),
        figure=_figure(trace, bars, streams, window, theme),
    )


def start_window(trace: Trace, passes: int = 100) -> tuple[int, int]:
    """The window (ns) at the start of the step that holds about so many passes of a stage."""
    spans = trace.spans
    own = (spans.role == 0) & (spans.stream == 0) & (spans.microbatch >= 0)
    forwards = np.unique(np.stack([spans.chunk[own], spans.microbatch[own]]), axis=1).shape[1]
    share = passes / max(2 * forwards, 1)
    return 0, round(played_ns(trace) * min(1.0, share))


def _second(ns: int) -> str:
    return f"{ns / 1e9:.4g} s"


def _streams(trace: Trace, lanes: Lanes) -> list[int]:
    """Streams with a lane, the compute stream first; only those that carry something."""
    if lanes == "compute":
        return [0]
    return sorted({0, *(int(stream) for stream in np.unique(trace.spans.stream))})


def _figure(
    trace: Trace, bars: Drawn, streams: Sequence[int], window: tuple[int, int], theme: Theme
) -> Figure:
    kinds: list[Meaning] = [MEANINGS[int(kind)] for kind in np.unique(bars.kind)]
    traces = [
        _bars(trace, bars.take(bars.kind == MEANINGS.index(kind)), kind, streams, theme)
        for kind in kinds
    ]
    row = 26 if len(streams) == 1 else 44
    frame = Frame(
        x=Axis("Seconds since the step began", span=(window[0] / 1e9, window[1] / 1e9)),
        y=Axis(
            span=(-0.55, len(trace.roles) - 0.45),
            ticks=tuple((float(at), name) for at, name in enumerate(trace.roles)),
            reverse=True,
            grid=False,
        ),
        height=50 + row * len(trace.roles),
        theme=theme,
        marks=_repeat_mark(trace, window, theme),
    )
    return draw(traces, frame)


def _bars(trace: Trace, bars: Drawn, kind: Meaning, streams: Sequence[int], theme: Theme) -> Bars:
    place, thickness = _lane_places(streams)
    stream = bars.stream.astype(np.intp)
    name = KIND_WORDS.get(kind, kind)
    passes = bars.grain != "slice" and kind not in ("data", "optimizer")
    what = "chunk %{customdata[0]}, micro-batch %{customdata[1]}<br>" if passes else ""
    return Bars(
        name=name,
        swatch=swatch(kind, theme),
        x=(bars.end - bars.start) / 1e9,
        y=bars.role + place[stream] + (0.5 - bars.below - bars.filled / 2) * thickness[stream],
        base=bars.start / 1e9,
        thickness=thickness[stream] * bars.filled,
        opacity=_shade(trace, bars),
        detail=np.stack([bars.chunk, bars.microbatch], axis=1),
        hover=f"<b>{name}</b><br>{what}from %{{base:.6~f}} s, for %{{x:.4~s}}s",
        edge=_edge(kind, theme, bars),
        outline=0.5,
    )


def _lane_places(streams: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Offset from the middle of the row, and height, per stream."""
    place, height = np.zeros(len(STREAMS)), np.full(len(STREAMS), 0.8)
    others = [stream for stream in streams if stream != 0]
    if others:
        thin = (0.9 - _COMPUTE_SHARE) / len(others)
        place[0], height[0] = -0.45 + _COMPUTE_SHARE / 2, _COMPUTE_SHARE
        for position, stream in enumerate(others):
            place[stream] = -0.45 + _COMPUTE_SHARE + thin * (position + 0.5)
            height[stream] = 0.85 * thin
    return place, height


def _shade(trace: Trace, bars: Drawn) -> NDArray[np.float64]:
    """Later chunks of a stage are drawn paler, down to 0.55."""
    own = np.unique(trace.spans.chunk[(trace.spans.role == 0) & (trace.spans.chunk >= 0)])
    stages = (int(trace.spans.chunk.max(initial=0)) + 1) / max(len(own), 1)
    virtual = np.maximum(bars.chunk // max(stages, 1), 0)
    return np.maximum(1.0 - 0.15 * virtual, 0.55)


def _edge(kind: Meaning, theme: Theme, bars: Drawn) -> str | None:
    """Single spans that stand out by their fill are set apart by the background, if few."""
    background = BACKGROUND[theme]
    apart = (
        bars.grain == "span"
        and len(bars) <= _SEPARATED
        and contrast(swatch(kind, theme).fill, background) >= 3
    )
    return background if apart else None


def _repeat_mark(trace: Trace, window: tuple[int, int], theme: Theme) -> tuple[Mark, ...]:
    start, end = max(trace.window_start, window[0]), min(trace.window_end, window[1])
    if trace.repeats <= 1 or end <= start:
        return ()
    return (
        Mark(start / 1e9, f"runs {trace.repeats:,} times, drawn once", INK[theme], until=end / 1e9),
    )


def _finding(trace: Trace) -> str:
    row = mean(trace.breakdown_ns)
    share = show(row["bubble"] / trace.step_ns, "%")
    if len(trace.roles) == 1:
        return f"One stage has no pipeline bubble; the step takes {show(trace.step_ns / 1e9, 's')}"
    bubbles = [one["bubble"] for one in trace.breakdown_ns]
    worst = max(range(len(bubbles)), key=bubbles.__getitem__)
    return (
        f"The bubble takes {share} of the step; {trace.roles[worst]} waits longest, "
        f"{show(bubbles[worst] / 1e9, 's')} of {show(trace.step_ns / 1e9, 's')}"
    )


def _reading(lanes: Lanes) -> str:
    below = " Thin lanes below each stage are its communication." if lanes == "all" else ""
    return (
        f"Stages down, time across; gaps are waiting; paler bars are a stage's later chunks.{below}"
    )


def _grain_note(bars: Drawn) -> list[str]:
    """What the bars stand for where they are not single spans."""
    match bars.grain:
        case "span":
            return []
        case "pass":
            what = "a bar is a whole pass, as high as the share of it that is not waiting"
        case "slice":
            what = (
                f"a bar is a slice of {duration(bars.slice_ns / 1e9)}, and each colour as high as "
                "the share it fills"
            )
    return [f"At this zoom {what}; choose a shorter window for more."]


def _repeat_note(trace: Trace) -> list[str]:
    if trace.repeats <= 1:
        return []
    omitted = (trace.repeats - 1) * (trace.window_end - trace.window_start) / 1e9
    note = (
        f"The marked window runs {trace.repeats:,} times in a row and is drawn once: what follows "
        f"it happens {duration(omitted)} later than the axis says."
    )
    return [note]
