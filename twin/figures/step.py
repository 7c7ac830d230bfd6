"""Where the step time goes: causes as stacked bars, and losses from the ideal time to the achieved
step. Every bar sums to its step.

From the spans of a trace to a bounded number of bars, openly coarser where spans are too many.

Three grains, the finest that fits the budget: every span; one bar per pass of a micro-batch through
a chunk; equal slices of time with the kinds stacked. A coarse bar is as high as the share of its
time that is filled, so that areas stay proportional to time.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from twin.engine.program import STREAMS
from twin.engine.trace import Trace
from twin.figures.charts import Ranked, Rung, cascade, ranking
from twin.figures.palette import MEANINGS, Meaning, Swatch, Theme, swatch
from twin.figures.plotly import Axis, Bars, Figure, Frame, Picture, Row, capital, draw, lowered
from twin.loading.files import table
from twin.reports.breakdown import CAUSE_WORDS, CAUSES, LOST_WORDS, bottleneck
from twin.reports.compare import compare
from twin.reports.report import Report
from twin.reports.table import digits, show
from twin.reports.verdict import difference
from twin.reports.waterfall import Loss, Waterfall

MEANING: Final[dict[str, Meaning]] = table(__name__, "MEANING")
"""The colour of each cause of the report's breakdown."""

LOSS_MEANING: Final[dict[str, Meaning]] = {
    "extra_flop": "compute",
    "precision": "backward",
    "memory_bound": "memory_bound",
    "efficiency": "efficiency",
    "launch": "launch",
    "recompute": "recompute",
    **{cause: colour for cause, colour in MEANING.items() if cause != "compute"},
}
"""The colour of each loss, as in every other figure: the parts of computing, and the other causes
of the breakdown."""

LEGEND: Final[dict[str, str]] = table(__name__, "LEGEND")
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
            "The first bar is the model's FLOP at peak. Each bar below is one loss: seconds, "
            "averaged over pipeline stages, and share of the step."
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


_LEAST: Final = 1e-4
"""Share of the step below which no digit is told."""


def _share(ns: int, waterfall: Waterfall) -> str:
    share = ns / waterfall.step_ns
    return f"{digits(100 * share)} %" if not 0 < share < _LEAST else f"under {100 * _LEAST:g} %"


def signed(ns: int) -> str:
    """Nanoseconds in words, also where a loss is a gain."""
    return _seconds(ns) if ns >= 0 else f"-{_seconds(-ns)}"


_SEEN: Final = 5e-4
"""Share of the step below which a loss is left out."""
_BUBBLES: Final = {
    "fill": "Fill and drain",
    "unequal": "Unequal stages",
    "between": "Between passes",
}
"""The parts of the bubble in few letters."""
_REMEDIES: Final = (
    " Beside a loss: what is left of it with the edit that removes most. Other losses may grow."
)


def lost_time(
    lost: Mapping[str, int], step_ns: int, remedies: Mapping[str, str], theme: Theme
) -> Picture:
    """What a step loses beside computing, the largest loss first, each beside its remedy."""

    def share(ns: int) -> str:
        return f"{_seconds(ns)} ({digits(100 * ns / step_ns)} %)"

    causes = sorted(
        (one for one in lost if lost[one] > _SEEN * step_ns), key=lambda one: -lost[one]
    )
    rows = [
        Ranked(
            LEGEND.get(cause) or _BUBBLES[cause],
            lost[cause] / 1e9,
            swatch(MEANING.get(cause, "bubble"), theme),
            "; ".join(filter(None, (share(lost[cause]), remedies.get(cause)))),
        )
        for cause in causes
    ]
    longest = max([row.length for row in rows], default=0.0)
    x = Axis("Seconds of one step", span=(0, longest * (2.4 if remedies else 1.4)))
    title = f"A step loses {share(sum(lost.values()))} beside computing"
    if causes:
        title += f", most of it by {LOST_WORDS[causes[0]]}"
    return Picture(
        title=title,
        caption="Mean over ranks." + _REMEDIES * bool(remedies),
        figure=ranking(rows, x, theme, row=30),
        table=tuple(
            {"Loss": capital(LOST_WORDS[cause]), "Takes": share(lost[cause])}
            | ({"With the best edit": remedies.get(cause, "")} if remedies else {})
            for cause in causes
        ),
    )


BUDGET = 5_000
"""Bars that one figure may draw: they are SVG elements, and browsers crawl beyond."""

Grain = Literal["span", "pass", "slice"]
_PASSES: dict[str, Meaning] = table(__name__, "_PASSES")
"""How the name of a segment begins: the longer name first."""
_OF_STREAM: dict[str, Meaning] = table(__name__, "_OF_STREAM")


@dataclass(frozen=True, slots=True)
class Drawn:
    """Bars of a time window, one row each. `kind` indexes `MEANINGS`; times in ns, as played."""

    role: NDArray[np.int32]
    stream: NDArray[np.int8]
    kind: NDArray[np.int32]
    chunk: NDArray[np.int32]
    microbatch: NDArray[np.int32]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    filled: NDArray[np.float64]
    """Share of the bar's time that its spans take, 0 to 1."""
    below: NDArray[np.float64]
    """Share of the same time that other kinds take, on which the bar is stacked."""
    grain: Grain = "span"
    slice_ns: int = 0

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> Drawn:
        """The chosen rows."""
        return replace(
            self,
            role=self.role[rows],
            stream=self.stream[rows],
            kind=self.kind[rows],
            chunk=self.chunk[rows],
            microbatch=self.microbatch[rows],
            start=self.start[rows],
            end=self.end[rows],
            filled=self.filled[rows],
            below=self.below[rows],
        )


