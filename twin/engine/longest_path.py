"""The fast path: a step as the longest path through its Program, without a clock.

Every transfer has its links to itself, so an operation starts when the last thing that it waits for
has ended, and lasts what it lasts alone. What is walked is turns, whole passes, not operations: see
`twin.engine.shapes`.

Where no link is shared this is the event engine's answer to the nanosecond (where two things end in
the same one, a wait for both may be called after the other); where some are, it is off by what
sharing costs, mostly too fast. Roles are one per stage: what the ranks of one stage
agree on inside a pass holds them all up alike.

The trace holds one span per turn, from its first kernel to its last, and the closing operations.
What passes exchange inside, and messages, have no spans, and no critical path is found.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from twin.collectives import Traffic
from twin.engine.events import DeadlockError, Played
from twin.engine.graph import Graph
from twin.engine.program import (
    COMPUTE,
    DATA,
    FROM_HOST,
    STREAMS,
    TO_HOST,
    Group,
    Offload,
    Program,
)
from twin.engine.shapes import (
    BEGINNING,
    BUBBLE,
    KERNELS,
    WAITS,
    Outcome,
    Record,
    Shapes,
    alone_ns,
    bytes_ns,
    moved,
    name_wait,
    shifted,
)
from twin.engine.steady import Period, enough_microbatches, prove, worth_playing
from twin.engine.trace import CAUSES, Spans, Trace
from twin.engine.turns import NOWHERE, Copy, Key, Lane, Passes, Turn, copies, turns
from twin.engine.wiring import Flow, Wiring
from twin.schedules.action import Pass

OPTIMIZER: Final = CAUSES.index("optimizer")
NAMES: Final[dict[Pass, str]] = {
    "F": "forward",
    "B": "backward",
    "I": "backward_input",
    "W": "backward_weight",
}
PAIR: Final = "forward_and_backward"
"""Name of the span of a pair."""

Meeting: TypeAlias = tuple[Group, int, int]
"""A kind of group, which one of it, and the how many-th collective of it."""


def longest_path(program: Program, *, extrapolate: bool = True) -> Trace:
    """The step's trace. Long steps are walked until they are proven to repeat, unless `extrapolate`
    is off.

    Raises ValueError for a Program that plays every rank."""
    if len(program.roles) != program.stages:
        raise ValueError("the fast path takes one role per stage: lower(plan), not all ranks")
    # Nothing is shared here, so times settle as soon as where messages weigh nothing.
    alone = replace(program, message=replace(program.message, bytes=0.0))
    microbatches = enough_microbatches(alone) if extrapolate else None
    shapes = Shapes(program)
    while microbatches is not None:
        walk = _Walk(program, microbatches, shapes)
        walk.run()
        period = prove(walk.graph, walk.played, alone, microbatches)
        rest = 0 if period is None else (program.microbatches - microbatches) % period.microbatches
        if period is not None and rest == 0:
            return walk.trace(period)
        microbatches = worth_playing(alone, microbatches + rest if rest else 2 * microbatches)
    walk = _Walk(program, program.microbatches, shapes)
    walk.run()
    return walk.trace(None)


class _Stage:
    """One role on its way through its turns."""

    def __init__(self, role: int, order: Sequence[Turn]) -> None:
        self.role, self.order = role, order
        self.place = 0
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
        self.copies: _Copies | None = None
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

    def fall(self, outcome: Outcome, at: int, kinds: Passes) -> None:
        """Take over what a template leaves that started at `at`."""
        if self.ramp[0] is None and any(kind != "F" for kind, _ in kinds):
            self.ramp[0] = tuple(self.spent)
        for category, ns in outcome.spent:
            self.spent[category] += ns
        for stream, end, start, cause in outcome.tails:
            begin = at + start
            record = at + end, begin, begin, stream, self.role, moved(cause, at, self.role)
            self.tails[stream] = record
            self.left.append(at + end)
        if kinds[0][0] == "F":
            self.ramp[1] = tuple(self.spent)
        self.starts.append(at)
        self.ends.append(self.tails[COMPUTE][0])

    def copied(
        self, offload: Offload, period: Period | None, extra: int
    ) -> Iterator[tuple[float, float]]:
        """Bytes that go out after each turn, and how often in the whole step."""
        if self.copies is None:
            return
        for (out, *_), start in zip(self.copies.all, self.starts, strict=True):
            if out is not None:
                window = 0 if period is None else period.windows[self.role]
                repeats = period is not None and 0 <= start - window < period.length_ns
                yield offload.bytes[out[0]], 1.0 + extra * repeats

    def note(self, actions: int, idle: int, at: int, mark: int) -> None:
        """Note a turn for the proof; `left` has held times of it from `mark` on."""
        self.marks += [mark] * actions
        self.left += (idle, at)
        self.before.append(tuple(self.spent))


class _Copies:
    """Activations of one stage on their way to the host and back, as `twin.engine.graph` has them;
    every copy has its links to itself, but for the ranks of its role that copy at the same time."""

    def __init__(self, offload: Offload, rate: float, order: Sequence[Copy]) -> None:
        self.all, self.order = order, iter(order)
        self.durations = [offload.latency_ns + bytes_ns(size, rate) for size in offload.bytes]
        self.out: dict[Key, Record] = {}
        self.back: dict[Key, Record] = {}
        self.last: list[Record] = [BEGINNING, BEGINNING]
        self.now: Copy = (None, False, None, None)

    def begin(self, stage: _Stage) -> tuple[Record, Record]:
        """Before a turn; what its forward and its backward wait for."""
        self.now = next(self.order)
        _, _, beside, needed = self.now
        if beside is not None:
            at = max(stage.tails[COMPUTE][0], self.out[beside][0])
            self.back[beside] = self._copy(stage, FROM_HOST, at, beside[0])
        return self.last[0], BEGINNING if needed is None else self.back.pop(needed)

    def end(self, stage: _Stage, made: Record) -> None:
        """After a turn, whose forward has ended."""
        out, forward, _, _ = self.now
        if out is not None:
            self.out[out] = self._copy(stage, TO_HOST, made[0], out[0])
        if forward:
            self.last = [self.last[1], BEGINNING if out is None else self.out[out]]

    def _copy(self, stage: _Stage, stream: int, ready: int, chunk: int) -> Record:
        start = max(ready, stage.tails[stream][0])
        record = start + self.durations[chunk], start, start, stream, stage.role, None
        stage.tails[stream] = record
        stage.left.append(record[0])
        return record


class _Load:
    """Bytes on every link."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring, self.total = wiring, [0.0] * len(wiring.capacity)

    def add(self, flows: Iterable[Flow], times: float) -> None:
        """Add flows, so many times."""
        for size, route in flows:
            for link, weight in route:
                self.total[link] += size * weight * times


