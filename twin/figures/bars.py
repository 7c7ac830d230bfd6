"""From the spans of a trace to a bounded number of bars, openly coarser where spans are too many.

Three grains, the finest that fits the budget: every span; one bar per pass of a micro-batch through
a chunk (waits inside the pass are covered); equal slices of time in the colour of what fills most
of them. What is drawn says its grain.
"""

from __future__ import annotations

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
_PASSES: tuple[Meaning, ...] = ("forward", "backward", "recompute", "optimizer")
_OF_STREAM: dict[str, Meaning] = {
    "tensor": "tensor",
    "expert": "expert",
    "send_forward": "pipeline",
    "send_backward": "pipeline",
    "data": "data",
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
        )


def meaning(stream: str, name: str) -> Meaning:
    """What a span means: its pass on the compute stream, its axis of parallelism elsewhere."""
    if stream != "compute":
        return _OF_STREAM.get(stream, "other")
    for one in _PASSES:
        if name.startswith(one):
            return one
    return "compute"


def drawn(
    trace: Trace, window: tuple[int, int], streams: frozenset[int], budget: int = BUDGET
) -> Drawn:
    """Bars of the chosen streams inside a window (ns), at the finest grain within the budget."""
    spans = _inside(trace, window, streams)
    if len(spans) <= budget:
        return spans
    merged = _passes(spans)
    return merged if len(merged) <= budget else _slices(spans, window, budget)


def _inside(trace: Trace, window: tuple[int, int], streams: frozenset[int]) -> Drawn:
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
        "span",
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
    return replace(spans.take(first), end=spans.end[last], grain="pass")


def _slices(spans: Drawn, window: tuple[int, int], budget: int) -> Drawn:
    """Equal slices per lane, each in the kind that fills most of it; empty where less than half
    is filled."""
    lanes = np.unique(np.stack([spans.role, spans.stream], axis=1), axis=0)
    count = max(budget // len(lanes), 1)
    edges = np.linspace(window[0], window[1], count + 1).astype(np.int64)
    parts = [
        _lane(spans.take((spans.role == role) & (spans.stream == stream)), edges)
        for role, stream in lanes
    ]
    return Drawn(
        role=np.concatenate([part.role for part in parts]),
        stream=np.concatenate([part.stream for part in parts]),
        kind=np.concatenate([part.kind for part in parts]),
        chunk=np.concatenate([part.chunk for part in parts]),
        microbatch=np.concatenate([part.microbatch for part in parts]),
        start=np.concatenate([part.start for part in parts]),
        end=np.concatenate([part.end for part in parts]),
        grain="slice",
        slice_ns=int(edges[1] - edges[0]),
    )


def _lane(spans: Drawn, edges: NDArray[np.int64]) -> Drawn:
    """The slices of one lane, neighbours of one kind joined."""
    kinds = np.unique(spans.kind)
    busy = np.stack([_busy(spans.take(spans.kind == kind), edges) for kind in kinds])
    winner = np.where(2 * busy.sum(axis=0) >= np.diff(edges), kinds[busy.argmax(axis=0)], -1)
    change = np.flatnonzero(np.diff(winner)) + 1
    first, last = np.append(0, change), np.append(change, len(winner))
    filled = winner[first] >= 0
    first, last = first[filled], last[filled]
    unknown = np.full(len(first), -1, dtype=np.int32)
    return Drawn(
        role=np.full(len(first), spans.role[0], dtype=np.int32),
        stream=np.full(len(first), spans.stream[0], dtype=np.int8),
        kind=winner[first].astype(np.int32),
        chunk=unknown,
        microbatch=unknown,
        start=edges[first],
        end=edges[last],
    )


def _busy(spans: Drawn, edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """Nanoseconds that spans of one lane and kind take in each slice; a lane's spans follow one
    another."""
    lengths = spans.end - spans.start
    times = np.stack([spans.start, spans.end], axis=1).ravel()
    done = np.cumsum(lengths)
    filled = np.stack([done - lengths, done], axis=1).ravel()
    return np.diff(np.interp(edges, times, filled))
