"""One measured step as a `Trace`, in the words of simulated steps.

Every nanosecond of a rank's step gets one of the simulator's causes (`twin.engine.breakdown`), as
far as a timeline shows what released what. Where a pass begins, it waited for its message: time
before its sender began to send is `bubble`, from then on it is `exposed_pipeline`. Inside a pass,
and before the optimizer, the rank waited for its own collectives: time until the last rank of the
group arrived is `bubble`, the rest is exposed communication of that kind. After its own step a rank
waits for the others (`bubble`).

Limits of a timeline: kernels slowed by communication are `compute`, not `contention`. Without an
arrival, a message is in flight until its pass begins, so host work in between counts as
`exposed_pipeline`. A collective of unknown group is in flight from this rank's request on. `other`
is time that no record explains: the host between passes, data, and whatever precedes the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from twin.engine.breakdown import EXPOSED, Piece, sums
from twin.engine.program import COMPUTE, EXPERT, SEND_BACKWARD, SEND_FORWARD, STREAMS
from twin.engine.trace import Spans, Trace
from twin.evidence.measured.run_folder import MeasuredRun, RunLayout
from twin.evidence.measured.timeline import Rank, RankSpans
from twin.schedules.base import ChunkMap

Direction = Literal["forward", "backward"]
Key = tuple[Direction, int, int]
"""Of a message: its direction, the chunk that receives it, the micro-batch."""
SENDS: Final = (SEND_FORWARD, SEND_BACKWARD)
_WORLD: Final = ("gradient_norm",)
"""Collectives of all ranks, whatever group was written down."""
_DIRECTION: Final[Mapping[str, Direction]] = {"activations": "forward", "gradients": "backward"}


@dataclass(frozen=True, slots=True)
class RankMessage:
    """When sending began and ended, and when the message arrived (None: not recorded)."""

    sent: int
    gone: int
    came: int | None


@dataclass(frozen=True)
class RankStep:
    """One rank in a step."""

    spans: RankSpans
    names: tuple[str, ...]
    """Of each span."""
    begun: NDArray[np.int64]
    """When the last rank of a collective arrived; its request where the group is unknown."""
    messages: Mapping[Key, RankMessage]
    """Those that this rank received."""
    window: tuple[int, int]
    """Its own step."""


@dataclass(frozen=True)
class MeasuredStep:
    """One step; times in ns since its first rank began it."""

    layout: RunLayout
    step_ns: int
    ranks: tuple[RankStep, ...]


def measured_step(run: MeasuredRun, step: int) -> MeasuredStep:
    """A finished step of a run."""
    begin, end = run.window(step)
    spans = [rank.of(step).within(*rank.steps[step], begin) for rank in run.ranks]
    named = [_words(rank, own) for rank, own in zip(run.ranks, spans, strict=True)]
    begun = _begun(run, spans, named)
    messages = _messages(run, step, begin, list(zip(spans, named, strict=True)))
    windows = [(first - begin, last - begin) for first, last in (r.steps[step] for r in run.ranks)]
    ranks = map(RankStep, spans, named, begun, messages, windows)
    return MeasuredStep(run.layout, end - begin, tuple(ranks))


def _words(rank: Rank, spans: RankSpans) -> tuple[str, ...]:
    names: list[int] = spans.name.tolist()
    return tuple(rank.words[name] for name in names)


def _begun(
    run: MeasuredRun, spans: Sequence[RankSpans], named: Sequence[tuple[str, ...]]
) -> list[NDArray[np.int64]]:
    """When the last rank of each collective's group asked for it: nothing moves before.

    The n-th collective of a name, chunk and micro-batch is the same one on all ranks of its group.
    """
    found = [own.start.copy() for own in spans]
    met: dict[tuple[object, ...], list[tuple[int, int]]] = {}
    for rank, own in enumerate(spans):
        words, seen = run.ranks[rank].words, dict[tuple[object, ...], int]()
        groups: list[int] = own.group.tolist()
        for row in np.flatnonzero((own.stream != COMPUTE) & ~np.isin(own.stream, SENDS)).tolist():
            name = named[rank][row]
            kind = _group(name, words[groups[row]], int(own.stream[row]))
            if kind not in run.layout.groups:
                continue
            what = (kind, name, int(own.chunk[row]), int(own.microbatch[row]))
            seen[what] = seen.get(what, 0) + 1
            group = int(run.layout.groups[kind][rank])
            met.setdefault((*what, group, seen[what]), []).append((rank, row))
    for (kind, *_, group, _), members in met.items():
        size = int((run.layout.groups[str(kind)] == group).sum())
        if len(members) == size > 1:
            last = max(int(spans[rank].start[row]) for rank, row in members)
            for rank, row in members:
                found[rank][row] = min(last, int(spans[rank].end[row]))
    return found


def _group(name: str, written: str, stream: int) -> str:
    """The kind of group whose ranks a collective waits for; empty where that is unknown."""
    if name in _WORLD:
        return "world"
    return written or ("expert" if stream == EXPERT else "")


def _messages(
    run: MeasuredRun, step: int, begin: int, sent: Sequence[tuple[RankSpans, tuple[str, ...]]]
) -> list[dict[Key, RankMessage]]:
    """The messages that every rank received."""
    found: list[dict[Key, RankMessage]] = [{} for _ in run.ranks]
    stage_of = run.layout.chunk_map.stage_of
    for rank, (spans, named) in enumerate(sent):
        for row in np.flatnonzero(np.isin(spans.stream, SENDS)).tolist():
            chunk, microbatch = int(spans.chunk[row]), int(spans.microbatch[row])
            if not 0 <= chunk < len(stage_of):
                continue
            to = run.layout.pipelines[rank][stage_of[chunk]]
            came = run.ranks[to].arrivals.get((step, named[row], chunk, microbatch))
            found[to][direction(named[row], int(spans.stream[row])), chunk, microbatch] = (
                RankMessage(
                    int(spans.start[row]),
                    int(spans.end[row]),
                    None if came is None else came - begin,
                )
            )
    return found


def direction(name: str, stream: int) -> Direction:
    """Which way a message goes."""
    return _DIRECTION.get(name, "backward" if stream == SEND_BACKWARD else "forward")


def pieces(step: MeasuredStep, rank: int) -> list[Piece]:
    """The stretches of a rank's compute stream over the step, in order, without gaps."""
    return _Walk(step, rank).walk()


