"""One role on its way along the longest path: what its streams end with, how its time is spent, and
the activations that it sends to the host.

Reductions of gradients that close a step, as far as they run while passes are left: those of one
chunk begin when its last backward is over, beside the last backwards of the role's other chunks.

Each slows the turns beside it and is slowed by them: such a turn is played once with a reduction
under way from its start on. One that ends inside a turn is taken to meet all of it, or nothing,
whichever is nearer.

How the longest path closes a step: on every stage step by step, those that meet together.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from twin.engine.events import play
from twin.engine.graph import SmallGraph
from twin.engine.link_map import Flow, Wiring
from twin.engine.pass_dependencies import NOWHERE, Copy, Key, Passes, Turn
from twin.engine.played import DeadlockError
from twin.engine.program import (
    COMPUTE,
    DATA,
    FROM_HOST,
    HOST,
    STREAMS,
    TO_HOST,
    Group,
    Offload,
    Program,
    Step,
)
from twin.engine.steady import Period
from twin.engine.template_timing import (
    BEGINNING,
    BUBBLE,
    BUSY,
    KERNELS,
    WAITS,
    Outcome,
    Record,
    TemplateTiming,
    alone_ns,
    moved,
    name_wait,
)
from twin.engine.trace import CAUSES
from twin.schedules.base import Pass


class Reductions:
    """Those of one role that wait for nothing but a chunk's last backward."""

    def __init__(self, program: Program, role: int) -> None:
        own, self.capacity = program.roles[role], program.capacity
        rows = zip(program.finish[own.stage], program.ready_after[own.stage], strict=True)
        self.waiting = deque(
            (step, chunk)
            for step, chunk in rows
            if step.stream == DATA
            and step.traffic
            and chunk is not None
            and step.group not in own.groups
        )
        self.left = 0
        """Nanoseconds that those under way still take with their links to themselves."""
        self.lost = 0
        """Nanoseconds that turns beside them have cost them."""
        self.until = 0
        """The time for which `left` is known."""
        self.longest: tuple[int, Step] | None = None
        """Of those that were under way."""

    def release(self, released: Mapping[int, Record], at: int) -> None:
        """Let those begin whose chunks are through."""
        if not self.left:
            self.until = at
        while self.waiting and self.waiting[0][1] in released:
            step, _ = self.waiting.popleft()
            lasts = alone_ns(step, self.capacity)
            self.left += lasts
            if self.longest is None or lasts > self.longest[0]:
                self.longest = lasts, step

    def meet(
        self, at: int, alone: TemplateTiming, beside: Callable[[Step], TemplateTiming]
    ) -> TemplateTiming:
        """The shape of a turn that starts at `at`: as it is `alone`, or `beside` a reduction."""
        self.left = max(0, self.left - max(0, at - self.until))
        if not self.left or self.longest is None:
            return alone
        lasts, step = self.longest
        shape = beside(step)
        lost = shape.beside[DATA] - lasts
        through = max(1, shape.length - lost)
        if self.left < through // 2:
            self.left = 0
            return alone
        self.lost += lost * min(self.left, through) // through
        self.left = max(0, self.left - through)
        self.until = at + shape.length
        return shape


Meeting: TypeAlias = tuple[Group, int, int]
"""A kind of group, which one of it, and the how many-th collective of it."""


