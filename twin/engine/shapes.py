"""How a template falls in time on a role whose transfers have their links to themselves.

A pass is a max-plus linear map (Baccelli et al., Synchronization and Linearity, section 2.3): from
the ends of its role's streams and the arrival of its message to the same after it. It is played
once, step by step, per way in which its inputs hold it up: mostly one, in which no stream is late.
All other instances are that one moved in time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final, TypeAlias, overload

from twin.collectives import Traffic
from twin.engine.alone import played_alone
from twin.engine.breakdown import EXPOSED
from twin.engine.fluid import ROUNDING
from twin.engine.overlap import paired
from twin.engine.program import COMPUTE, FROM_HOST, TO_HOST, Program, Step, Template, parts
from twin.engine.trace import CAUSES
from twin.engine.turns import Passes
from twin.schedules.action import Pass

Record: TypeAlias = "tuple[int, int, int, int, int, Record | None]"
"""An operation that others wait for: end, start, ready (ns), stream, role, and what released it;
None where nobody asks: of kernels, and of messages."""

BEGINNING: Final[Record] = (0, 0, 0, COMPUTE, -1, None)
"""What a stream ends with before anything ran on it; and, as what released something, a kernel."""
KERNELS: Final = CAUSES.index("compute")
CONTENTION: Final = CAUSES.index("contention")
BUBBLE: Final = CAUSES.index("bubble")
WAITS: Final = {stream: CAUSES.index(cause) for stream, cause in EXPOSED.items()}
"""Stream -> the category of waiting for it."""


def alone_ns(step: Step, capacity: Mapping[str, float]) -> int:
    """Nanoseconds of a step with its links to itself, rounded as the event engine does: latency,
    then its bytes, up to a whole nanosecond."""
    if step.traffic is None:
        return step.duration_ns
    sizes = parts(step.traffic, slowed=step.slowed)
    times = (bytes_ns(size, capacity[path]) for path, size in sizes.items())
    return step.duration_ns + max(times, default=0)


def bytes_ns(size: float, rate: float) -> int:
    """Nanoseconds of a flow that has its links to itself; `rate` in bytes per nanosecond."""
    return max(0, ceil(size / rate - ROUNDING)) if size > 0 else 0


def name_wait(cause: Record, wait: tuple[int, int], role: int, spent: list[int]) -> Record | None:
    """Add the time between two kernels of a role to the categories of `spent`, walking back from
    what released the second as `twin.engine.breakdown` does; the record at which the walk ended."""
    start, until = wait
    record: Record | None = cause
    while until > start:
        if record is None or record[3] == COMPUTE:
            spent[BUBBLE] += until - start
            break
        _, began, ready, stream, owner, before = record
        begin = max(start, began)
        if until > begin:
            spent[WAITS[stream]] += until - begin
        if begin > start and begin > ready:  # a collective that waited for its members
            waited = max(start, ready)
            spent[BUBBLE] += begin - waited
            begin = waited
        until = begin
        if owner != role:
            spent[BUBBLE] += max(0, until - start)
            break
        if until > start:
            record = before
    return record


@dataclass(frozen=True, slots=True)
class Outcome:
    """A template played from time 0, or `at` a time where not all instances are alike: what it
    leaves behind."""

    tails: tuple[tuple[int, int, int, Record | None], ...]
    """Of every stream its last operation: stream, end, start, and what released it."""
    lanes: tuple[int | Record, ...]
    """Of every pass its last operation: that of a stream, or one that a stream went on from."""
    spent: tuple[tuple[int, int], ...]
    """Category and nanoseconds of the compute stream."""
    alike: bool
    """Whether all instances that are held up as much do the same: not where something before had
    to be asked why it took so long. Then nothing is moved, however far back that leads."""


@dataclass(slots=True)
class Shape:
    """A template, of one pass or of a pair, with how it has fallen so far."""

    steps: Template
    lanes: tuple[int, ...]
    """The pass that each step belongs to."""
    lead: int
    """That of the first step."""
    head: int
    """The stream of the first step."""
    durations: tuple[int, ...]
    """Of each step when the template has its role to itself: what passes are taken to last
    everywhere, also where they start late and then have other neighbours."""
    taken: tuple[int, ...]
    """What communication beside it adds to each kernel in that."""
    sends: Traffic
    """All bytes of the role's own ports."""
    others: tuple[tuple[int, int], ...]
    """Streams beside the first step's, and how long after its start each has its first step."""
    second: int
    """How long after the start the second pass of a pair begins."""
    rigid: bool
    """True where all follows from the first step, a kernel, as long as nothing else is late."""
    free: Outcome | None = None
    """When nothing is late."""
    outcomes: dict[tuple[int, ...], Outcome] = field(default_factory=dict[tuple[int, ...], Outcome])
    """By what is late, and how much."""

    @staticmethod
    def of(
        steps: Template, lanes: tuple[int, ...], program: Program, copies: Template = ()
    ) -> Shape:
        """The shape of a template whose steps belong to these passes, beside copies between device
        and host."""
        full = tuple(alone_ns(step, program.capacity) for step in steps)
        met = copies and any(step.traffic and step.traffic.nic_bytes for step in steps)
        crowded = met or any(step.sms for step in steps)
        durations = played_alone(steps, program, copies) if crowded else full
        starts: list[int] = []
        free: dict[int, int] = {}
        first: dict[int, int] = {}
        for step, duration in zip(steps, durations, strict=True):
            ready = max((starts[i] + durations[i] for i in step.after), default=0)
            starts.append(max(ready, free.get(step.stream, 0)))
            free[step.stream] = starts[-1] + duration
            first.setdefault(step.stream, starts[-1])
        roots = [i for i, step in enumerate(steps) if not step.after]
        return Shape(
            steps=steps,
            lanes=lanes,
            lead=lanes[0],
            head=steps[0].stream,
            durations=durations,
            taken=tuple(
                duration - least if step.stream == COMPUTE else 0
                for step, duration, least in zip(steps, durations, full, strict=True)
            ),
            sends=sum((step.traffic for step in steps if step.traffic), Traffic()),
            others=tuple((stream, at) for stream, at in first.items() if stream != steps[0].stream),
            second=min((starts[i] for i in roots if lanes[i] != lanes[0]), default=0),
            rigid=all(steps[i].stream == COMPUTE for i in roots),
        )

    def fall(
        self, at: int, role: int, tails: Sequence[Record], arrivals: Sequence[Record]
    ) -> Outcome:
        """How the template falls when its first step starts at `at`, after what its role's streams
        end with and what has arrived for its passes."""
        for stream, start in self.others:
            if tails[stream][0] > at + start:
                break
        else:
            if self.rigid and (
                len(arrivals) == 1 or arrivals[1 - self.lead][0] <= at + self.second
            ):
                if self.free is None:
                    self.free = self.play(at, role, tails, arrivals)
                return self.free
        key = self._held(at, tails, arrivals)
        outcome = self.outcomes.get(key)
        if outcome is None:
            outcome = self.play(at, role, tails, arrivals)
            if outcome.alike:
                self.outcomes[key] = outcome
        return outcome

    def _held(
        self, at: int, tails: Sequence[Record], arrivals: Sequence[Record]
    ) -> tuple[int, ...]:
        """What holds the template up, relative to its start."""
        late = [stream for stream, start in self.others if tails[stream][0] > at + start]
        if not self.rigid:
            late = [self.head, *(stream for stream, _ in self.others)]
        key: list[int] = []
        for stream in late:
            key += (stream, tails[stream][0] - at, tails[stream][1] - at)
        for end, start, _, stream, role, _ in arrivals:
            key += (end - at, start - at, stream, role)
        return tuple(key)

    def play(
        self, at: int, role: int, tails: Sequence[Record], arrivals: Sequence[Record]
    ) -> Outcome:
        """The template step by step."""
        outside = {id(record) for record in (*tails, *arrivals)}
        records: list[Record] = []
        own: dict[int, Record] = {}
        last: dict[int, Record] = {}
        spent = [0] * len(CAUSES)
        idle, alike = at if self.rigid else tails[COMPUTE][0], True
        columns = zip(self.steps, self.durations, self.taken, self.lanes, strict=True)
        for step, duration, taken, lane in columns:
            waits = [records[i] for i in step.after] or [arrivals[lane]]
            waits.append(own.get(step.stream, tails[step.stream]))
            cause: Record | None = max(waits, key=lambda record: record[0])
            start = cause[0]
            if step.stream == COMPUTE:
                if start > idle:
                    asked = name_wait(cause, (idle, start), role, spent)
                    alike = alike and not _passes(cause, asked, outside)
                spent[KERNELS] += duration - taken
                spent[CONTENTION] += taken
                idle, cause = start + duration, None
            elif cause[3] == COMPUTE:
                cause = BEGINNING
            record = (start + duration, start, start, step.stream, role, cause)
            records.append(record)
            own[step.stream] = last[lane] = record
        alike = alike and not any(
            _passes(record, None, outside) for record in (*own.values(), *last.values())
        )
        by = -at if alike else 0
        return Outcome(
            tails=tuple(
                (stream, record[0] + by, record[1] + by, moved(record[5], by, role))
                for stream, record in own.items()
            ),
            lanes=tuple(
                end[3] if own[end[3]] is end else moved(end, by, role)
                for end in (last[lane] for lane in sorted(last))
            ),
            spent=tuple((category, ns) for category, ns in enumerate(spent) if ns),
            alike=alike,
        )


