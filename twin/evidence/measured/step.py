"""One measured step as a `Trace`, in the words that simulated ones have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from twin.engine.breakdown import Piece, sums
from twin.engine.program import COMPUTE, STREAMS
from twin.engine.trace import Spans, Trace
from twin.evidence.measured.breakdown import pieces
from twin.evidence.measured.folder import MeasuredRun
from twin.evidence.measured.moment import SENDS, Line, Moment, direction, moment
from twin.schedules import ChunkMap

WORDS: Final[Mapping[str, str]] = {
    "F": "forward",
    "B": "backward",
    "I": "backward_input",
    "W": "backward_weight",
}
"""Passes as the simulator's segments are called."""


def trace(run: MeasuredRun, step: int) -> Trace:
    """A finished step, a role per rank.

    Streams are in order, as the simulator's: where a rank had two transfers of one stream under way
    at once, the later one is drawn from the end of the earlier one on. A message stands at the
    chunk that sent it. What a link carried is not in a timeline, which knows no links, so
    `link_bytes` is empty; neither is what released what, so there is no critical path.
    """
    found = moment(run, step)
    stretches = [pieces(found, rank) for rank in range(len(found.ranks))]
    names = {name: None for line in found.ranks for name in _names(line)}
    spans = _spans(found, {name: at for at, name in enumerate(names)})
    return Trace(
        spans=spans,
        names=tuple(names),
        roles=tuple(f"rank {rank}, stage {stage}" for rank, stage in enumerate(run.layout.stage)),
        step_ns=found.step_ns,
        breakdown_ns=tuple(sums(one, 0, found.step_ns) for one in stretches),
        ramp_ns=tuple(map(_ramp, found.ranks, stretches)),
        link_bytes={},
        link_busy={},
        events=sum(len(line.spans) for line in found.ranks),
        played_microbatches=run.header.microbatches,
        microbatches=run.header.microbatches,
    )


def _names(line: Line) -> list[str]:
    """Names of the spans as the simulator would say."""
    streams = line.spans.stream.tolist()
    return [
        STREAMS[stream] if stream in SENDS else WORDS.get(name, name) if not stream else name
        for stream, name in zip(streams, line.names, strict=True)
    ]


def _spans(found: Moment, index: Mapping[str, int]) -> Spans:
    """All spans by role, stream and start; those that nothing is left of are out."""
    columns: list[tuple[NDArray[np.int64], ...]] = []
    for role, line in enumerate(found.ranks):
        own = line.spans
        name = np.array([index[one] for one in _names(line)], np.int64)
        chunk = senders(line, found.layout.chunk_map)
        for stream in np.unique(own.stream).tolist():
            rows = np.flatnonzero(own.stream == stream)
            start, end = own.start[rows], own.end[rows]
            one = np.ones(len(rows), np.int64)
            place = (one * role, one * stream, name[rows], chunk[rows], own.microbatch[rows])
            columns.append((*place, _in_order(start, end), end))
    role, stream, name, chunk, microbatch, start, end = (
        np.concatenate([part[at] for part in columns] or [np.zeros(0, np.int64)]) for at in range(7)
    )
    kept = end > start
    return Spans(
        role=role[kept].astype(np.int32),
        stream=stream[kept].astype(np.int8),
        name=name[kept].astype(np.int32),
        chunk=chunk[kept].astype(np.int32),
        microbatch=microbatch[kept].astype(np.int32),
        start=start[kept],
        end=end[kept],
    )


def _in_order(start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """Starts, none before all earlier ones have ended."""
    before = np.maximum.accumulate(np.concatenate([[0], end[:-1]])) if len(end) else end
    return np.minimum(np.maximum(start, before), np.maximum(end, start))


def senders(line: Line, chunks: ChunkMap) -> NDArray[np.int64]:
    """The chunk of every span; of a message the one that sent it."""
    found = line.spans.chunk.copy()
    for row in np.flatnonzero(np.isin(line.spans.stream, SENDS)).tolist():
        way = direction(line.names[row], int(line.spans.stream[row]))
        beside = chunks.before if way == "forward" else chunks.after
        at = int(found[row])
        sender = beside[at] if 0 <= at < len(beside) else None
        found[row] = -1 if sender is None else sender
    return found


def _ramp(line: Line, stretches: list[Piece]) -> dict[str, int]:
    """How a rank spends its step before its first backward and after its last forward."""
    spans = line.spans
    passes = (spans.stream == COMPUTE) & (spans.microbatch >= 0)
    forward = passes & np.array([name == "F" for name in line.names], np.bool_)
    length = stretches[-1][1] if stretches else 0
    first = int(spans.start[passes & ~forward].min(initial=length))
    last = max(first, int(spans.end[forward].max(initial=0)))
    early, late = sums(stretches, 0, first), sums(stretches, last, length)
    return {cause: early[cause] + late[cause] for cause in early}
