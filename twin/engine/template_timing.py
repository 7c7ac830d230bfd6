"""How a template falls in time on a role of its own.

A pass is a max-plus linear map (Baccelli et al., Synchronization and Linearity, section 2.3): from
the ends of its role's streams and the arrival of its message to the same after it. It is played
once, step by step, per way in which its inputs hold it up: mostly one, in which no stream is late.
All other instances are that one moved in time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final, TypeAlias, overload

from twin.collectives.base import Traffic
from twin.engine.breakdown import BY_NAME, EXPOSED
from twin.engine.cost_model import played_alone
from twin.engine.fluid import ROUNDING
from twin.engine.overlap import paired
from twin.engine.pass_dependencies import NOWHERE, Passes
from twin.engine.program import (
    COMPUTE,
    FROM_HOST,
    HOST,
    SEND_BACKWARD,
    SEND_FORWARD,
    TO_HOST,
    Program,
    Step,
    Template,
    last_steps,
    parts,
    roots,
)
from twin.engine.trace import CAUSES

Record: TypeAlias = "tuple[int, int, int, int, int, Record | None]"
"""An operation that others wait for: end, start, ready (ns), stream, role, and what released it;
None where nobody asks: of kernels, and of messages."""

BEGINNING: Final[Record] = (0, 0, 0, COMPUTE, -1, None)
"""What a stream ends with before anything ran on it; and, as what released something, a kernel."""
KERNELS: Final = CAUSES.index("compute")
BUSY: Final = {name: CAUSES.index(cause) for name, cause in BY_NAME.items()}
"""The category of a compute step by its name; of others it is `KERNELS`."""
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
    results: tuple[int | Record, ...]
    """Of every pass the operation that ends its result: the last of a stream, or one that a stream
    went on from."""
    ends: tuple[int | Record, ...]
    """The same of its last operation, which may be a reduction behind that."""
    spent: tuple[tuple[int, int], ...]
    """Category and nanoseconds of the compute stream."""
    alike: bool
    """Whether all instances that are held up as much do the same: not where something before had
    to be asked why it took so long. Then nothing is moved, however far back that leads."""


@dataclass(slots=True)
class TemplateTiming:
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
    begins: frozenset[int]
    """Steps that wait for arrivals."""
    rigid: bool
    """True where all follows from the first step, a kernel, as long as nothing else is late."""
    hosted: bool
    """Whether it has steps of the host, which may begin before the template does."""
    first: int
    """How long its first step lasts: then the host may go on to the next turn."""
    beside: dict[int, int] = field(default_factory=dict[int, int])
    """Stream -> how long what is on it lasts that starts beside it: a message, a copy, a
    reduction."""
    length: int = 0
    """From the start to the end of the last kernel, where it was played beside something."""
    free: Outcome | None = None
    """When nothing is late."""
    outcomes: dict[tuple[int, ...], Outcome] = field(default_factory=dict[tuple[int, ...], Outcome])
    """By what is late, and how much."""

    @staticmethod
    def of(
        steps: Template,
        lanes: tuple[int, ...],
        capacity: Mapping[str, float],
        durations: Sequence[int] | None = None,
    ) -> TemplateTiming:
        """The shape of a template whose steps belong to these passes and last so long; None: as
        long as with their links to themselves."""
        full = tuple(alone_ns(step, capacity) for step in steps)
        durations = full if durations is None else tuple(durations)
        starts: list[int] = []
        free: dict[int, int] = {}
        first: dict[int, int] = {}
        for step, duration in zip(steps, durations, strict=True):
            ready = max((starts[i] + durations[i] for i in step.after), default=0)
            starts.append(max(ready, free.get(step.stream, 0)))
            free[step.stream] = starts[-1] + duration
            first.setdefault(step.stream, starts[-1])
        begins = roots(steps)
        return TemplateTiming(
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
            others=tuple(
                (stream, at)
                for stream, at in first.items()
                if stream not in (steps[0].stream, HOST)
            ),
            second=min((starts[i] for i in begins if lanes[i] != lanes[0]), default=0),
            begins=frozenset(begins),
            rigid=all(steps[i].stream == COMPUTE for i in begins),
            hosted=any(step.stream == HOST for step in steps),
            first=durations[0],
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
            if not self.hosted and self._on_time(at, arrivals):
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

    def _on_time(self, at: int, arrivals: Sequence[Record]) -> bool:
        """Whether no arrival is waited for after the start."""
        return self.rigid and (len(arrivals) == 1 or arrivals[1 - self.lead][0] <= at + self.second)

    def _held(
        self, at: int, tails: Sequence[Record], arrivals: Sequence[Record]
    ) -> tuple[int, ...]:
        """What holds the template up, relative to its start."""
        late = [stream for stream, start in self.others if tails[stream][0] > at + start]
        if not self.rigid:
            late = [self.head, *(stream for stream, _ in self.others)]
        key: list[int] = []
        if self.hosted:
            late.append(HOST)
        for stream in late:
            key += (stream, tails[stream][0] - at, tails[stream][1] - at)
        if self._on_time(at, arrivals):
            return tuple(key)
        for end, start, _, stream, role, _ in arrivals:
            key += (end - at, start - at, stream, role)
        return tuple(key)

    def play(
        self, at: int, role: int, tails: Sequence[Record], arrivals: Sequence[Record]
    ) -> Outcome:
        """The template step by step."""
        # What a kernel or nobody released is told by its times alone, which are in the key.
        outside = {
            id(record)
            for record in (*tails, *arrivals)
            if record[5] is not None and record[5] is not BEGINNING
        }
        records: list[Record] = []
        own: dict[int, Record] = {}
        spent = [0] * len(CAUSES)
        idle, alike = at if self.rigid else tails[COMPUTE][0], True
        columns = zip(self.steps, self.durations, self.taken, self.lanes, strict=True)
        for place, (step, duration, taken, lane) in enumerate(columns):
            waits = [records[i] for i in step.after]
            if place in self.begins:
                waits.append(arrivals[lane])
            waits.append(own.get(step.stream, tails[step.stream]))
            cause: Record | None = max(waits, key=lambda record: record[0])
            start = cause[0]
            if step.stream == COMPUTE:
                if start > idle:
                    asked = name_wait(cause, (idle, start), role, spent)
                    alike = alike and not _passes(cause, asked, outside)
                spent[BUSY.get(step.name, KERNELS)] += duration - taken
                spent[CONTENTION] += taken
                idle, cause = start + duration, None
            elif cause[3] == COMPUTE:
                cause = BEGINNING
            record = (start + duration, start, start, step.stream, role, cause)
            if step.stream == HOST and cause is not None and cause[3] == HOST:
                # The host has gone on without a pause: one stretch, so that chains stay short.
                began, released = (cause[1], cause[5]) if HOST in own else (start, BEGINNING)
                record = (start + duration, began, began, HOST, role, released)
            records.append(record)
            own[step.stream] = record
        results, ends = last_steps([step.stream for step in self.steps], self.lanes)
        last = [records[place] for place in (*results, *ends)]
        alike = alike and not any(
            _passes(record, None, outside) for record in (*own.values(), *last)
        )
        by = -at if alike else 0
        named = tuple(end[3] if own[end[3]] is end else moved(end, by, role) for end in last)
        return Outcome(
            tails=tuple(
                (stream, record[0] + by, record[1] + by, moved(record[5], by, role))
                for stream, record in own.items()
            ),
            results=named[: len(results)],
            ends=named[len(results) :],
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


class TemplateTimings:
    """The shapes of a Program's passes and pairs, each made when first met: played alone."""

    def __init__(self, program: Program) -> None:
        self.program = program
        receive, capacity = program.receive, program.capacity
        self.receive = (
            TemplateTiming.of(receive, (0,) * len(receive), capacity) if receive else None
        )
        self._known: dict[tuple[object, ...], TemplateTiming] = {}

    def of(
        self,
        passes: Passes,
        beside: Sequence[int] = (0, NOWHERE, NOWHERE),
        reduction: Step | None = None,
    ) -> TemplateTiming:
        """The shape of a pass or a pair, beside so many messages, the copies of one chunk's
        activations to the host and those of another's back, and a reduction; chunks that do the
        same share theirs."""
        templates, others = [self.program.template(*one) for one in passes], self._others(beside)
        if reduction is not None:
            others.append(replace(reduction, after=()))
        same = *map(id, templates), *((one.stream, one.traffic) for one in others)
        if same not in self._known:
            self._known[same] = self._made(templates, others)
        return self._known[same]

    def _others(self, beside: Sequence[int]) -> list[Step]:
        messages, *copies = beside
        offload = self.program.offload
        streams = SEND_FORWARD, SEND_BACKWARD
        found = [self.program.message.step(stream) for stream in streams[:messages]]
        if offload is None:
            return found
        moves = zip((TO_HOST, FROM_HOST), copies, strict=True)
        return found + [
            offload.copy(stream, offload.bytes[chunk])
            for stream, chunk in moves
            if chunk != NOWHERE
        ]

    def _made(self, templates: Sequence[Template], others: Sequence[Step]) -> TemplateTiming:
        program = self.program
        steps, lanes = joined(templates, program)
        if not (others or any(step.sms for step in steps)):
            return TemplateTiming.of(steps, lanes, program.capacity)
        times = played_alone((*steps, *others), program)
        lasts = [end - start for start, end in times]
        shape = TemplateTiming.of(steps, lanes, program.capacity, lasts[: len(steps)])
        for other, ns in zip(others, lasts[len(steps) :], strict=True):
            shape.beside[other.stream] = ns
        kernels = zip(steps, times, strict=False)
        shape.length = max(end for step, (_, end) in kernels if step.stream == COMPUTE)
        return shape


def joined(templates: Sequence[Template], program: Program) -> tuple[Template, tuple[int, ...]]:
    """The steps of a pass, or of a pair, and the pass that each belongs to."""
    if len(templates) == 1:
        return templates[0], (0,) * len(templates[0])
    forward, backward = templates
    pair = paired(forward, backward, program.capacity, program.sync_ns, program.beside)
    return pair.steps, pair.lanes
