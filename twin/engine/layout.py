"""What the roles of each stage do, operation by operation, in the schedule's order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from twin.engine.graph import Indices, row_starts
from twin.engine.overlap import paired
from twin.engine.program import (
    COMPUTE,
    DATA,
    FROM_HOST,
    SEND_BACKWARD,
    SEND_FORWARD,
    STREAMS,
    TO_HOST,
    Program,
    Step,
    send_stream,
)
from twin.engine.templates import Columns, Steps, Table, Turn
from twin.planning.offload import offloaded
from twin.schedules.base import Action, Pass, ends_of

Result: TypeAlias = tuple[str, int, int]
"""What a pass gives: pass, chunk, micro-batch."""

LANE, BUCKET = 1, 2
"""Bits of what an operation of a block is: of its second pass; of no micro-batch."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The operations of a role of one stage, numbered from 0."""

    step: Indices
    """Its place in the table of steps."""
    chunk: Indices
    microbatch: Indices
    waits: Indices
    targets: NDArray[np.int64]
    """By operation, how many wait for it."""
    target: NDArray[np.int64]
    """Those that do, and the stage of each."""
    target_stage: NDArray[np.int64]
    marks: NDArray[np.int64]
    """The first operation of each action, in order, and one past the last."""
    sending: NDArray[np.int64]
    """The steps among them that send something through their role's ports."""
    grouped: dict[str, NDArray[np.int64]]
    """By group, those that start together with its other members'."""
    messages: dict[int, NDArray[np.int64]]
    """By the stage they go to."""
    copies: dict[tuple[int, int], NDArray[np.int64]]
    """By stream and chunk."""

    @property
    def size(self) -> int:
        """Operations."""
        return len(self.step)


@dataclass(frozen=True, slots=True)
class Layout:
    """All stages, and the table of their steps."""

    table: Table
    stages: list[Stage]


def laid_out(program: Program, microbatches: int) -> Layout:
    """A step of so many micro-batches."""
    made = _Layout(program)
    order = program.schedule.order(program.stages, program.chunks_per_stage, microbatches)
    stages = [_Role(made, stage, actions) for stage, actions in enumerate(order)]
    for stage in stages:
        stage.run()
    return Layout(made.table, _finished(made, stages))


class _Layout:
    """What the stages of a Program share."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.table = Table()
        self.opening = [self.table.add(template) for template in program.opening]
        self.finish = [self.table.add(template) for template in program.finish]
        self.receive = self.table.add(program.receive)
        self.messages = {
            stream: self.table.add((Step(STREAMS[stream], stream, program.message.latency_ns, ()),))
            for stream in (SEND_FORWARD, SEND_BACKWARD)
        }
        self.copies = {
            stream: self.table.add((Step(STREAMS[stream], stream, delay, ()),))
            for stream in (TO_HOST, FROM_HOST)
            if program.offload
            for delay in (program.offload.latency_ns,)
        }
        self.kinds: list[tuple[int, ...]] = [()]
        """Rows of bits; the first: nothing is set."""
        self.chunks = program.chunk_map
        self.turns: dict[tuple[tuple[Pass, int, bool], ...], Turn] = {}
        """Passes and pairs by what they run."""
        self.arrivals: dict[Result, tuple[int, int]] = {}
        """The stage and operation whose end brings a pass's result to where it is needed."""

    def turn(self, key: tuple[tuple[Pass, int, bool], ...]) -> Turn:
        """The columns of a pass or a pair; of each pass its chunk, and whether it is an end."""
        if key in self.turns:
            return self.turns[key]
        program = self.program
        templates = [program.template(*one) for one in key]
        steps, lanes = templates[0], (0,) * len(templates[0])
        if len(key) == 2:
            forward, backward = templates
            limits = program.capacity, program.sync_ns, program.beside
            pair = paired(forward, backward, *limits)
            steps, lanes = pair.steps, pair.lanes
        by_bucket = any(end and (kind, chunk) in program.ends for kind, chunk, end in key)
        bits = tuple(
            lane * LANE + (by_bucket and step.stream == DATA) * BUCKET
            for step, lane in zip(steps, lanes, strict=True)
        )
        if any(bits):
            self.kinds.append(bits)
        number = len(self.kinds) - 1 if any(bits) else 0
        self.turns[key] = Turn.of(self.table.add(steps), lanes, number)
        return self.turns[key]

    def source(self, action: Action) -> tuple[str, int] | None:
        """The pass, and its chunk, whose result this one needs from the neighbouring chunk."""
        if action.kind == "W":
            return None
        forward = action.kind == "F"
        chunk = (self.chunks.before if forward else self.chunks.after)[action.chunk]
        return None if chunk is None else ("F" if forward else "B", chunk)


