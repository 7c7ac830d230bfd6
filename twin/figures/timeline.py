"""The pipeline as it ran: stages down, time across; communication in thin lanes; gaps are waiting;
the critical path as a line through what made the step as long as it is.

Where the engine proved that a window of the step repeats, the window is drawn once and marked; side
by side, where plans share an axis, its repetitions are a hatched bar.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from twin.engine.program import STREAMS
from twin.engine.trace import Trace
from twin.figures.palette import BACKGROUND, INK, MEANINGS, Meaning, Theme, contrast, swatch
from twin.figures.plotly import Axis, Bars, Drawing, Figure, Frame, Line, Mark, Picture, Row, draw
from twin.figures.step import BUDGET, Drawn, drawn, inside, meaning, paired, slices
from twin.loading.files import table
from twin.reports.breakdown import mean
from twin.reports.table import duration, show

Lanes = Literal["compute", "all"]
"""`compute`: what the GPU computes; `all`: communication as well."""
LANES: Final[dict[Lanes, str]] = {"compute": "Compute only", "all": "With communication"}
"""The lanes of a timeline, in words."""

KIND_WORDS: Final[dict[Meaning, str]] = table(__name__, "KIND_WORDS")
_COMPUTE_SHARE: Final = 0.5
"""Height of the compute lane in a row of 0.9, when communication lanes share the row."""

_ROW: Final = 0.86
"""Height of a stage's row where plans stand under one another."""
_POINTS: Final = 1_500
"""Pixels that a window is taken to have."""

_SEPARATED: Final = 1_500
"""Bars of one kind up to which gaps between neighbours can be seen."""


def played_ns(trace: Trace) -> int:
    """Length of the played part of the step (ns): what a timeline can show."""
    return int(trace.spans.end.max(initial=0))


def overview(
    trace: Trace, theme: Theme, budget: int = BUDGET, *, critical: bool = False
) -> Picture:
    """The whole played step at a glance: how each stage spends each slice of time; with the
    critical path, where asked for."""
    window = (0, played_ns(trace))
    bars = slices(inside(trace, window, frozenset([0])), window, budget)
    reading = (
        f"Stages down, time across in slices of {duration(bars.slice_ns / 1e9)}; colours show what "
        "a stage computes, where it is empty the stage waits."
    )
    return Picture(
        title=_finding(trace),
        caption=" ".join([reading, *_critical_note(trace, critical), *repeat_note(trace)]),
        figure=_figure(trace, bars, [0], window, theme, critical=critical),
        table=critical_table(trace) if critical else (),
    )


def timeline(
    trace: Trace,
    theme: Theme,
    window: tuple[int, int],
    lanes: Lanes = "compute",
    budget: int = BUDGET,
    *,
    critical: bool = False,
) -> Picture:
    """A window (ns) of the played step, pass by pass, with at most `budget` bars; with the critical
    path, where asked for."""
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
        caption=" ".join(
            [
                _reading(lanes),
                *_pair_note(bars),
                *_grain_note(bars),
                *_critical_note(trace, critical),
                *repeat_note(trace),
            ]
        ),
        figure=_figure(trace, bars, streams, window, theme, critical=critical),
        table=critical_table(trace) if critical else (),
    )