class _Closing:
    """What one stage does after its last pass, step by step."""

    def __init__(self, program: Program, stage: Stage) -> None:
        role = program.roles[stage.role]
        self.stage = stage
        self.steps = program.finish[role.stage]
        self.ready_after = program.ready_after[role.stage]
        self.copying = any(step.stream in (TO_HOST, FROM_HOST) for step in self.steps)
        self.durations = [alone_ns(step, program.capacity) for step in self.steps]
        self.kernels = stage.tails[COMPUTE]
        if stage.reductions is not None and stage.reductions.lost:
            # What passes have cost those that began beside them.
            begin = min(record[0] for record in stage.released.values())
            late = begin + stage.reductions.lost
            stage.tails[DATA] = late, begin, begin, DATA, stage.role, None
        self.records: list[Record] = []
        self.meetings: list[Meeting | None] = []
        """Of each step: whom it meets."""
        counts: Counter[Group] = Counter()
        for step in self.steps:
            group = role.groups.get(step.group)
            self.meetings.append(None if group is None else (step.group, group, counts[step.group]))
            counts[step.group] += 1

    @property
    def done(self) -> bool:
        """True after the last step."""
        return len(self.records) == len(self.steps)

    @property
    def meeting(self) -> Meeting | None:
        """Whom the next step meets; None when it is for itself."""
        return None if self.done else self.meetings[len(self.records)]

    @property
    def cause(self) -> Record:
        """What the next step waits for longest."""
        place = len(self.records)
        step, chunk = self.steps[place], self.ready_after[place]
        waits = [self.records[i] for i in step.after]
        if chunk is not None:
            waits.append(self.stage.released[chunk])
        elif not step.after and step.stream != COMPUTE:
            waits.append(self.kernels)
        waits.append(self.stage.tails[step.stream])
        return max(waits, key=lambda record: record[0])

    @property
    def duration(self) -> int:
        """Nanoseconds of the next step alone."""
        return self.durations[len(self.records)]

    def opens(self, place: int) -> int:
        """When what the passes leave lets a step begin."""
        step, chunk, stage = self.steps[place], self.ready_after[place], self.stage
        waits = [stage.tails[step.stream]]
        if chunk is not None:
            waits.append(stage.released[chunk])
        elif not step.after and step.stream != COMPUTE:
            waits.append(self.kernels)
        return max(record[0] for record in waits)

    def run(self, start: int, end: int) -> None:
        """The next step runs from start to end."""
        stage, cause, step = self.stage, self.cause, self.steps[len(self.records)]
        if step.stream == COMPUTE:
            idle = stage.tails[COMPUTE][0]
            if start > idle:
                name_wait(cause, (idle, start), stage.role, stage.spent)
            stage.spent[BUSY.get(step.name, KERNELS)] += end - start
        record = (end, start, cause[0], step.stream, stage.role, cause)
        stage.tails[step.stream] = record
        stage.closing.append((step.name, step.stream, start, end))
        self.records.append(record)

    def wait_until(self, end: int) -> None:
        """Name the time after the last kernel: own transfers, and else waiting for the others."""
        spent, now = self.stage.spent, self.stage.tails[COMPUTE][0]
        own = (r for r in self.records if r[3] in (DATA, TO_HOST, FROM_HOST, HOST))
        for late in sorted(own, key=lambda record: record[1]):
            begin = max(now, late[1])
            if late[0] > begin:
                spent[BUBBLE] += begin - now
                spent[WAITS[late[3]]] += late[0] - begin
                now = late[0]
        spent[BUBBLE] += end - now


def close(program: Program, stages: list[Stage]) -> int:
    """Close the step on all stages; its length. Those that meet start when the last has come, and
    end when the last is through. Copies to the host and back share its memory, with those of other
    stages, too: then all steps are played by events."""
    closings = [_Closing(program, stage) for stage in stages]
    if any(closing.copying for closing in closings):
        _play(program, closings)
    else:
        _walk(closings)
    if not all(closing.done for closing in closings):
        raise DeadlockError("the closing of some stage never ends")
    length = max(tail[0] - stage.begin for stage in stages for tail in stage.tails)
    for closing in closings:
        closing.wait_until(closing.stage.begin + length)
    return length


def _walk(closings: Sequence[_Closing]) -> None:
    """Run all steps, each with its links to itself."""
    members: dict[Meeting, list[_Closing]] = {}
    for closing in closings:
        for meeting in filter(None, closing.meetings):
            members.setdefault(meeting, []).append(closing)
    able = True
    while able:
        able = False
        for closing in closings:
            while not closing.done:
                meeting = closing.meeting
                together = [closing] if meeting is None else members[meeting]
                if any(other.meeting != meeting for other in together):
                    break
                start = max(other.cause[0] for other in together)
                end = max(start + other.duration for other in together)
                for other in together:
                    other.run(start, end)
                able = True