@overload
def moved(record: Record, by: int, role: int) -> Record: ...
@overload
def moved(record: Record | None, by: int, role: int) -> Record | None: ...
def moved(record: Record | None, by: int, role: int) -> Record | None:
    """The same operation of another instance of its template; itself where that is no later."""
    if by == 0 or record is None or record is BEGINNING:
        return record
    end, start, ready, stream, _, cause = record
    return end + by, start + by, ready + by, stream, role, moved(cause, by, role)


def _passes(record: Record, until: Record | None, outside: set[int]) -> bool:
    """Whether the way back from a record leads through one of these before it ends."""
    at: Record | None = record
    while at is not None and at is not until and at is not BEGINNING:
        if id(at) in outside:
            return True
        at = at[5]
    return False


class Shapes:
    """The shapes of a Program's passes and pairs, each made when first met."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.receive = Shape.of(program.receive, (0,), program) if program.receive else None
        self._known: dict[tuple[int, ...], Shape] = {}

    def of(self, passes: Passes) -> Shape:
        """The shape of a pass or a pair; chunks that do the same share theirs."""
        templates = [self.program.passes[one] for one in passes]
        same = tuple(map(id, templates))
        if same not in self._known:
            copies = tuple(self._copy(*one) for one in passes if one[0] != "W")
            self._known[same] = self._made(templates, copies if self.program.offload else ())
        return self._known[same]

    def _copy(self, kind: Pass, chunk: int) -> Step:
        """The copy beside a pass: what a forward before it has made goes out, what a backward after
        it needs comes back, as much as this one's."""
        size = self.program.offload.bytes[chunk] if self.program.offload else 0.0
        if kind == "F":
            return Step("to_host", TO_HOST, 0, (), Traffic(to_host_bytes=size))
        return Step("from_host", FROM_HOST, 0, (), Traffic(from_host_bytes=size))

    def _made(self, templates: Sequence[Template], copies: Template) -> Shape:
        program = self.program
        if len(templates) == 1:
            return Shape.of(templates[0], (0,) * len(templates[0]), program, copies)
        forward, backward = templates
        pair = paired(forward, backward, program.capacity, program.dispatch_ns, program.beside)
        return Shape.of(pair.steps, pair.lanes, program, copies)
