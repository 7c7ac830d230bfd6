"""From the spans of a trace to a bounded number of bars, openly coarser where spans are too many.

Three grains, the finest that fits the budget: every span; one bar per pass of a micro-batch through
a chunk; equal slices of time with the kinds stacked. A coarse bar is as high as the share of its
time that is filled, so that areas stay proportional to time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from twin.engine.program import STREAMS
from twin.engine.trace import Trace
from twin.figures.palette import MEANINGS, Meaning

BUDGET = 5_000
"""Bars that one figure may draw: they are SVG elements, and browsers crawl beyond."""

Grain = Literal["span", "pass", "slice"]
_PASSES: dict[str, Meaning] = {
    "forward": "forward",
    "backward_weight": "weight",
    "backward": "backward",
    "recompute": "recompute",
    "optimizer": "optimizer",
}
"""How the name of a segment begins: the longer name first."""
_OF_STREAM: dict[str, Meaning] = {
    "tensor": "tensor",
    "expert": "expert",
    "send_forward": "pipeline",
    "send_backward": "pipeline",
    "data": "data",
    "context": "context",
    "gather": "data",
    "to_host": "offload",
    "from_host": "offload",
}


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
