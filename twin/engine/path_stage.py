"""One role on its way along the longest path: what its streams end with, how its time is spent, and
the activations that it sends to the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from twin.engine.program import COMPUTE, FROM_HOST, STREAMS, TO_HOST, Offload, Program
from twin.engine.shapes import BEGINNING, Outcome, Record, alone_ns, bytes_ns, moved
from twin.engine.steady import Period
from twin.engine.trace import CAUSES
from twin.engine.turns import Copy, Key, Passes, Turn
from twin.engine.wiring import Flow, Wiring


class Stage:
    """One role on its way through its turns."""

    def __init__(self, role: int, order: Sequence[Turn]) -> None:
        self.role, self.order = role, order
        self.place = self.begin = 0
        self.tails: list[Record] = [BEGINNING] * len(STREAMS)
        self.spent = [0] * len(CAUSES)
        self.released: dict[int, Record] = {}
        """Chunk -> the end of its last backward."""
        self.starts: list[int] = []
        """Start of each turn."""
        self.ends: list[int] = []
        """End of each turn's last kernel."""
        self.marks: list[int] = []
        """Where each action begins in `left`."""
        self.left: list[int] = []
        """What the proof of the steady state compares: of every turn the end of the last kernel
        before it, its start, and the ends that it left."""
        self.before: list[tuple[int, ...]] = []
        """`spent` at the end of the last kernel before each turn."""
        self.closing: list[tuple[str, int, int, int]] = []
        """Name, stream, start and end of the opening and closing operations."""
        self.opened: dict[int, Record] = {}
        """Chunk -> the gather that its first forward waits for."""
        self.copies: Copies | None = None
        self.ramp: list[tuple[int, ...] | None] = [None, None]
        """`spent` when the first backward starts, and when the last forward ends."""

    def open(self, program: Program) -> None:
        """Run what opens the step."""
        if not program.opening:
            return
        chunks = program.opens[self.role]
        for step, chunk in zip(program.opening[self.role], chunks, strict=True):
            start = self.tails[step.stream][0]
            end = start + alone_ns(step, program.capacity)
            record = end, start, start, step.stream, self.role, None
            self.tails[step.stream] = self.opened[chunk] = record
            self.closing.append((step.name, step.stream, start, end))

    def begin_at(self, arrival: int) -> None:
        """Let the step begin as its first message arrives, less what opens it beside that: time
        before is the last step's."""
        opened = max((record[0] for record in self.opened.values()), default=0)
        self.begin = begin = max(0, arrival - opened)
        self.tails[COMPUTE] = begin, begin, begin, COMPUTE, self.role, None

    def fall(self, outcome: Outcome, at: int, kinds: Passes) -> None:
        """Take over what a template leaves that started at `at`."""
        if self.ramp[0] is None and any(kind != "F" for kind, _ in kinds):
            self.ramp[0] = tuple(self.spent)
        for category, ns in outcome.spent:
            self.spent[category] += ns
        by = at if outcome.alike else 0
        for stream, end, start, cause in outcome.tails:
            begin = by + start
            record = by + end, begin, begin, stream, self.role, moved(cause, by, self.role)
            self.tails[stream] = record
            self.left.append(by + end)
        if kinds[0][0] == "F":
            self.ramp[1] = tuple(self.spent)
        self.starts.append(at)
        self.ends.append(self.tails[COMPUTE][0])

    def copied(self, offload: Offload, period: Period | None, extra: int) -> float:
        """Bytes that go out in the whole step."""
        if self.copies is None:
            return 0.0
        first, last = 0, 0
        if period is not None:
            first = period.windows[self.role]
            last = first + period.length_ns
        times: Counter[int] = Counter()
        for (out, *_), start in zip(self.copies.all, self.starts, strict=True):
            if out is not None:
                times[out[0]] += 1 + extra if first <= start < last else 1
        return sum(offload.bytes[chunk] * count for chunk, count in times.items())

    def note(self, actions: int, idle: int, at: int, mark: int) -> None:
        """Note a turn for the proof; `left` has held times of it from `mark` on."""
        self.marks += [mark] * actions
        self.left += (idle, at)
        self.before.append(tuple(self.spent))


class Copies:
    """Activations of one stage on their way to the host and back, as `twin.engine.graph` has them;
    every copy has its links to itself, but for the ranks of its role that copy at the same time."""

    def __init__(self, offload: Offload, rate: float, order: Sequence[Copy]) -> None:
        self.all, self.order = order, iter(order)
        self.durations = [offload.latency_ns + bytes_ns(size, rate) for size in offload.bytes]
        self.out: dict[Key, Record] = {}
        self.back: dict[Key, Record] = {}
        self.last: list[Record] = [BEGINNING, BEGINNING]
        self.now: Copy = (None, False, None, None)

    def begin(self, stage: Stage) -> tuple[Record, Record]:
        """Before a turn; what its forward and its backward wait for."""
        self.now = next(self.order)
        _, _, beside, needed = self.now
        if beside is not None:
            at = max(stage.tails[COMPUTE][0], self.out[beside][0])
            self.back[beside] = self._copy(stage, FROM_HOST, at, beside[0])
        return self.last[0], BEGINNING if needed is None else self.back.pop(needed)

    def end(self, stage: Stage, made: Record) -> None:
        """After a turn, whose forward has ended."""
        out, forward, _, _ = self.now
        if out is not None:
            self.out[out] = self._copy(stage, TO_HOST, made[0], out[0])
        if forward:
            self.last = [self.last[1], BEGINNING if out is None else self.out[out]]

    def _copy(self, stage: Stage, stream: int, ready: int, chunk: int) -> Record:
        start = max(ready, stage.tails[stream][0])
        record = start + self.durations[chunk], start, start, stream, stage.role, None
        stage.tails[stream] = record
        stage.left.append(record[0])
        return record


class Load:
    """Bytes on every link."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring, self.total = wiring, [0.0] * len(wiring.capacity)

    def add(self, flows: Iterable[Flow], times: float) -> None:
        """Add flows, so many times."""
        for size, route in flows:
            for link, weight in route:
                self.total[link] += size * weight * times