class _Role:
    """Lays out what a role of one stage does."""

    def __init__(self, layout: _Layout, stage: int, order: Sequence[Action]) -> None:
        self.layout, self.program, self.stage, self.order = layout, layout.program, stage, order
        self.gathers = bool(self.program.receive) and self.program.stages > 1
        self.size = 0
        self.blocks: list[int] = []
        """Of each: columns, kinds, then chunk and micro-batch of its passes."""
        self.edges: list[int] = []
        """Before and after, in turn."""
        self.needs: list[tuple[Result, int]] = []
        self.marks: list[int] = []
        self.messages: dict[int, list[int]] = {}
        self.copies: dict[tuple[int, int], list[int]] = {}
        self.tails: dict[int, int] = {}
        self.begun: int | None = None
        """The first operation of the last turn."""
        self.ends: frozenset[Action] = frozenset()
        """First forwards and last backwards, where they differ."""

    def edge(self, before: int, after: int) -> None:
        """`after` waits for `before`."""
        self.edges += (before, after)

    def run(self) -> None:
        """Lay out all that the role does."""
        order = self.order
        opened, released = self._open(), dict[int, int]()
        self.ends = ends_of(order) if self.program.ends else frozenset()
        copies = _Copies(self, order)
        actions = iter(order)
        for action in actions:
            both = (action, next(actions)) if action.paired else (action,)
            self.marks += [self.size] * len(both)
            copies.begin(both)
            held = [copies.needed(one) for one in both]
            for one, before in zip(both, held, strict=True):
                if one.kind == "F" and one.chunk in opened:
                    before.append(opened.pop(one.chunk))
            ends = self._take(both, held)
            copies.end(both, ends)
            for one, end in zip(both, ends, strict=True):
                if one.kind in "BW":
                    released[one.chunk] = end
        self.marks.append(self.size)
        self._finish(released)

    def append(self, columns: Columns, both: Sequence[Action], kinds: int = 0) -> int:
        """Append an instance of a template; the position of its first operation."""
        base, tails, edges = self.size, self.tails, self.edges
        self.size += columns.size
        one, other = both[0], both[-1]
        self.blocks += (
            columns.number,
            kinds,
            one.chunk,
            one.microbatch,
            other.chunk,
            other.microbatch,
        )
        for stream, offset in columns.first:
            if stream in tails:
                edges += (tails[stream], base + offset)
        for stream, offset in columns.last:
            tails[stream] = base + offset
        return base

    def _open(self) -> dict[int, int]:
        """Append what opens the step; by chunk the operation that its first forward waits for."""
        if not self.program.opening:
            return {}
        chunks = self.program.opens[self.stage]
        base = self.append(self.layout.opening[self.stage], (Action("F", -1, -1),))
        return {chunk: base + place for place, chunk in enumerate(chunks)}

    def _take(self, both: tuple[Action, ...], held: list[list[int]]) -> list[int]:
        """Append a pass or a pair, block by block, with the messages of each, and let each wait for
        what holds it up; the positions of their last operations."""
        gathers = [self._gather(action) if self.gathers else None for action in both]
        ends = self.ends
        turn = self.layout.turn(
            tuple([(one.kind, one.chunk, bool(ends) and one in ends) for one in both])
        )
        base, issue = self.append(turn.columns, both, turn.kinds), turn.columns.issue
        if issue is not None and self.begun is not None:
            # The host is at most a pass ahead.
            self.edge(self.begun, base + issue)
        self.begun = base + turn.begin
        for action, gather, before, begins in zip(both, gathers, held, turn.roots, strict=True):
            first = [base + i for i in begins]
            if self.program.message.awaited and issue is not None:
                first.append(base + issue)
            self._receive(action, gather, first)
            for op in before:
                for root in first:
                    self.edge(op, root)
        for action, result in zip(both, turn.results, strict=True):
            self._send(action, base + result)
        return [base + end for end in turn.ends]

    def _gather(self, action: Action) -> int | None:
        """Append what brings a scattered message together, where messages are scattered."""
        if self.layout.source(action) is None:
            return None
        return self.append(self.layout.receive, (action,))

    def _receive(self, action: Action, gather: int | None, begins: list[int]) -> None:
        """The pass, or the gather before it, waits for the result that it needs."""
        source = self.layout.source(action)
        if source is None:
            return
        if gather is not None:
            for root in begins:
                self.edge(gather, root)
        key = (*source, action.microbatch)
        self.needs += [(key, after) for after in (begins if gather is None else [gather])]

    def _send(self, action: Action, end: int) -> None:
        """Send the result to the stage that runs the next pass, or hand it over where that is the
        same stage."""
        if action.kind == "W":
            return
        forward, chunks, own = action.kind == "F", self.layout.chunks, self.stage
        target = (chunks.after if forward else chunks.before)[action.chunk]
        if target is None:
            return
        stage = chunks.stage_of[target]
        key = "F" if forward else "B", action.chunk, action.microbatch
        if stage != own:
            stream = send_stream(own, stage, self.program.stages, forward=forward)
            op = self.append(self.layout.messages[stream], (action,))
            self.edge(end, op)
            self.messages.setdefault(stage, []).append(op)
            end = op
        self.layout.arrivals[key] = own, end

    def copy(self, stream: int, action: Action) -> int:
        """Append a copy of a pass's activations between the device and the host."""
        op = self.append(self.layout.copies[stream], (action,))
        self.copies.setdefault((stream, action.chunk), []).append(op)
        return op

    def _finish(self, released: dict[int, int]) -> None:
        """Append what closes the step."""
        program, stage, end = self.program, self.stage, self.tails[COMPUTE]
        base = self.append(self.layout.finish[stage], (Action("B", -1, -1),))
        steps = zip(program.finish[stage], program.ready_after[stage], strict=True)
        for op, (step, chunk) in enumerate(steps, base):
            if chunk is not None:
                self.edge(released[chunk], op)
            elif not step.after and step.stream != COMPUTE:
                self.edge(end, op)