def _play(program: Program, closings: Sequence[_Closing]) -> None:
    """Run all steps as events have them."""
    graph = SmallGraph(program.wiring)
    places: list[list[int]] = []
    members: dict[Meeting, list[int]] = {}
    for closing in closings:
        own: list[int] = []
        last: dict[int, int] = {}
        role = closing.stage.role
        for place, (step, meeting) in enumerate(zip(closing.steps, closing.meetings, strict=True)):
            gate = graph.add(Step("opens", HOST, closing.opens(place), ()), role, ())
            before = {gate, *(own[i] for i in step.after), last.get(step.stream, gate)}
            last[step.stream] = graph.add(step, role, before)
            own.append(last[step.stream])
            if meeting is not None:
                members.setdefault(meeting, []).append(own[-1])
        places.append(own)
    played = play(graph.made([*members.values()]), program)
    for closing, own in zip(closings, places, strict=True):
        spans = zip(played.start[own].tolist(), played.end[own].tolist(), strict=True)
        for start, end in spans:
            closing.run(start, end)


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
        self.shapes: Sequence[TemplateTiming] = ()
        """Of each turn."""
        self.message_ns: Sequence[int] = ()
        """How long a message lasts that each turn sends."""
        self.settings: Sequence[int] = ()
        """Of each turn the position of its setting (`twin.engine.pass_dependencies.Settings`)."""
        self.reductions: Reductions | None = None
        self.copying: Copies | None = None
        self.copies: Sequence[Copy] = ()
        """What each turn sends to the host and fetches, where activations go there."""
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

    def gather(self, receive: TemplateTiming, arrival: Record) -> Record:
        """Bring a scattered message together."""
        (step,), (duration,) = receive.steps, receive.durations
        cause = max(arrival, self.tails[step.stream], key=lambda record: record[0])
        start = cause[0]
        record = start + duration, start, start, step.stream, self.role, cause
        self.tails[step.stream] = record
        return record

    def weights(self, kind: Pass, chunk: int) -> Record:
        """What the opening of the step has to bring before a pass."""
        return self.opened.pop(chunk, BEGINNING) if self.opened and kind == "F" else BEGINNING

    def fall(self, outcome: Outcome, at: int, kinds: Passes) -> None:
        """Take over what a template leaves that started at `at`."""
        if self.ramp[0] is None and any(kind != "F" for kind, *_ in kinds):
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

    def hold_host(self, until: int) -> None:
        """The host issues nothing before: at most a pass ahead, it goes on to the next turn when
        this one has begun, or when it has seen a message."""
        if until > self.tails[HOST][0]:
            self.tails[HOST] = until, until, until, COMPUTE, self.role, None

    def see(self, turn: Turn, arrivals: Sequence[Record]) -> None:
        """The host waits for the messages of a turn."""
        for lane, arrival in zip(turn[2], arrivals, strict=True):
            if lane[0] != NOWHERE:
                self.hold_host(arrival[0])

    def known(self, last: int | Record, by: int) -> Record:
        """An operation of the template that was just taken over, which started at `by`: the last of
        a stream, or one that a stream went on from."""
        return self.tails[last] if isinstance(last, int) else moved(last, by, self.role)

    def copied(self, offload: Offload, period: Period | None, extra: int) -> float:
        """Bytes that go out in the whole step."""
        first, last = 0, 0
        if period is not None:
            first = period.windows[self.role]
            last = first + period.length_ns
        times: Counter[int] = Counter()
        for (out, *_), start in zip(self.copies, self.starts, strict=True):
            if out is not None:
                times[out[0]] += 1 + extra if first <= start < last else 1
        return sum(offload.bytes[chunk] * count for chunk, count in times.items())

    def note(self, actions: int, idle: int, at: int, mark: int) -> None:
        """Note a turn for the proof; `left` has held times of it from `mark` on."""
        self.marks += [mark] * actions
        self.left += (idle, at)
        self.before.append(tuple(self.spent))


class Copies:
    """Activations of one stage on their way to the host and back, as `twin.engine.blocks` has them;
    a copy lasts what it lasts beside the turn that it starts with."""

    def __init__(self) -> None:
        self.out: dict[Key, Record] = {}
        self.back: dict[Key, Record] = {}
        self.last: list[Record] = [BEGINNING, BEGINNING]

    def begin(self, stage: Stage) -> tuple[Record, Record]:
        """Before a turn; what its forward and its backward wait for."""
        _, _, beside, needed = stage.copies[stage.place]
        if beside is not None:
            at = max(stage.tails[COMPUTE][0], self.out[beside][0])
            self.back[beside] = self._copy(stage, FROM_HOST, at, stage.shapes[stage.place])
        return self.last[0], BEGINNING if needed is None else self.back.pop(needed)

    def end(self, stage: Stage, made: Record) -> None:
        """After a turn, whose forward has ended."""
        out, forward, _, _ = stage.copies[stage.place]
        if out is not None:
            self.out[out] = self._copy(stage, TO_HOST, made[0], stage.shapes[stage.place + 1])
        if forward:
            self.last = [self.last[1], BEGINNING if out is None else self.out[out]]

    def _copy(self, stage: Stage, stream: int, ready: int, beside: TemplateTiming) -> Record:
        start = max(ready, stage.tails[stream][0])
        record = start + beside.beside[stream], start, start, stream, stage.role, None
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
