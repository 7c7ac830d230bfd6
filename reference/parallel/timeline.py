"""What ran when on one rank: spans of computing and of transfers, in nanoseconds of the machine's
clock, so that ranks of one machine compare.

`<train.output>/timeline/rank-00000.jsonl` begins with a header; each further line is a span, an
arrival, a step, bytes of memory, or nothing that a reader of another version needs. Spans have the
simulator's streams and names, so that a measured step opens where a simulated one does. Bytes of a
collective are its whole payload: the full tensor of an all-reduce, all parts of an all-gather or
reduce-scatter, all rows sent in an all-to-all.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from time import time_ns
from typing import Any, Final, Literal, Self, TextIO

VERSION: Final = 1
FOLDER: Final = "timeline"
Stream = Literal[
    "compute", "expert", "send_forward", "send_backward", "data", "to_host", "from_host"
]
NOWHERE: Final = -1
"""The chunk and the micro-batch of what belongs to none."""


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """Something that took time."""

    step: int
    stream: Stream
    name: str
    chunk: int
    microbatch: int
    start: int
    end: int
    bytes: int = 0
    group: str = ""
    """Of a collective: which ranks, by kind."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that has come. Its sender may have been done before, since sockets hold some."""

    step: int
    name: str
    chunk: int
    microbatch: int
    at: int


class Tape:
    """The record of one rank. Collectives are always counted, spans kept while a file is open."""

    def __init__(self) -> None:
        self.step = 0
        """The step that runs, from 1."""
        self.counts: Counter[tuple[str, str, str]] = Counter()
        """Collectives by name, group and kind."""
        self.bytes: Counter[tuple[str, str, str]] = Counter()
        """Their payloads."""
        self._file: TextIO | None = None
        self._spans: list[TimelineSpan] = []
        self._arrivals: list[Arrival] = []
        self._memory: dict[str, int] = {}

    def open(
        self, folder: Path, rank: int, header: Mapping[str, Any], *, anew: bool = False
    ) -> None:
        """Write from now on, behind what the file holds, or `anew`."""
        folder.mkdir(parents=True, exist_ok=True)
        mode = "w" if anew else "a"
        self._file = (folder / f"rank-{rank:05d}.jsonl").open(mode, encoding="utf-8")
        facts = {"version": VERSION, "rank": rank, "clock": "unix_ns", **header}
        self._line({"kind": "header", **facts})

    @property
    def writes(self) -> bool:
        """Whether a file is open."""
        return self._file is not None

    def memory(self, name: str, size: int) -> None:
        """Something takes so many bytes now; the most of a step is written."""
        if self._file is not None:
            self._memory[name] = max(size, self._memory.get(name, 0))

    def close(self) -> None:
        """Stop writing."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def span(self, span: TimelineSpan) -> None:
        """Keep one; written when its step ends."""
        if self._file is not None:
            self._spans.append(span)

    def arrival(self, name: str, chunk: int, microbatch: int) -> None:
        """A message has come just now."""
        if self._file is not None:
            self._arrivals.append(Arrival(self.step, name, chunk, microbatch, time_ns()))

    def transfer(self, stream: Stream, name: str, size: int, group: str, kind: str) -> Transfer:
        """A collective that begins now; it ends with `Transfer.end`, or as a context manager."""
        self.counts[name, group, kind] += 1
        self.bytes[name, group, kind] += size
        return Transfer(self, stream, name, size, group, time_ns())

    def end_step(self, start: int, end: int | None = None) -> None:
        """The step is over, now or at `end`: write what it was. What lies before it belongs to
        none, such as an evaluation's messages."""
        if self._file is None:
            return
        end = end or time_ns()  # before it is written down, which takes time itself
        for span in sorted(self._spans, key=lambda one: one.start):
            if span.start >= start:
                self._line({"kind": "span", **asdict(span)})
        for arrival in self._arrivals:
            if arrival.at >= start:
                self._line({"kind": "arrival", **asdict(arrival)})
        self._spans.clear()
        self._arrivals.clear()
        self._line({"kind": "step", "step": self.step, "start": start, "end": end})
        for name, size in self._memory.items():
            self._line({"kind": "memory", "step": self.step, "name": name, "bytes": size})
        self._memory.clear()
        self._file.flush()

    def _line(self, facts: Mapping[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(facts) + "\n")


@dataclass(slots=True)
class Transfer:
    """A transfer under way."""

    tape: Tape
    stream: Stream
    name: str
    bytes: int
    group: str
    start: int
    chunk: int = NOWHERE
    microbatch: int = NOWHERE

    def end(self) -> None:
        """It is complete."""
        place = self.chunk, self.microbatch, self.start, time_ns()
        self.tape.span(
            TimelineSpan(self.tape.step, self.stream, self.name, *place, self.bytes, self.group)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