class _Copies:
    """The activations of one role on their way to the host and back: out under the next forward,
    which the one after it waits for; back from the start of the backward before theirs on."""

    def __init__(self, role: _Role, order: Sequence[Action]) -> None:
        self.role = role
        away = offloaded(order) if role.program.offload else frozenset[tuple[int, int]]()
        self.away = away
        backwards = [one for one in order if one.kind in ("B", "I")] if away else []
        self.coming = {
            (now.chunk, now.microbatch): after
            for now, after in pairwise(backwards)
            if (after.chunk, after.microbatch) in away
        }
        """Backward -> the one after it, whose activations come back beside it."""
        self.out: dict[tuple[int, int], int] = {}
        self.back: dict[tuple[int, int], int] = {}
        self.last: list[int | None] = [None, None]
        """The copies out of the last two forwards."""

    def begin(self, both: Sequence[Action]) -> None:
        """Before an action: what the next backward needs starts to come back when this one's
        stream gets to it."""
        for one in both:
            if one.kind not in ("B", "I") or not self.coming:
                continue
            after = self.coming.get((one.chunk, one.microbatch))
            if after is None:
                continue
            role, key = self.role, (after.chunk, after.microbatch)
            before = role.tails.get(COMPUTE)
            op = role.copy(FROM_HOST, after)
            if before is not None:
                role.edge(before, op)
            role.edge(self.out[key], op)
            self.back[key] = op

    def needed(self, action: Action) -> list[int]:
        """The copies that an action waits for."""
        if action.kind == "F":
            first = self.last[0]
            return [] if first is None else [first]
        copy = self.back.pop((action.chunk, action.microbatch), None)
        return [] if copy is None or action.kind == "W" else [copy]

    def end(self, both: Sequence[Action], ends: Sequence[int]) -> None:
        """After an action: what a forward has made goes out."""
        for one, end in zip(both, ends, strict=True):
            if one.kind != "F":
                continue
            key, op = (one.chunk, one.microbatch), None
            if key in self.away:
                op = self.role.copy(TO_HOST, one)
                self.role.edge(end, op)
                self.out[key] = op
            self.last = [self.last[1], op]


# From blocks to operations.