@dataclass(slots=True)
class _Walk:
    """Walks along the compute stream of one rank."""

    step: MeasuredStep
    rank: int
    found: list[Piece] = field(default_factory=list[Piece])
    now: int = 0

    @property
    def line(self) -> RankStep:
        return self.step.ranks[self.rank]

    def walk(self) -> list[Piece]:
        spans, names = self.line.spans, self.line.names
        begun: set[tuple[str, int, int]] = set()
        self._until(min(self.line.window[0], self._first()), "other")
        for row in np.flatnonzero(spans.stream == COMPUTE).tolist():
            place = names[row], int(spans.chunk[row]), int(spans.microbatch[row])
            start, end = int(spans.start[row]), int(spans.end[row])
            if start > self.now:
                self._gap(place, start, first=place not in begun)
            begun.add(place)
            self._until(end, "optimizer" if names[row].startswith("optimizer") else "compute")
        self._cover(self.line.window[1])
        self._until(self.step.step_ns, "bubble")
        return self.found

    def _first(self) -> int:
        compute = self.line.spans.start[self.line.spans.stream == COMPUTE]
        return int(compute.min(initial=self.step.step_ns))

    def _until(self, time: int, cause: str) -> None:
        """Call everything up to a time by a cause."""
        if time <= self.now:
            return
        last = self.found[-1] if self.found else None
        if last is not None and last[2] == cause:
            self.found[-1] = (last[0], time, cause)
        else:
            self.found.append((self.now, time, cause))
        self.now = time

    def _gap(self, place: tuple[str, int, int], end: int, *, first: bool) -> None:
        """Name the time before a stretch of computing."""
        _, chunk, microbatch = place
        own = (chunk, microbatch) if microbatch >= 0 else None
        for start, begun, until, cause in self._transfers(end, own):
            self._rest(place, start, first=first)
            self._until(min(begun, end), "bubble")
            self._until(min(until, end), cause)
        self._rest(place, end, first=first)

    def _rest(self, place: tuple[str, int, int], end: int, *, first: bool) -> None:
        """Name time in which no collective of this pass was under way."""
        key = self._source(place) if first else None
        message = self.line.messages.get(key) if key else None
        if message is not None:
            self._message(message, end)
        elif key is not None:
            # The message was not written down; what it carries was made when its pass ended.
            self._until(min(end, self._made(key)), "bubble")
            self._until(end, "exposed_pipeline")
        self._cover(end, sends=True)

    def _message(self, message: RankMessage, end: int) -> None:
        came = message.came
        if came is None:
            came = end if message.gone > self.now else self.now
        self._until(min(end, message.sent), "bubble")
        self._until(min(end, came), "exposed_pipeline")

    def _cover(self, end: int, *, sends: bool = False) -> None:
        """Name what any transfer takes of the time up to `end`, and what is left `other`."""
        for start, begun, until, cause in self._transfers(end, sends=sends):
            self._until(min(start, end), "other")
            self._until(min(begun, end), "bubble")
            self._until(min(until, end), cause)
        self._until(end, "other")

    def _transfers(
        self, end: int, place: tuple[int, int] | None = None, *, sends: bool = False
    ) -> list[tuple[int, int, int, str]]:
        """Start, when all ranks were there, end and cause of this rank's transfers that are under
        way before `end`, by start; of one chunk and micro-batch where that is asked for."""
        spans = self.line.spans
        rows = (spans.stream != COMPUTE) & (spans.end > self.now) & (spans.start < end)
        if not sends:
            rows &= ~np.isin(spans.stream, SENDS)
        if place is not None:
            rows &= (spans.chunk == place[0]) & (spans.microbatch == place[1])
        times = np.stack([spans.start, self.line.begun, spans.end], axis=1)[rows].tolist()
        causes = (EXPOSED[stream] for stream in spans.stream[rows].tolist())
        return [(*row, cause) for row, cause in zip(times, causes, strict=True)]

    def _source(self, place: tuple[str, int, int]) -> Key | None:
        """The message that a pass needs; None where it needs none from another stage."""
        name, chunk, microbatch = place
        chunks = self.step.layout.chunk_map
        if name not in ("F", "B", "I") or not 0 <= chunk < len(chunks.stage_of):
            return None
        way: Direction = "forward" if name == "F" else "backward"
        source = (chunks.before if name == "F" else chunks.after)[chunk]
        if source is None or chunks.stage_of[source] == chunks.stage_of[chunk]:
            return None
        return way, chunk, microbatch

    def _made(self, key: Key) -> int:
        """When the pass ended whose result a message carries; now where nobody wrote that down."""
        way, chunk, microbatch = key
        chunks = self.step.layout.chunk_map
        source = (chunks.before if way == "forward" else chunks.after)[chunk]
        assert source is not None
        sender = self.step.layout.pipelines[self.rank][chunks.stage_of[source]]
        spans, named = self.step.ranks[sender].spans, self.step.ranks[sender].names
        own = (spans.stream == COMPUTE) & (spans.chunk == source) & (spans.microbatch == microbatch)
        names = ("F",) if way == "forward" else ("B", "I")
        ends = [int(spans.end[row]) for row in np.flatnonzero(own).tolist() if named[row] in names]
        return max(ends, default=self.now)


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
    found = measured_step(run, step)
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