def meaning(stream: str, name: str) -> Meaning:
    """What a span means: its pass on the compute stream, its axis of parallelism elsewhere."""
    if stream != "compute":
        return _OF_STREAM.get(stream, "other")
    for start, one in _PASSES.items():
        if name.startswith(start):
            return one
    return "compute"


def drawn(
    trace: Trace, window: tuple[int, int], streams: frozenset[int], budget: int = BUDGET
) -> Drawn:
    """Bars of the chosen streams inside a window (ns), at the finest grain within the budget."""
    spans = inside(trace, window, streams)
    if len(spans) <= budget:
        return spans
    merged = _passes(spans)
    return merged if len(merged) <= budget else slices(spans, window, budget)


def inside(trace: Trace, window: tuple[int, int], streams: frozenset[int]) -> Drawn:
    """Every span with any length inside the window, clipped to it."""
    spans = trace.spans
    start, end = np.maximum(spans.start, window[0]), np.minimum(spans.end, window[1])
    rows = (end > start) & np.isin(spans.stream, list(streams))
    kinds = _kinds(trace)
    return Drawn(
        spans.role[rows],
        spans.stream[rows],
        kinds[spans.stream[rows], spans.name[rows]],
        spans.chunk[rows],
        spans.microbatch[rows],
        start[rows],
        end[rows],
        filled=np.ones(int(rows.sum())),
        below=np.zeros(int(rows.sum())),
    )


def _kinds(trace: Trace) -> NDArray[np.int32]:
    """Index into `MEANINGS` per stream and name."""
    table = [[MEANINGS.index(meaning(stream, name)) for name in trace.names] for stream in STREAMS]
    return np.array(table, dtype=np.int32).reshape(len(STREAMS), len(trace.names))


def _passes(spans: Drawn) -> Drawn:
    """One bar per run of neighbouring spans of the same kind, chunk and micro-batch on a stream."""
    keys = (spans.role, spans.stream, spans.kind, spans.chunk, spans.microbatch)
    fresh = np.ones(len(spans), dtype=np.bool_)
    fresh[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    first = np.flatnonzero(fresh)
    last = np.append(first[1:], len(spans)) - 1
    extent = spans.end[last] - spans.start[first]
    filled = np.add.reduceat(spans.end - spans.start, first) / extent
    return replace(spans.take(first), end=spans.end[last], filled=filled, grain="pass")


def paired(spans: Drawn) -> bool:
    """Whether passes run in pairs, block by block: then the spans of one pass on a compute stream
    do not follow one another."""
    compute = spans.take(spans.stream == 0)
    runs = _passes(compute)
    keys = np.stack([runs.role, runs.kind, runs.chunk, runs.microbatch])
    whole = runs.microbatch >= 0
    forwards = whole & (runs.kind == MEANINGS.index("forward"))
    return np.unique(keys[:, forwards], axis=1).shape[1] < int(forwards.sum())


def slices(spans: Drawn, window: tuple[int, int], budget: int) -> Drawn:
    """Equal slices of the window, per lane and kind, each as high as the share it fills."""
    kinds = np.unique(spans.kind)
    lanes = np.unique(np.stack([spans.role, spans.stream], axis=1), axis=0)
    count = max(budget // max(len(lanes) * len(kinds), 1), 1)
    edges = np.linspace(window[0], window[1], count + 1).astype(np.int64)
    length = np.diff(edges)
    parts: list[Drawn] = [spans.take(np.zeros(len(spans), dtype=np.bool_))]
    for role, stream in lanes:
        lane = spans.take((spans.role == role) & (spans.stream == stream))
        below = np.zeros(count)
        for kind in np.unique(lane.kind):
            own = lane.take(lane.kind == kind)
            filled = _busy(own, edges) / length
            parts.append(_column(own, edges, filled, below))
            below = below + filled
    return _joined(parts, int(length[0]))


def _column(
    own: Drawn, edges: NDArray[np.int64], filled: NDArray[np.float64], below: NDArray[np.float64]
) -> Drawn:
    """The slices of one lane and kind that hold anything; `own` has at least one span."""
    shown = filled > 0
    many = int(shown.sum())
    unknown = np.full(many, -1, dtype=np.int32)
    return Drawn(
        role=np.repeat(own.role[:1], many),
        stream=np.repeat(own.stream[:1], many),
        kind=np.repeat(own.kind[:1], many),
        chunk=unknown,
        microbatch=unknown,
        start=edges[:-1][shown],
        end=edges[1:][shown],
        filled=filled[shown],
        below=below[shown],
    )


def _joined(parts: Sequence[Drawn], slice_ns: int) -> Drawn:
    return Drawn(
        role=np.concatenate([part.role for part in parts]),
        stream=np.concatenate([part.stream for part in parts]),
        kind=np.concatenate([part.kind for part in parts]),
        chunk=np.concatenate([part.chunk for part in parts]),
        microbatch=np.concatenate([part.microbatch for part in parts]),
        start=np.concatenate([part.start for part in parts]),
        end=np.concatenate([part.end for part in parts]),
        filled=np.concatenate([part.filled for part in parts]),
        below=np.concatenate([part.below for part in parts]),
        grain="slice",
        slice_ns=slice_ns,
    )


def _busy(spans: Drawn, edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """Nanoseconds that spans of one lane and kind take in each slice; a lane's spans follow one
    another."""
    lengths = spans.end - spans.start
    times = np.stack([spans.start, spans.end], axis=1).ravel()
    done = np.cumsum(lengths)
    filled = np.stack([done - lengths, done], axis=1).ravel()
    return np.diff(np.interp(edges, times, filled))