@dataclass(slots=True)
class _Edges:
    """Edges that leave a stage's operations, beside those inside a template."""

    before: list[NDArray[np.int64]] = field(default_factory=list[NDArray[np.int64]])
    after: list[NDArray[np.int64]] = field(default_factory=list[NDArray[np.int64]])
    stage: list[int] = field(default_factory=list[int])

    def add(self, before: NDArray[np.int64], after: NDArray[np.int64], stage: int) -> None:
        """To operations of a stage."""
        self.before.append(before)
        self.after.append(after)
        self.stage.append(stage)


def _finished(layout: _Layout, roles: Sequence[_Role]) -> list[Stage]:
    edges = [_Edges() for _ in roles]
    for stage, role in enumerate(roles):
        pairs = np.array(role.edges, np.int64).reshape(-1, 2)
        edges[stage].add(pairs[:, 0], pairs[:, 1], stage)
    needed: list[NDArray[np.int64]] = []
    for stage, role in enumerate(roles):
        found = [(*layout.arrivals[key], after) for key, after in role.needs]
        rows = np.array(found, np.int64).reshape(-1, 3)
        needed.append(rows[:, 2])
        sources: list[int] = np.unique(rows[:, 0]).tolist()
        for source in sources:
            own = rows[rows[:, 0] == source]
            edges[source].add(own[:, 1], own[:, 2], stage)
    kinds = row_starts([len(row) for row in layout.kinds])
    bits = np.array([bit for row in layout.kinds for bit in row] or [0], np.int64)
    return [
        _stage(layout.table, role, edges[stage], needed[stage], (kinds, bits))
        for stage, role in enumerate(roles)
    ]


def _stage(
    table: Table,
    role: _Role,
    edges: _Edges,
    needed: NDArray[np.int64],
    kinds: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> Stage:
    steps = table.steps
    blocks = np.array(role.blocks, np.int64).reshape(-1, 6)
    sizes = np.diff(table.first)[blocks[:, 0]]
    block = np.repeat(np.arange(len(blocks)), sizes)
    place = np.arange(role.size) - row_starts(sizes)[block]
    step = (table.first[blocks[:, 0]][block] + place).astype(np.int32)
    bits = np.zeros(role.size, np.int64)
    marked = np.nonzero(blocks[:, 1][block])[0]
    bits[marked] = kinds[1][kinds[0][blocks[:, 1]][block[marked]] + place[marked]]
    lane = 2 * (bits & LANE)
    chunk, microbatch = blocks[block, 2 + lane], blocks[block, 3 + lane]
    microbatch[bits & BUCKET > 0] = -1
    targets, target, target_stage, waits = _targets(steps, step, edges, role.stage)
    waits += np.bincount(needed, minlength=role.size)
    return Stage(
        step=step,
        chunk=chunk.astype(np.int32),
        microbatch=microbatch.astype(np.int32),
        waits=waits.astype(np.int32),
        targets=targets,
        target=target,
        target_stage=target_stage,
        marks=np.array(role.marks, np.int64),
        sending=np.intersect1d(step, [*steps.traffic]).astype(np.int64),
        grouped={
            name: np.nonzero(steps.group[step] == code)[0] for code, name in enumerate(steps.groups)
        },
        messages={stage: np.array(ops, np.int64) for stage, ops in role.messages.items()},
        copies={key: np.array(ops, np.int64) for key, ops in role.copies.items()},
    )


def _targets(
    steps: Steps, step: Indices, edges: _Edges, stage: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """By operation how many wait for it, who, of which stage, and for how many it waits. Those of
    its template come first."""
    size = len(step)
    inside = np.diff(steps.after.first)[step]
    before = np.repeat(np.arange(size), inside)
    rank = np.arange(len(before)) - row_starts(inside)[before]
    local = before + steps.after.items[steps.after.first[step][before] + rank]
    leaving, arriving = np.concatenate(edges.before), np.concatenate(edges.after)
    goes_to = np.repeat(edges.stage, [len(part) for part in edges.after])
    order = np.argsort(leaving, kind="stable")
    outside, source = np.bincount(leaving, minlength=size), leaving[order]
    first = row_starts(inside + outside)
    target, target_stage = np.empty(first[-1], np.int64), np.full(first[-1], stage)
    target[first[before] + rank] = local
    places = first[source] + inside[source] + np.arange(len(order)) - row_starts(outside)[source]
    target[places], target_stage[places] = arriving[order], goes_to[order]
    waits = np.bincount(local, minlength=size) + np.bincount(edges.after[0], minlength=size)
    return inside + outside, target, target_stage, waits