class _Walk:
    """A step of so many micro-batches, turn by turn over all stages."""

    def __init__(self, program: Program, microbatches: int, shapes: Shapes) -> None:
        self.program, self.microbatches = program, microbatches
        shape = program.stages, program.chunks_per_stage, microbatches
        # A frozen section has a hash, which pyright does not see.
        self.turns = turns(program.schedule, *shape)  # pyright: ignore[reportArgumentType]
        self.stages = [_Stage(*pair) for pair in enumerate(self.turns.stages)]
        for stage in self.stages:
            stage.open(program)
        if program.offload is not None:
            moved_by = copies(program.schedule, *shape)  # pyright: ignore[reportArgumentType]
            for stage, order in zip(self.stages, moved_by, strict=True):
                stage.copies = _Copies(program.offload, program.capacity["host"], order)
        self.shapes = [shapes.of(passes) for passes in self.turns.passes]
        self.receive = shapes.receive if program.stages > 1 else None
        self.results: list[Record | None] = [None] * self.turns.results
        self.waiting: dict[int, _Stage] = {}
        """Result -> the stage that waits for it."""
        message = program.message
        path = "far" if message.far else message.link
        self.message_ns = message.latency_ns + bytes_ns(message.bytes, program.capacity[path])
        self.proving = microbatches < program.microbatches
        self.step_ns = 0

    def run(self) -> None:
        """Walk to the end. Raises `DeadlockError` when some turn never comes."""
        able = [*self.stages]
        while able:
            self._advance(able.pop(), able)
        for stage in self.stages:
            if stage.place < len(stage.order):
                passes = self.turns.passes[stage.order[stage.place][0]]
                raise DeadlockError(f"{passes} of stage {stage.role} never starts")
            stage.marks.append(len(stage.left))
        self.step_ns = _close(self.program, self.stages)

    def _advance(self, stage: _Stage, able: list[_Stage]) -> None:
        """Take a stage's turns until one has to wait."""
        results, order = self.results, stage.order
        while stage.place < len(order):
            turn = order[stage.place]
            arrivals: list[Record] = []
            for lane in turn[2]:
                arrival = BEGINNING if lane[0] == NOWHERE else results[lane[0]]
                if arrival is None:
                    self.waiting[lane[0]] = stage
                    return
                arrivals.append(arrival)
            if self.receive is not None:
                pairs = zip(turn[2], arrivals, strict=True)
                arrivals = [self._gather(stage, *pair) for pair in pairs]
            stage.place += 1
            self._take(stage, turn, arrivals, able)

    def _gather(self, stage: _Stage, lane: Lane, arrival: Record) -> Record:
        """Bring a scattered message together."""
        if self.receive is None or lane[0] == NOWHERE:
            return arrival
        (step,), (duration,) = self.receive.steps, self.receive.durations
        cause = max(arrival, stage.tails[step.stream], key=lambda record: record[0])
        start = cause[0]
        record = start + duration, start, start, step.stream, stage.role, cause
        stage.tails[step.stream] = record
        return record

    def _take(self, stage: _Stage, turn: Turn, arrivals: list[Record], able: list[_Stage]) -> None:
        """Run a pass or a pair, and give its results to the stages that take them: `able` gets
        those that waited."""
        place, _, lanes = turn
        shape, tails, role, spent = self.shapes[place], stage.tails, stage.role, stage.spent
        kinds = self.turns.passes[place]
        copying = stage.copies
        mark = len(stage.left)
        if copying is not None or stage.opened:
            arrivals = self._held(stage, kinds, arrivals)
        idle, first = tails[COMPUTE][0], arrivals[shape.lead]
        at = max(tails[shape.head][0], first[0])
        outcome = shape.fall(at, role, tails, arrivals)
        if self.proving:
            stage.note(len(lanes), idle, at, mark)
        if at > idle and shape.rigid:
            name_wait(first, (idle, at), role, spent)
        stage.fall(outcome, at, kinds)
        ends = [
            tails[last] if isinstance(last, int) else shifted(last, at, role)
            for last in outcome.lanes
        ]
        for lane, end in zip(lanes, ends, strict=True):
            stage.left.append(self._give(stage, lane, end))
            if lane[1] in self.waiting:
                able.append(self.waiting.pop(lane[1]))
        if copying is not None:
            copying.end(stage, ends[0])

    def _held(self, stage: _Stage, kinds: Passes, arrivals: list[Record]) -> list[Record]:
        """What passes wait for: their messages, copies between device and host, and weights."""
        copied = (BEGINNING, BEGINNING) if stage.copies is None else stage.copies.begin(stage)
        found: list[Record] = []
        for (kind, chunk), arrival in zip(kinds, arrivals, strict=True):
            waits = [arrival]
            if kind == "F":
                waits += [copied[0], stage.opened.pop(chunk, BEGINNING)]
            elif kind in ("B", "I"):
                waits.append(copied[1])
            found.append(max(waits, key=lambda record: record[0]))
        return found

    def _give(self, stage: _Stage, lane: Lane, end: Record) -> int:
        """Send a result to the stage that takes it, or hand it over where that is the same; when it
        is there."""
        _, gives, stream, closed = lane
        if closed != NOWHERE:
            stage.released[closed] = end
        if stream != NOWHERE:
            start = max(end[0], stage.tails[stream][0])
            end = start + self.message_ns, start, start, stream, stage.role, None
            stage.tails[stream] = end
        if gives != NOWHERE:
            self.results[gives] = end
        return end[0]

    @property
    def played(self) -> Played:
        """The times that the proof of the steady state compares, as if of operations."""
        times = [time for stage in self.stages for time in stage.left]
        return Played(times, times, times, [], len(times), shared=False)

    @property
    def graph(self) -> Graph:
        """Where the times of each action begin."""
        bases = np.cumsum([0, *(len(stage.left) for stage in self.stages)]).tolist()
        return Graph(
            positions=[
                [base + mark for mark in stage.marks]
                for base, stage in zip(bases, self.stages, strict=False)
            ]
        )

    def trace(self, period: Period | None) -> Trace:
        """The step's trace, with the periods that were not walked."""
        program, extra, length, window = self.program, 0, 0, 0
        rows = [stage.spent for stage in self.stages]
        if period is not None:
            extra = (program.microbatches - self.microbatches) // period.microbatches
            length, window = period.length_ns, max(period.windows)
            rows = [_longer(stage, period, extra) for stage in self.stages]
        step_ns = self.step_ns + extra * length
        carried, busy = program.wiring.used(self._carried(period, extra), step_ns)
        spans, names = self._spans()
        return Trace(
            spans=spans,
            names=names,
            roles=tuple(role.name for role in program.roles),
            step_ns=step_ns,
            breakdown_ns=tuple(dict(zip(CAUSES, row, strict=True)) for row in rows),
            ramp_ns=tuple(dict(zip(CAUSES, _ramp(stage), strict=True)) for stage in self.stages),
            link_bytes=carried,
            link_busy=busy,
            events=sum(len(stage.order) for stage in self.stages),
            played_microbatches=self.microbatches,
            microbatches=program.microbatches,
            repeats=extra + 1,
            window_start=window,
            window_end=window + length,
        )

    def _carried(self, period: Period | None, extra: int) -> list[float]:
        """Bytes that each link carries per step."""
        load = _Load(self.program.wiring)
        scale = self.program.microbatches / self.microbatches
        for stage in self.stages:
            self._own(stage, load, scale)
            self._sent(stage, load, scale)
            if stage.copies is not None and self.program.offload is not None:
                ports = load.wiring.ports[stage.role]
                for size, times in stage.copied(self.program.offload, period, extra):
                    load.add(((size, ports.to_host), (size, ports.from_host)), times)
        return load.total

    def _own(self, stage: _Stage, load: _Load, scale: float) -> None:
        """Add what a role's own ports carry."""
        program, role = self.program, stage.role
        for place, count in Counter(turn[0] for turn in stage.order).items():
            load.add(load.wiring.flows(self.shapes[place].sends, role), count * scale)
        if self.receive is not None:
            taken = sum(lane[0] != NOWHERE for turn in stage.order for lane in turn[2])
            load.add(load.wiring.flows(self.receive.sends, role), taken * scale)
        opening = program.opening[role] if program.opening else ()
        once = (step.traffic for step in (*opening, *program.finish[role]) if step.traffic)
        load.add(load.wiring.flows(sum(once, Traffic()), role), 1.0)

    def _sent(self, stage: _Stage, load: _Load, scale: float) -> None:
        """Add a role's messages to other stages."""
        program, stages = self.program, self.program.chunk_map.stage_of
        given = (lane[1] for turn in stage.order for lane in turn[2] if lane[2] != NOWHERE)
        taken = Counter(stages[number // self.microbatches % len(stages)] for number in given)
        message, peers = program.message, program.roles[stage.role].peers
        for peer, count in taken.items():
            ends = stage.role, peers[peer]
            flows = load.wiring.message(message.bytes, (message.link, message.far), ends)
            load.add(flows, count * scale)

    def _spans(self) -> tuple[Spans, tuple[str, ...]]:
        """One span per turn, and the closing operations, by role, stream and start; and the names
        that they refer to."""
        labels = [
            (NAMES[passes[0][0]] if len(passes) == 1 else PAIR, passes[0][1])
            for passes in self.turns.passes
        ]
        closing = [operation for stage in self.stages for operation in stage.closing]
        names = tuple(dict.fromkeys(name for name, *_ in (*labels, *closing)))
        number = {name: i for i, name in enumerate(names)}
        named = np.array([(number[name], chunk) for name, chunk in labels], dtype=np.int64)
        parts: list[NDArray[np.int64]] = []
        for stage in self.stages:
            order = np.array([turn[:2] for turn in stage.order], dtype=np.int64)
            role = np.full(len(order), stage.role)
            parts.append(
                np.column_stack(
                    (
                        role,
                        np.full(len(order), COMPUTE),
                        named[order[:, 0]],
                        order[:, 1],
                        stage.starts,
                        stage.ends,
                    )
                )
            )
            rows = [
                (stage.role, stream, number[name], -1, -1, start, end)
                for name, stream, start, end in stage.closing
            ]
            parts.append(np.array(rows, dtype=np.int64).reshape(-1, 7))
        table = np.concatenate(parts)
        table = table[table[:, 6] > table[:, 5]]
        table = table[np.lexsort((table[:, 5], table[:, 1], table[:, 0]))]
        role, stream, name, chunk, microbatch, start, end = table.T
        spans = Spans(
            role=role.astype(np.int32),
            stream=stream.astype(np.int8),
            name=name.astype(np.int32),
            chunk=chunk.astype(np.int32),
            microbatch=microbatch.astype(np.int32),
            start=start.copy(),
            end=end.copy(),
        )
        return spans, names


def _ramp(stage: _Stage) -> list[int]:
    """How a role spends its warm-up and its cool-down: before its first backward, and after the
    last kernel of its last forward."""
    spent = tuple(stage.spent)
    first, last = (spent if mark is None else mark for mark in stage.ramp)
    # Where forwards are over before the first backward, nothing is steady.
    last = max(first, last, key=sum)
    return [early + end - late for early, end, late in zip(first, spent, last, strict=True)]


def _longer(stage: _Stage, period: Period, extra: int) -> list[int]:
    """How a role spends the step when its steady period comes so many times more."""
    window = period.windows[stage.role]
    opened = [0, *stage.ends]  # where each turn's time begins: at the end of the kernel before it
    first, last = (bisect_left(opened, at) for at in (window, window + period.length_ns))
    early, late = stage.before[first], stage.before[last]
    return [
        total + extra * (after - before)
        for total, before, after in zip(stage.spent, early, late, strict=True)
    ]


class _Closing:
    """What one stage does after its last pass, step by step."""

    def __init__(self, program: Program, stage: _Stage) -> None:
        role = program.roles[stage.role]
        self.stage = stage
        self.steps = program.finish[role.stage]
        self.ready_after = program.ready_after[role.stage]
        self.durations = [alone_ns(step, program.capacity) for step in self.steps]
        self.kernels = stage.tails[COMPUTE]
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

    def run(self, start: int, end: int) -> None:
        """The next step runs from start to end."""
        stage, cause, step = self.stage, self.cause, self.steps[len(self.records)]
        if step.stream == COMPUTE:
            idle = stage.tails[COMPUTE][0]
            if start > idle:
                name_wait(cause, (idle, start), stage.role, stage.spent)
            stage.spent[OPTIMIZER if step.name == "optimizer" else KERNELS] += end - start
        record = (end, start, cause[0], step.stream, stage.role, cause)
        stage.tails[step.stream] = record
        stage.closing.append((step.name, step.stream, start, end))
        self.records.append(record)

    def wait_until(self, end: int) -> None:
        """Name the time after the last kernel: own transfers, and else waiting for the others."""
        spent, now = self.stage.spent, self.stage.tails[COMPUTE][0]
        own = (r for r in self.records if r[3] in (DATA, TO_HOST, FROM_HOST))
        for late in sorted(own, key=lambda record: record[1]):
            begin = max(now, late[1])
            if late[0] > begin:
                spent[BUBBLE] += begin - now
                spent[WAITS[late[3]]] += late[0] - begin
                now = late[0]
        spent[BUBBLE] += end - now


def _close(program: Program, stages: list[_Stage]) -> int:
    """Close the step on all stages; its end. Those that meet start when the last has come, and end
    when the last is through."""
    closings = [_Closing(program, stage) for stage in stages]
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
    if not all(closing.done for closing in closings):
        raise DeadlockError("the closing of some stage never ends")
    end = max(tail[0] for stage in stages for tail in stage.tails)
    for closing in closings:
        closing.wait_until(end)
    return end
