"""The longest path where reductions of gradients are under way while the next turn runs on the same
role, and share its links and its SMs.

Then turns are taken in the order of time, since messages that wait for those reductions hold up
other stages: what a turn leaves under way ends later when it meets the next one
(`twin.engine.contention`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from twin.engine.contention import PARTS, Contention, Contentions, remaining, whole
from twin.engine.pass_dependencies import NOWHERE, Copy, Key, Lane, Passes, Turn, Turns, chunk_of
from twin.engine.path_stage import Stage
from twin.engine.program import COMPUTE, DATA, Step
from twin.engine.template_timing import (
    BEGINNING,
    Outcome,
    Record,
    TemplateTiming,
    TemplateTimings,
    alone_ns,
    name_wait,
)

MANY: Final = 8
"""Reductions under way beyond which more are queued."""
FAR: Final = 4
"""How many times the length of a turn the reductions last that may meet it. With 2 a step of ZB-H2
under ZeRO-2, half of which waits for reductions, came out 5 % too long."""


@dataclass(slots=True, eq=False)
class Transfer:
    """A transfer under way, or queued, when its role goes on; `parts` of it are left at `start`."""

    step: Step
    start: int
    end: int
    after: tuple[Transfer, ...] = ()
    """Others that it waits for, on other streams."""
    parts: float = PARTS
    gives: int = NOWHERE
    """The result that is there when it ends."""
    closes: int = NOWHERE
    """The chunk whose last backward it ends."""

    def left(self, now: int) -> float:
        """The parts of the whole step that are left."""
        return remaining(self.parts, self.start, self.end, now)

    def record(self, role: int) -> Record:
        """The same for those who wait for it."""
        return self.end, self.start, self.start, self.step.stream, role, None


@dataclass(slots=True)
class _Role:
    """A stage on its way, and what is under way there."""

    stage: Stage
    under_way: list[Transfer] = field(default_factory=list[Transfer])
    arrivals: list[Record] = field(default_factory=list[Record])
    """Of the next turn, once all are known."""
    out: list[Transfer | None] = field(default_factory=lambda: [None, None])
    """The copies out of the last two forwards."""
    back: dict[Key, Transfer] = field(default_factory=dict[Key, Transfer])
    """Activations on their way back, until their backward takes them."""
    queued: deque[Transfer] = field(default_factory=deque[Transfer])
    """Reductions too far back in their stream to meet the next turn, which nobody waits for."""
    queued_ns: int = 0
    """How long they last, if nothing else runs."""


class Crowded:
    """The turns of all stages, in the order of time."""

    def __init__(
        self,
        contentions: Contentions,
        shapes: TemplateTimings,
        turns: Turns,
        stages: Sequence[Stage],
        *,
        proving: bool,
    ) -> None:
        self.contentions, self.program, self.turns = contentions, contentions.program, turns
        self.roles = [_Role(stage) for stage in stages]
        self.receive, self.proving = shapes.receive if len(stages) > 1 else None, proving
        self.results: list[Record | None] = [None] * turns.results
        self.waiting: dict[int, _Role] = {}
        """Result -> who waits for it."""
        self.queue: list[tuple[int, int, int, Transfer | None, _Role]] = []
        """Time, turns after transfers, a number; the transfer that ends, or none: a turn starts;
        and its role."""
        self.number = 0
        lonely = [shapes.of(passes) for passes in turns.passes]
        self.heads = [(shape.head, shape.lead) for shape in lonely]
        """Of every turn the stream of its first step, and the pass that this belongs to."""
        self.known: dict[tuple[int, int, int], Contention] = {}

    def run(self) -> None:
        """Take turns until there are none, or none that can start."""
        for role in self.roles:
            self._await(role)
        queue = self.queue
        while queue:
            now, _, _, transfer, role = heappop(queue)
            if transfer is None:
                self._start(role, now)
            elif transfer.end == now and self.results[transfer.gives] is None:
                self.results[transfer.gives] = transfer.record(role.stage.role)
                waiting = self.waiting.pop(transfer.gives, None)
                if waiting is not None:
                    self._await(waiting)

    def _call(self, at: int, role: _Role, transfer: Transfer | None) -> None:
        self.number += 1
        heappush(self.queue, (at, transfer is None, self.number, transfer, role))

    def _await(self, role: _Role) -> None:
        """Start the next turn of a role when all is there that it waits for, if that is known."""
        stage = role.stage
        if stage.place == len(stage.order):
            return
        place, _, lanes = stage.order[stage.place]
        arrivals: list[Record] = []
        for lane in lanes:
            arrival = BEGINNING if lane[0] == NOWHERE else self.results[lane[0]]
            if arrival is None:
                self.waiting[lane[0]] = role
                return
            arrivals.append(arrival)
        if self.program.schedule.staggered and stage.place == 0 and stage.role > 0:
            stage.begin_at(arrivals[0][0])
        passes = self.turns.passes[place]
        role.arrivals = self._held(role, passes, lanes, arrivals)
        stream, lead = self.heads[place]
        self._call(max(stage.tails[stream][0], role.arrivals[lead][0]), role, None)

    def _held(
        self, role: _Role, passes: Passes, lanes: Sequence[Lane], arrivals: Sequence[Record]
    ) -> list[Record]:
        """What passes wait for: their messages, copies between device and host, and weights."""
        stage, found = role.stage, list[Record]()
        needed = stage.copies[stage.place][3] if stage.copies else None
        back = None if needed is None else role.back.pop(needed)
        for one, lane, arrival in zip(passes, lanes, arrivals, strict=True):
            waits = [arrival, stage.weights(*one[:2])]
            if self.receive is not None and lane[0] != NOWHERE:
                waits[0] = stage.gather(self.receive, arrival)
            copy = role.out[0] if one[0] == "F" else None if one[0] == "W" else back
            if copy is not None:
                waits.append(copy.record(stage.role))
            found.append(max(waits, key=lambda record: record[0]))
        return found

    def _start(self, role: _Role, at: int) -> None:
        """Run a turn from now on."""
        stage = role.stage
        turn = stage.order[stage.place]
        passes, crowd = self.turns.passes[turn[0]], self._crowd(stage, turn)
        mark = len(stage.left)
        shape = self._meet(role, crowd, at)
        idle, first = stage.tails[COMPUTE][0], role.arrivals[shape.lead]
        if self.program.message.awaited:
            stage.see(turn, role.arrivals)
        outcome = shape.fall(at, stage.role, stage.tails, role.arrivals)
        if self.proving:
            stage.note(len(turn[2]), idle, at, mark)
        if at > idle and shape.rigid:
            name_wait(first, (idle, at), stage.role, stage.spent)
        stage.fall(outcome, at, passes)
        stage.hold_host(at + shape.first)
        self._leave(role, turn, crowd, (outcome, at))
        stage.place += 1
        self._await(role)

    def _crowd(self, stage: Stage, turn: Turn) -> Contention:
        """The next turn with what it sets off."""
        out, _, back, _ = self._copies(stage)
        key = turn[0], chunk_of(out), chunk_of(back)
        if key not in self.known:
            streams = tuple(lane[2] for lane in turn[2])
            self.known[key] = self.contentions.of(self.turns.passes[turn[0]], streams, key[1:])
        return self.known[key]

    def _copies(self, stage: Stage) -> Copy:
        """What a turn sends to the host, whether it has a forward, and what comes back beside the
        next turn, which starts when the kernels of this one are over."""
        if not stage.copies:
            return None, False, None, None
        out, forward, _, _ = stage.copies[stage.place]
        last = stage.place + 1 == len(stage.order)
        return out, forward, None if last else stage.copies[stage.place + 1][2], None

    def _meet(self, role: _Role, crowd: Contention, at: int) -> TemplateTiming:
        """The shape of a turn that starts at `at`, after what is under way, which goes on beside
        it."""
        stage = role.stage
        late = role.under_way = [one for one in role.under_way if one.end > at]
        if role.queued:
            self._recall(role, at, crowd.span)
        place = {id(one): number for number, one in enumerate(late)}
        left = tuple(
            (
                one.step,
                whole(one.left(at)),
                tuple(place[id(other)] for other in one.after if id(other) in place),
            )
            for one in late
        )
        meeting = crowd.after(left, self.program)
        for one, (start, end) in zip(late, meeting.late, strict=True):
            one.parts, one.start, one.end = one.left(at), at + start, at + end
            stage.tails[one.step.stream] = (*one.record(stage.role)[:5], BEGINNING)
            self._expect(role, one)
        if role.queued:
            end = stage.tails[DATA][0] + role.queued_ns
            stage.tails[DATA] = end, at, at, DATA, stage.role, BEGINNING
        stage.left.append(max((one.end for one in late), default=at) + role.queued_ns)
        return meeting.shape

    def _recall(self, role: _Role, at: int, span: int | None) -> None:
        """Let queued reductions run that a turn of such a length may meet, one at least; None:
        all."""
        busy = sum(self._lasts(one) for one in role.under_way if one.step.stream == DATA)
        while role.queued and (span is None or busy <= FAR * span):
            one = role.queued.popleft()
            lasts = self._lasts(one)
            one.start, one.end = at, at + lasts
            busy += lasts
            role.queued_ns -= lasts
            role.under_way.append(one)

    def _queue(self, role: _Role, late: list[Transfer]) -> list[Transfer]:
        """Queue reductions behind many others; what is left."""
        before = sum(one.step.stream == DATA for one in role.under_way)
        near: list[Transfer] = []
        for one in late:
            if one.step.stream == DATA and (role.queued or before >= MANY):
                role.queued.append(one)
                role.queued_ns += self._lasts(one)
            else:
                near.append(one)
        return near

    def _lasts(self, one: Transfer) -> int:
        return alone_ns(one.step, self.program.capacity)

    def _expect(self, role: _Role, one: Transfer) -> None:
        """See to what waits for the end of a transfer."""
        if one.gives != NOWHERE:
            self._call(one.end, role, one)
        if one.closes != NOWHERE:
            role.stage.released[one.closes] = one.record(role.stage.role)

    def _leave(
        self, role: _Role, turn: Turn, crowd: Contention, played: tuple[Outcome, int]
    ) -> None:
        """Note what a turn leaves under way, and who waits for it."""
        outcome, at = played
        by = at if outcome.alike else 0
        steps = crowd.under_way
        found: dict[int, Transfer] = {}
        for place, start, end in outcome.left:
            before = tuple(found[i] for i in crowd.steps[place].after if i in found)
            found[place] = Transfer(steps[place], by + start, by + end, before)
        over = role.stage.tails[COMPUTE][0]
        role.under_way += self._queue(role, [one for one in found.values() if one.end > over])
        for number, lane in enumerate(turn[2]):
            result, end, message = crowd.results[number], crowd.ends[number], crowd.messages[number]
            for place, last in ((result, outcome.results), (end, outcome.ends)):
                if place not in found:
                    record = role.stage.known(last[number], by)
                    found[place] = Transfer(steps[place], record[1], record[0])
            found[end].closes = lane[3]
            sent = found[result if message == NOWHERE else message]
            sent.gives = lane[1]
            for one in {id(one): one for one in (found[end], sent)}.values():
                self._expect(role, one)
        if role.stage.copies:
            self._copied(role, crowd, found)

    def _copied(self, role: _Role, crowd: Contention, found: dict[int, Transfer]) -> None:
        """Remember copies for those who wait for them."""
        _, forward, beside, _ = self._copies(role.stage)
        if forward:
            role.out = [role.out[1], found.get(crowd.out)]
        if beside is not None:
            role.back[beside] = found[crowd.back]
