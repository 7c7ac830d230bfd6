"""The fast path: a step as the longest path through its Program, without a clock.

An operation starts when the last thing that it waits for has ended, and lasts what it lasts on a
role of its own. What is walked is turns, whole passes, not operations: see
`twin.engine.template_timing`. Copies to the host and back slow the turn that they start beside.
Where they also wait for one another (`copies_meet`), and where reductions of gradients that a turn
leaves under way meet the next ones (`reductions_meet`), `simulate` asks the event engine.

Where no link is shared this is the event engine's answer to the nanosecond (where two things end in
the same one, a wait for both may be called after the other); where some are, it leaves out what
other roles' transfers cost, and messages where no gradients are reduced beside them, so it is
mostly too fast: how far is measured by tests/benchmarks/test_fast_path.py. Roles are one per stage:
what the ranks of one stage agree on inside a pass holds them all up alike.

The trace holds one span per turn, from its first kernel to its last, and the closing operations.
What passes exchange inside, and messages, have no spans, and no critical path is found.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from twin.collectives.base import Traffic
from twin.engine.pass_dependencies import (
    NOWHERE,
    Lane,
    Passes,
    Setting,
    Turn,
    copies,
    settings,
    turns,
)
from twin.engine.path_stage import Copies, Load, Reductions, Stage, close
from twin.engine.played import DeadlockError, Played
from twin.engine.program import COMPUTE, DATA, SEND_FORWARD, Program, Step, parts
from twin.engine.steady import Period, enough_microbatches, prove, worth_playing
from twin.engine.template_timing import (
    BEGINNING,
    Record,
    TemplateTiming,
    TemplateTimings,
    alone_ns,
    moved,
    name_wait,
)
from twin.engine.trace import CAUSES, Spans, Trace
from twin.schedules.base import Pass

NAMES: Final[dict[Pass, str]] = {
    "F": "forward",
    "B": "backward",
    "I": "backward_input",
    "W": "backward_weight",
}
PAIR: Final = "forward_and_backward"
"""Name of the span of a pair."""
MUCH_MEMORY: Final = 0.25
"""Share of what the memory of sockets carries, mean over the step, from which copies may meet."""
EXPOSED: Final = 0.01
"""Share of a step that waits for copies from which it matters. OURS, both: of 253 random layouts
with offload none below them was off by more than 2.5 %, and some above them by 17 %."""


def longest_path(program: Program, *, extrapolate: bool = True) -> Trace:
    """The step's trace. Long steps are walked until they are proven to repeat, unless `extrapolate`
    is off.

    Raises ValueError for a Program that plays every rank."""
    if len(program.roles) != program.stages:
        raise ValueError("the fast path takes one role per stage: lower(plan), not all ranks")
    # Nothing is shared here, so times settle as soon as where messages weigh nothing.
    alone = replace(program, message=replace(program.message, bytes=0.0))
    microbatches = enough_microbatches(alone) if extrapolate else None
    known = TemplateTimings(program)
    while microbatches is not None:
        walk = _Walk(program, microbatches, known)
        walk.run()
        period = prove(walk.marks, walk.played, alone, microbatches)
        rest = 0 if period is None else (program.microbatches - microbatches) % period.microbatches
        if period is not None and rest == 0:
            return walk.trace(period)
        microbatches = worth_playing(alone, microbatches + rest if rest else 2 * microbatches)
    walk = _Walk(program, program.microbatches, known)
    walk.run()
    return walk.trace(None)


def copies_meet(walked: Trace) -> bool:
    """Whether passes wait for copies to the host or back while these use so much of the memory of
    sockets that copies of both directions, or of several stages, hold each other up."""
    exposed = max(row["exposed_offload"] for row in walked.breakdown_ns)
    memory = walked.link_busy.get("dram", 0.0)
    return memory >= MUCH_MEMORY and exposed >= EXPOSED * walked.step_ns


def reductions_meet(program: Program) -> bool:
    """Whether reductions that one turn leaves under way can meet transfers or kernels of the
    next."""
    steps = {id(template): template for template in program.passes.values()}.values()
    late = [step for template in steps for step in template if step.stream == DATA]
    if any(step.sms for step in late):
        return True
    paths = _paths(late)
    others = _paths([step for template in steps for step in template if step.stream != DATA])
    return bool(paths & (others | ({program.message.link} if program.message.bytes else set())))


def _paths(steps: Sequence[Step]) -> set[str]:
    return {path for step in steps if step.traffic for path in parts(step.traffic)}


class _Walk:
    """A step of so many micro-batches, turn by turn over all stages."""

    def __init__(self, program: Program, microbatches: int, known: TemplateTimings) -> None:
        self.program, self.microbatches = program, microbatches
        shape = program.stages, program.chunks_per_stage, microbatches
        # A frozen section has a hash, which pyright does not see.
        self.turns = turns(program.schedule, *shape)  # pyright: ignore[reportArgumentType]
        self.stages = [Stage(*pair) for pair in enumerate(self.turns.stages)]
        for stage in self.stages:
            stage.open(program)
        self.known = known
        self.settings: Sequence[Setting] = ()
        if program.offload is not None:
            moves = copies(program.schedule, *shape)  # pyright: ignore[reportArgumentType]
            for stage, order in zip(self.stages, moves, strict=True):
                stage.copies = order
        self._set()
        self.receive = self.known.receive if program.stages > 1 else None
        self.results: list[Record | None] = [None] * self.turns.results
        self.waiting: dict[int, Stage] = {}
        """Result -> the stage that waits for it."""
        self.proving = microbatches < program.microbatches
        self.staggered = program.schedule.staggered
        self.step_ns = 0

    def _set(self) -> None:
        """Give every turn its shape beside what the turn before has set off."""
        program = self.program
        shape = program.stages, program.chunks_per_stage, self.microbatches
        copied = program.offload is not None
        # A frozen section has a hash, which pyright does not see.
        beside = settings(program.schedule, *shape, copied=copied)  # pyright: ignore[reportArgumentType]
        self.settings = beside.all
        made = [self.known.of(self.turns.passes[place], others) for place, *others in beside.all]
        lonely = alone_ns(program.message.step(SEND_FORWARD), program.capacity)
        message_ns = [one.beside.get(SEND_FORWARD, lonely) for one in made]
        for stage, places in zip(self.stages, beside.stages, strict=True):
            stage.shapes = [made[place] for place in places]
            stage.message_ns = [*(message_ns[place] for place in places[1:]), lonely]
            stage.settings, stage.reductions = places, Reductions(program, stage.role)
            stage.copying = Copies() if copied else None

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
        self.step_ns = close(self.program, self.stages)

    def _advance(self, stage: Stage, able: list[Stage]) -> None:
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
            if self.staggered and stage.place == 0 and stage.role > 0:
                stage.begin_at(arrivals[0][0])
            if self.receive is not None:
                arrivals = [
                    arrival if lane[0] == NOWHERE else stage.gather(self.receive, arrival)
                    for lane, arrival in zip(turn[2], arrivals, strict=True)
                ]
            if self.program.message.awaited:
                stage.see(turn, arrivals)
            self._take(stage, turn, arrivals, able)
            stage.place += 1

    def _take(self, stage: Stage, turn: Turn, arrivals: list[Record], able: list[Stage]) -> None:
        """Run a pass or a pair, and give its results to the stages that take them: `able` gets
        those that waited."""
        place, _, lanes = turn
        shape, tails, role = stage.shapes[stage.place], stage.tails, stage.role
        kinds, copying = self.turns.passes[place], stage.copying
        mark = len(stage.left)
        if copying is not None or stage.opened:
            arrivals = self._held(stage, kinds, arrivals)
        idle, first = tails[COMPUTE][0], arrivals[shape.lead]
        at = max(tails[shape.head][0], first[0])
        reductions = stage.reductions
        if reductions is not None and reductions.left:
            shape = reductions.meet(at, shape, partial(self._beside, stage))
        outcome = shape.fall(at, role, tails, arrivals)
        if self.proving:
            stage.note(len(lanes), idle, at, mark)
        if at > idle and shape.rigid:
            name_wait(first, (idle, at), role, stage.spent)
        stage.fall(outcome, at, kinds)
        stage.hold_host(at + shape.first)
        by = at if outcome.alike else 0
        made = [
            tails[last] if isinstance(last, int) else moved(last, by, role)
            for last in outcome.results
        ]
        for number, lane in enumerate(lanes):
            if lane[3] != NOWHERE:
                stage.released[lane[3]] = last = stage.known(outcome.ends[number], by)
                if reductions is not None:
                    reductions.release(stage.released, last[0])
            stage.left.append(self._give(stage, lane, made[number]))
            if lane[1] in self.waiting:
                able.append(self.waiting.pop(lane[1]))
        if copying is not None:
            copying.end(stage, made[0])

    def _beside(self, stage: Stage, reduction: Step) -> TemplateTiming:
        """The shape of a stage's next turn beside a reduction."""
        place, *others = self.settings[stage.settings[stage.place]]
        return self.known.of(self.turns.passes[place], others, reduction)

    def _held(self, stage: Stage, kinds: Passes, arrivals: list[Record]) -> list[Record]:
        """What passes wait for: their messages, copies between device and host, and weights."""
        copied = (BEGINNING, BEGINNING) if stage.copying is None else stage.copying.begin(stage)
        found: list[Record] = []
        for (kind, chunk, _), arrival in zip(kinds, arrivals, strict=True):
            last = arrival
            if kind != "W":
                copy = copied[kind != "F"]
                last = copy if copy[0] > last[0] else last
            if stage.opened:
                weights = stage.weights(kind, chunk)
                last = weights if weights[0] > last[0] else last
            found.append(last)
        return found

    def _give(self, stage: Stage, lane: Lane, end: Record) -> int:
        """Send a result to the stage that takes it, or hand it over where that is the same; when it
        is there."""
        _, gives, stream, _ = lane
        if stream != NOWHERE:
            start = max(end[0], stage.tails[stream][0])
            end = start + stage.message_ns[stage.place], start, start, stream, stage.role, None
            stage.tails[stream] = end
        if gives != NOWHERE:
            self.results[gives] = end
        return end[0]

    @property
    def played(self) -> Played:
        """The times that the proof of the steady state compares, as if of operations."""
        times = np.array([time for stage in self.stages for time in stage.left], np.int64)
        return Played(times, times, times, times, len(times), shared=False)

    @property
    def marks(self) -> list[NDArray[np.int64]]:
        """Where the times of each action begin."""
        bases = np.cumsum([0, *(len(stage.left) for stage in self.stages)])
        return [
            base + np.array(stage.marks) for base, stage in zip(bases, self.stages, strict=False)
        ]

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
            ranks=tuple(role.ranks for role in program.roles),
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
        load = Load(self.program.wiring)
        scale = self.program.microbatches / self.microbatches
        for stage in self.stages:
            self._own(stage, load, scale)
            self._sent(stage, load, scale)
            if self.program.offload is not None:
                ports = load.wiring.ports[stage.role]
                size = stage.copied(self.program.offload, period, extra)
                load.add(((size, ports.to_host), (size, ports.from_host)), 1.0)
        return load.total

    def _own(self, stage: Stage, load: Load, scale: float) -> None:
        """Add what a role's own ports carry."""
        program, role = self.program, stage.role
        for place, count in Counter(turn[0] for turn in stage.order).items():
            steady: Passes = tuple((*one[:2], False) for one in self.turns.passes[place])
            load.add(load.wiring.flows(self.known.of(steady).sends, role), count * scale)
        if self.receive is not None:
            taken = sum(lane[0] != NOWHERE for turn in stage.order for lane in turn[2])
            load.add(load.wiring.flows(self.receive.sends, role), taken * scale)
        once = (step.traffic for step in program.once(role) if step.traffic)
        load.add(load.wiring.flows(sum(once, Traffic()), role), 1.0)

    def _sent(self, stage: Stage, load: Load, scale: float) -> None:
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


def _ramp(stage: Stage) -> list[int]:
    """How a role spends its warm-up and its cool-down: before its first backward, and after the
    last kernel of its last forward."""
    spent = tuple(stage.spent)
    first, last = (spent if mark is None else mark for mark in stage.ramp)
    # Where forwards are over before the first backward, nothing is steady.
    last = max(first, last, key=sum)
    return [early + end - late for early, end, late in zip(first, spent, last, strict=True)]


def _longer(stage: Stage, period: Period, extra: int) -> list[int]:
    """How a role spends the step when its steady period comes so many times more."""
    window = period.windows[stage.role]
    opened = [0, *stage.ends]  # where each turn's time begins: at the end of the kernel before it
    first, last = (bisect_left(opened, at) for at in (window, window + period.length_ns))
    early, late = stage.before[first], stage.before[last]
    return [
        total + extra * (after - before)
        for total, before, after in zip(stage.spent, early, late, strict=True)
    ]
