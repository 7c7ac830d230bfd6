"""What ran when on one rank: spans of computing and of transfers, in nanoseconds of the machine's
clock, so that ranks of one machine compare.

`<train.output>/timeline/rank-00000.jsonl` begins with a header; each further line is a span, an
arrival, a step, bytes of memory, or nothing that a reader of another version needs. Spans have the
simulator's streams and names, so that a measured step opens where a simulated one does. Bytes of a
collective are its whole payload: the full tensor of an all-reduce, all parts of an all-gather or
reduce-scatter, all rows sent in an all-to-all.

A host that issues kernels knows only when it issued them. So on a GPU a mark is an event on the
current stream, which says when the device came to it. Events become nanoseconds when a step ends.

While torch's profiler listens, each span is an annotation of its trace, too, so that a trace can be
read in the same terms: a pass `forward, chunk 0, micro-batch 3`, a transfer `expert: dispatch
[0, 1]` with its group and the ranks in it, a message `pipeline: activations [0 > 2]`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import time_ns
from typing import Any, Final, Literal, Protocol, Self, TextIO

import torch
from torch.profiler import record_function

VERSION: Final = 1
FOLDER: Final = "timeline"
Stream = Literal[
    "compute", "expert", "send_forward", "send_backward", "data", "to_host", "from_host"
]
NOWHERE: Final = -1
"""The chunk and the micro-batch of what belongs to none."""


Mark = int | torch.cuda.Event
"""A moment: nanoseconds, or an event that a device has yet to reach."""


class Clock(Protocol):
    """Marks moments on one device, and tells their nanoseconds later."""

    def mark(self) -> Mark:
        """This moment in the order of the current stream's work."""
        ...

    def ns(self, mark: Mark) -> int:
        """When it was, once it has been."""
        ...

    def restart(self) -> None:
        """All marks so far have been told."""
        ...


class HostClock:
    """A device that works while its host waits for it."""

    def mark(self) -> Mark:
        """Now."""
        return time_ns()

    def ns(self, mark: Mark) -> int:
        """The mark itself."""
        assert isinstance(mark, int)
        return mark

    def restart(self) -> None:
        """Nothing to do."""


class EventClock:
    """A GPU. Seconds between events are fp32, so counting begins anew with each step."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.restart()

    def mark(self) -> Mark:
        """An event behind all that the current stream has been given."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def ns(self, mark: Mark) -> int:
        """Waits for the event."""
        if isinstance(mark, int):
            return mark
        mark.synchronize()
        return self._began + round(self._zero.elapsed_time(mark) * 1e6)

    def restart(self) -> None:
        """Waits for the device: an event and the host's clock at one moment."""
        torch.cuda.synchronize(self._device)
        self._zero = torch.cuda.Event(enable_timing=True)
        self._zero.record()
        self._zero.synchronize()
        self._began = time_ns()


def clock_of(device: torch.device) -> Clock:
    """The clock of a device."""
    return EventClock(device) if device.type == "cuda" else HostClock()


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """Something that took time."""

    step: int
    stream: Stream
    name: str
    chunk: int
    microbatch: int
    start: Mark
    end: Mark
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
    at: Mark


class Tape:
    """The record of one rank. Collectives are always counted, spans kept while a file is open."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or HostClock()
        self.step = 0
        """The step that runs, from 1."""
        self.counts: Counter[tuple[str, str, str]] = Counter()
        """Collectives by name, group and kind."""
        self.bytes: Counter[tuple[str, str, str]] = Counter()
        """Their payloads."""
        self.profiled = False
        """Whether torch's profiler listens."""
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

    def mark(self) -> Mark:
        """This moment; nothing while no file is open."""
        return self._clock.mark() if self.writes else 0

    def note(self, text: str) -> record_function | None:
        """An annotation of the profiler's trace that begins now; nothing while none listens. It
        ends on the thread that begins it."""
        if not self.profiled:
            return None
        note = record_function(text)
        note.__enter__()
        return note

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
            self._arrivals.append(Arrival(self.step, name, chunk, microbatch, self.mark()))

    def transfer(
        self, stream: Stream, name: str, size: int, group: str, kind: str, ranks: str
    ) -> Transfer:
        """A collective between `ranks`; it begins with `Transfer.begin`, and ends with
        `Transfer.end`."""
        self.counts[name, group, kind] += 1
        self.bytes[name, group, kind] += size
        return Transfer(self, stream, name, size, group, ranks)

    def end_step(self, start: int, end: int | None = None) -> None:
        """The step is over, now or at `end`: write what it was. What lies before it belongs to
        none, such as an evaluation's messages."""
        if self._file is None:
            return
        ns = self._clock.ns
        spans = [replace(one, start=ns(one.start), end=ns(one.end)) for one in self._spans]
        arrivals = [replace(one, at=ns(one.at)) for one in self._arrivals]
        end = end or ns(self._clock.mark())  # before it is written down, which takes time itself
        self._clock.restart()
        for span in sorted(spans, key=lambda one: ns(one.start)):
            if ns(span.start) >= start:
                self._line({"kind": "span", **asdict(span)})
        for arrival in arrivals:
            if ns(arrival.at) >= start:
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
    """Something on its way between ranks."""

    tape: Tape
    stream: Stream
    name: str
    bytes: int
    group: str
    ranks: str
    """Numbers of all of them with commas between; of a message the sender's, `>`, the other's."""
    start: Mark = 0
    chunk: int = NOWHERE
    microbatch: int = NOWHERE
    note: record_function | None = None

    def begin(self) -> Self:
        """It begins now."""
        self.start = self.tape.mark()
        self.note = self.tape.note(f"{self.group}: {self.name} [{self.ranks}]")
        return self

    def end(self) -> None:
        """It is complete."""
        ended(self.note)
        place = self.chunk, self.microbatch, self.start, self.tape.mark()
        self.tape.span(
            TimelineSpan(self.tape.step, self.stream, self.name, *place, self.bytes, self.group)
        )

    def __enter__(self) -> Self:
        return self.begin()

    def __exit__(self, *_: object) -> None:
        self.end()


def ended(note: record_function | None) -> None:
    """End an annotation, if there is one."""
    if note is not None:
        note.__exit__(None, None, None)