def _names(line: RankStep) -> list[str]:
    """Names of the spans as the simulator would say."""
    streams = line.spans.stream.tolist()
    return [
        STREAMS[stream] if stream in SENDS else WORDS.get(name, name) if not stream else name
        for stream, name in zip(streams, line.names, strict=True)
    ]


def _spans(found: MeasuredStep, index: Mapping[str, int]) -> Spans:
    """All spans by role, stream and start; those that nothing is left of are out."""
    columns: list[tuple[NDArray[np.int64], ...]] = []
    for role, line in enumerate(found.ranks):
        own = line.spans
        name = np.array([index[one] for one in _names(line)], np.int64)
        chunk = senders(line, found.layout.chunk_map)
        for stream in np.unique(own.stream).tolist():
            rows = np.flatnonzero(own.stream == stream)
            start, end = own.start[rows], own.end[rows]
            ones = np.ones(len(rows), np.int64)
            place = (ones * role, ones * stream, name[rows], chunk[rows], own.microbatch[rows])
            columns.append((*place, _in_order(start, end), end))
    role, stream, name, chunk, microbatch, start, end = (
        np.concatenate([part[at] for part in columns] or [np.zeros(0, np.int64)]) for at in range(7)
    )
    kept = end > start
    role, name, chunk, microbatch = (
        column[kept].astype(np.int32) for column in (role, name, chunk, microbatch)
    )
    stream = stream[kept].astype(np.int8)
    return Spans(role, stream, name, chunk, microbatch, start[kept], end[kept])


def _in_order(start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """Starts, none before all earlier ones have ended."""
    before = np.maximum.accumulate(np.concatenate([[0], end[:-1]])) if len(end) else end
    return np.minimum(np.maximum(start, before), np.maximum(end, start))


def senders(line: RankStep, chunks: ChunkMap) -> NDArray[np.int64]:
    """The chunk of every span; of a message the one that sent it."""
    found = line.spans.chunk.copy()
    for row in np.flatnonzero(np.isin(line.spans.stream, SENDS)).tolist():
        way = direction(line.names[row], int(line.spans.stream[row]))
        beside = chunks.before if way == "forward" else chunks.after
        at = int(found[row])
        sender = beside[at] if 0 <= at < len(beside) else None
        found[row] = -1 if sender is None else sender
    return found


def _ramp(line: RankStep, stretches: list[Piece]) -> dict[str, int]:
    """How a rank spends its step before its first backward and after its last forward."""
    spans = line.spans
    passes = (spans.stream == COMPUTE) & (spans.microbatch >= 0)
    forward = passes & np.array([name == "F" for name in line.names], np.bool_)
    length = stretches[-1][1] if stretches else 0
    first = int(spans.start[passes & ~forward].min(initial=length))
    last = max(first, int(spans.end[forward].max(initial=0)))
    early, late = sums(stretches, 0, first), sums(stretches, last, length)
    return {cause: early[cause] + late[cause] for cause in early}