def side_by_side(runs: Sequence[tuple[str, Trace]], theme: Theme, budget: int = BUDGET) -> Picture:
    """The whole steps of several plans (name and trace) under one another on one axis of time, each
    stage a row."""
    longest = max(played_ns(_unfolded(trace)) for _, trace in runs)
    places, rows, parts = list[tuple[float, str]](), 0, list[Drawn]()
    for name, trace in runs:
        roles = len(trace.roles)
        places.append((rows + (roles - 1) / 2, name))
        spans = inside(_unfolded(trace), (0, longest), frozenset([0]))
        bars = slices(spans, (0, longest), budget // len(runs))
        parts.append(replace(bars, role=bars.role + np.int32(rows)))
        rows += roles + 1
    kinds = sorted({int(kind) for part in parts for kind in part.kind})
    drawings: list[Drawing] = [
        _kind_bars([part.take(part.kind == kind) for part in parts], MEANINGS[kind], theme)
        for kind in kinds
    ]
    drawings += _repetitions(runs, theme)
    frame = Frame(
        x=Axis("Seconds since the step began", span=(0.0, longest / 1e9)),
        y=Axis(span=(-0.7, rows - 0.8), ticks=tuple(places), reverse=True, grid=False),
        height=60 + 12 * rows,
        theme=theme,
    )
    return Picture(
        title=_race(runs),
        caption=(
            "Each plan's stages from first to last, on one axis of time in slices of "
            f"{duration(parts[0].slice_ns / 1e9)}; where a row is empty, the stage waits. Hatched: "
            "repetitions of what is drawn before them."
        ),
        figure=draw(drawings, frame),
        table=tuple(_race_row(name, trace) for name, trace in runs),
    )


def _unfolded(trace: Trace) -> Trace:
    """The trace with what follows the repeated window at its true time."""
    spans = trace.spans
    later = np.where(spans.start >= trace.window_end, _omitted(trace), 0)
    return replace(trace, spans=replace(spans, start=spans.start + later, end=spans.end + later))


def _omitted(trace: Trace) -> int:
    """Nanoseconds of the step that were not played."""
    return (trace.repeats - 1) * (trace.window_end - trace.window_start)


def _kind_bars(parts: Sequence[Drawn], kind: Meaning, theme: Theme) -> Bars:
    """The slices of one kind, of all plans."""
    start = np.concatenate([part.start for part in parts])
    end = np.concatenate([part.end for part in parts])
    role = np.concatenate([part.role for part in parts])
    filled = np.concatenate([part.filled for part in parts])
    below = np.concatenate([part.below for part in parts])
    name = KIND_WORDS.get(kind, kind)
    return Bars(
        name=name,
        swatch=swatch(kind, theme),
        x=(end - start) / 1e9,
        y=role + (0.5 - below - filled / 2) * _ROW,
        base=start / 1e9,
        thickness=_ROW * filled,
        hover=f"<b>{name}</b> from %{{base:.4~g}} s",
        outline=0.0,
    )


def _repetitions(runs: Sequence[tuple[str, Trace]], theme: Theme) -> list[Bars]:
    """A hatched bar over the stages of each plan whose steady part was drawn once."""
    first, bars = 0, list[Bars]()
    for name, trace in runs:
        roles = len(trace.roles)
        if trace.repeats > 1:
            bars.append(
                Bars(
                    name="Repetitions" if not bars else "",
                    swatch=swatch("reserve", theme),
                    x=[_omitted(trace) / 1e9],
                    y=[first + (roles - 1) / 2],
                    base=[trace.window_end / 1e9],
                    thickness=[roles - 0.1],
                    text=[f"{trace.repeats - 1:,} more of the same"],
                    hover=f"{name}: the steady part runs {trace.repeats:,} times",
                )
            )
        first += roles + 1
    return bars


def _race(runs: Sequence[tuple[str, Trace]]) -> str:
    """Who finishes first, and by how much before the last."""
    ranked = sorted(runs, key=lambda run: run[1].step_ns)
    (first, fast), (last, slow) = ranked[0], ranked[-1]
    if fast.step_ns == slow.step_ns:
        return f"All take {show(fast.step_ns / 1e9, 's')} per step"
    ahead = slow.step_ns - fast.step_ns
    return (
        f"{first} finishes first, after {show(fast.step_ns / 1e9, 's')}, "
        f"{show(ahead / 1e9, 's')} ({show(ahead / slow.step_ns, '%')}) before {last}"
    )


def _race_row(name: str, trace: Trace) -> Row:
    row = mean(trace.breakdown_ns, trace.ranks)
    return {
        "Plan": name,
        "Step": show(trace.step_ns / 1e9, "s"),
        "Computes": show(row["compute"] / trace.step_ns, "%"),
        "Bubble": show(row["bubble"] / trace.step_ns, "%"),
    }


def critical_shares(trace: Trace) -> dict[Meaning, float]:
    """What the critical path runs through: shares of its time in the played part of the step, by
    meaning, largest first."""
    rows = np.array(trace.critical, dtype=np.intp)
    spans = trace.spans
    lengths: list[int] = (spans.end - spans.start)[rows].tolist()
    streams: list[int] = spans.stream[rows].tolist()
    names: list[int] = spans.name[rows].tolist()
    total: dict[Meaning, float] = {}
    for stream, name, length in zip(streams, names, lengths, strict=True):
        kind = meaning(STREAMS[stream], trace.names[name])
        total[kind] = total.get(kind, 0.0) + length
    whole = sum(total.values())
    ranked = sorted(total.items(), key=lambda item: -item[1])
    return {kind: size / whole for kind, size in ranked}


def critical_table(trace: Trace) -> tuple[Row, ...]:
    """The shares of the critical path."""
    return tuple(
        {"On the critical path": KIND_WORDS.get(kind, kind), "Share of it": show(share, "%")}
        for kind, share in critical_shares(trace).items()
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
    trace: Trace,
    bars: Drawn,
    streams: Sequence[int],
    window: tuple[int, int],
    theme: Theme,
    *,
    critical: bool,
) -> Figure:
    kinds: list[Meaning] = [MEANINGS[int(kind)] for kind in np.unique(bars.kind)]
    traces: list[Drawing] = [
        _bars(trace, bars.take(bars.kind == MEANINGS.index(kind)), kind, streams, theme)
        for kind in kinds
    ]
    if critical:
        traces += _critical(trace, streams, window, theme)
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
        marks=repeat_mark(trace, window, theme),
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


def _critical(
    trace: Trace, streams: Sequence[int], window: tuple[int, int], theme: Theme
) -> list[Line]:
    """The critical path inside a window: along what it runs through, across where one stage
    releases another; with a halo, since it runs over bars."""
    spans = trace.spans
    rows = np.array(trace.critical, dtype=np.intp)
    rows = rows[(spans.end[rows] > window[0]) & (spans.start[rows] < window[1])]
    # Without lanes for communication the line stays in the middle of the stage's row.
    lane = _lane_places(streams)[0] if len(streams) > 1 else np.zeros(len(STREAMS))
    y = spans.role[rows].astype(np.float64) + lane[spans.stream[rows].astype(np.intp)]
    start = np.maximum(spans.start[rows], window[0])
    end = np.minimum(spans.end[rows], window[1])
    if not len(rows):
        return []
    first = np.flatnonzero(np.append(True, y[1:] != y[:-1]))
    begin, until = start[first], end[np.append(first[1:], len(y)) - 1]
    # Stays too short to be seen are drawn only as the first in their pixel.
    grain = max((window[1] - window[0]) // _POINTS, 1)
    seen = until - begin >= grain
    seen |= np.append(True, begin[1:] // grain != begin[:-1] // grain)
    x = np.stack([begin[seen], until[seen]], axis=1).ravel() / 1e9
    across = np.repeat(y[first[seen]], 2)
    halo = Line(x, across, BACKGROUND[theme], width=4.5)
    return [halo, Line(x, across, INK[theme], "Critical path", width=1.8)]


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


def repeat_mark(trace: Trace, window: tuple[int, int], theme: Theme) -> tuple[Mark, ...]:
    """The part of a window (ns) that the step repeats and a figure draws once."""
    start, end = max(trace.window_start, window[0]), min(trace.window_end, window[1])
    if trace.repeats <= 1 or end <= start:
        return ()
    return (
        Mark(start / 1e9, f"runs {trace.repeats:,} times, drawn once", INK[theme], until=end / 1e9),
    )


def _finding(trace: Trace) -> str:
    row = mean(trace.breakdown_ns, trace.ranks)
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


def _pair_note(bars: Drawn) -> list[str]:
    if bars.grain == "slice" or not paired(bars):
        return []
    return ["Where forward and backward alternate, the two run as a pair, block by block."]


def _critical_note(trace: Trace, critical: bool) -> list[str]:
    if not critical:
        return []
    if not trace.critical:
        return ["This trace knows no critical path."]
    named = [
        f"{show(share, '%')} {KIND_WORDS.get(kind, kind).lower()}"
        for kind, share in list(critical_shares(trace).items())[:3]
    ]
    line = "The line is the critical path: shorten what it runs through, and the step is shorter."
    return [line, f"Of its time {', '.join(named)}."]


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


def repeat_note(trace: Trace) -> list[str]:
    """What the mark of the repeated part means, in words; nothing where nothing repeats."""
    if trace.repeats <= 1:
        return []
    omitted = (trace.repeats - 1) * (trace.window_end - trace.window_start) / 1e9
    note = (
        f"The marked window runs {trace.repeats:,} times in a row and is drawn once: what follows "
        f"it happens {duration(omitted)} later than the axis says."
    )
    return [note]
