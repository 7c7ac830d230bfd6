"""Where each rank's time went: every nanosecond of its step gets one of the simulator's causes.

The rules are the simulator's (`twin.engine.breakdown`), as far as a timeline tells what released
what. Where a pass begins, it waited for its message: time before its sender began to send is
`bubble`, from then on it is `exposed_pipeline`. Inside a pass, and before the optimizer, the rank
waited for its own collectives: time until the last rank of the group was there is `bubble`, the
rest is exposed communication of their kind. After its own step a rank waits for the others
(`bubble`).

What a timeline cannot tell: kernels that ran slower beside communication are `compute`, not
`contention`. A message that its receiver did not note down is on its way until its pass begins; so
the host's work between both counts as `exposed_pipeline`. A collective whose group was not written
down counts as under way from when this rank asked for it. `other` is what nothing recorded
explains: the host between passes, data, whatever comes before a rank's own step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from twin.engine.breakdown import EXPOSED, Piece
from twin.engine.program import COMPUTE
from twin.evidence.measured.moment import SENDS, Direction, Key, Line, Message, Moment

_OPTIMIZER = "optimizer"


def pieces(moment: Moment, rank: int) -> list[Piece]:
    """The stretches of a rank's compute stream over the step, in order, without gaps."""
    return _Walk(moment, rank).walk()


@dataclass(slots=True)
class _Walk:
    """Walks along the compute stream of one rank."""

    moment: Moment
    rank: int
    found: list[Piece] = field(default_factory=list[Piece])
    now: int = 0

    @property
    def line(self) -> Line:
        return self.moment.ranks[self.rank]

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
            self._until(end, "optimizer" if names[row].startswith(_OPTIMIZER) else "compute")
        self._cover(self.line.window[1])
        self._until(self.moment.step_ns, "bubble")
        return self.found

    def _first(self) -> int:
        compute = self.line.spans.start[self.line.spans.stream == COMPUTE]
        return int(compute.min(initial=self.moment.step_ns))

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

    def _message(self, message: Message, end: int) -> None:
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
        return [
            (
                int(spans.start[row]),
                int(self.line.begun[row]),
                int(spans.end[row]),
                EXPOSED[int(spans.stream[row])],
            )
            for row in np.flatnonzero(rows).tolist()
        ]

    def _source(self, place: tuple[str, int, int]) -> Key | None:
        """The message that a pass needs; None where it needs none from another stage."""
        name, chunk, microbatch = place
        chunks = self.moment.layout.chunk_map
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
        chunks = self.moment.layout.chunk_map
        source = (chunks.before if way == "forward" else chunks.after)[chunk]
        assert source is not None
        sender = self.moment.layout.pipelines[self.rank][chunks.stage_of[source]]
        other = self.moment.ranks[sender]
        names = ("F",) if way == "forward" else ("B", "I")
        rows = np.flatnonzero(
            (other.spans.stream == COMPUTE)
            & (other.spans.chunk == source)
            & (other.spans.microbatch == microbatch)
        ).tolist()
        ends = [int(other.spans.end[row]) for row in rows if other.names[row] in names]
        return max(ends, default=self.now)
