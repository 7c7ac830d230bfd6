"""What a role of each stage issues: its blocks, and which operations wait for which.

A stage's actions are columns of numbers, and so is all that follows from them. A turn is an action,
or the two of a pair. It issues up to nine blocks, each an instance of a template.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from twin.engine.graph import Ragged, row_starts
from twin.engine.host import counted
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
    Template,
    send_stream,
)
from twin.engine.templates import Passes, Table, Turn
from twin.planning.columns import Columns
from twin.schedules.base import Pass

Numbers: TypeAlias = NDArray[np.int64]

LANE, BUCKET = 1, 2
"""Bits of what an operation of a block is: of its second pass; of no micro-batch."""

BACK, GATHER, MAIN, SEND, OUT, BLOCKS = 0, 2, 4, 5, 7, 9
"""Blocks of a turn, in the order in which they are issued: copies back from the host, gathers of
messages, the passes, messages, copies to the host. All but the passes are two, one for each pass of
a pair."""
NOTHING: Final = -1
EDGES: Final = 1 << 20
"""More than the edges of any block."""
CHAINED: Final = 64
"""More than the streams of any template."""


class Shared:
    """What the stages of a Program share."""

    def __init__(self, program: Program, microbatches: int) -> None:
        self.program, self.microbatches = program, microbatches
        self.table = Table()
        self.opening = [self.table.add(template) for template in program.opening]
        self.finish = [self.table.add(template) for template in program.finish]
        self.receive = self.table.add(program.receive)
        message = program.message
        self.messages = {
            (stream, delay): self.table.add((Step(STREAMS[stream], stream, delay, ()),))
            for delay in dict.fromkeys(message.delays)
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
        self.turns: dict[tuple[int, ...], Turn] = {}
        """Passes and pairs by their templates, which chunks of the same layers share, and whether
        they hold buckets."""
        size = 2 * len(self.chunks.after) * microbatches
        self.arrivals = np.full((2, size), NOTHING)
        """By result, the stage and operation whose end brings it to where it is needed."""

    def turn(self, key: Passes, *, hosted: bool = False) -> Turn:
        """The columns of a pass or a pair; of each pass its chunk, and whether it is an end;
        `hosted`: with the host, even if nothing in it waits for that."""
        templates = [self.program.template(*one) for one in key]
        by_bucket = any(end and (kind, chunk) in self.program.ends for kind, chunk, end in key)
        known = (by_bucket, hosted, *map(id, templates))
        if known not in self.turns:
            self.turns[known] = self._made(templates, by_bucket=by_bucket, hosted=hosted)
        return self.turns[known]

    def _made(self, templates: Sequence[Template], *, by_bucket: bool, hosted: bool) -> Turn:
        steps, lanes = templates[0], (0,) * len(templates[0])
        if len(templates) == 2:
            program, (forward, backward) = self.program, templates
            limits = program.capacity, program.sync_ns, program.beside
            pair = paired(forward, backward, *limits)
            steps, lanes = pair.steps, pair.lanes
        if hosted:
            steps = counted(steps)
            lanes += lanes[-1:] * (len(steps) - len(lanes))
        bits = tuple(
            lane * LANE + (by_bucket and step.stream == DATA) * BUCKET
            for step, lane in zip(steps, lanes, strict=True)
        )
        if any(bits):
            self.kinds.append(bits)
        number = len(self.kinds) - 1 if any(bits) else 0
        return Turn.of(self.table.add(steps), lanes, number)

    def takes(self, kind: Pass, chunk: int) -> int:
        """The result that a pass of the first micro-batch needs from the neighbouring chunk."""
        chunks = self.chunks
        source = None if kind == "W" else (chunks.before if kind == "F" else chunks.after)[chunk]
        return NOTHING if source is None else self.gives(kind, source)

    def gives(self, kind: Pass, chunk: int) -> int:
        """The result of a pass of the first micro-batch; of a backward's halves the input's."""
        if kind == "W":
            return NOTHING
        return ((kind != "F") * len(self.chunks.after) + chunk) * self.microbatches

    def target(self, kind: Pass, chunk: int) -> int:
        """The stage that takes the result of a pass."""
        chunks = self.chunks
        other = None if kind == "W" else (chunks.after if kind == "F" else chunks.before)[chunk]
        return NOTHING if other is None else chunks.stage_of[other]

    def message(self, stage: int, target: int, kind: Pass) -> int:
        """The template of a message from one stage to another; within one there is none."""
        if target in (stage, NOTHING):
            return NOTHING
        stream = send_stream(stage, target, self.program.stages, forward=kind == "F")
        return self.messages[stream, self.program.message.between(stage, target).latency_ns].number


class Actions:
    """The ordered actions of a stage, in columns; a turn is one of them or the two of a pair."""

    def __init__(self, order: Columns, microbatches: int) -> None:
        self.order = order
        self.kind = np.array([kind for kind, _ in order.rows])[order.row]
        self.chunk = self.by_row(lambda _, chunk: chunk)
        self.microbatch = order.microbatch.astype(np.int64)
        self.key = self.chunk * microbatches + self.microbatch
        """Chunk and micro-batch as one number."""
        self.lane = np.append(0, order.paired[:-1].astype(np.int64))
        """1: the second of a pair."""
        self.turn = np.cumsum(1 - self.lane) - 1
        self.first = np.flatnonzero(self.lane == 0)
        """By turn, its first action, and its last."""
        self.last = np.append(self.first[1:], len(order)) - 1

    def of(self, *kinds: Pass) -> Numbers:
        """The places of actions of these kinds."""
        return np.flatnonzero(np.isin(self.kind, kinds))

    def by_row(self, told: Callable[[Pass, int], int]) -> Numbers:
        """A number per action, told by its kind and chunk."""
        return np.array([told(*row) for row in self.order.rows], np.int64)[self.order.row]

    def results(self, told: Callable[[Pass, int], int]) -> Numbers:
        """A result per action, told by its kind and chunk."""
        number = self.by_row(told)
        return np.where(number < 0, NOTHING, number + self.microbatch)

    def ends(self) -> NDArray[np.bool_]:
        """Which are the first forward or the last backward of their chunk."""
        found = np.zeros(len(self.kind), bool)
        for places in (self.of("F"), self.of("B", "W")[::-1]):
            found[places[np.unique(self.chunk[places], return_index=True)[1]]] = True
        return found


class StageBlocks:
    """What a role of one stage does: its blocks, and which operations wait for which."""

    def __init__(self, shared: Shared, stage: int, order: Columns) -> None:
        self.shared, self.program, self.stage = shared, shared.program, stage
        actions = self.actions = Actions(order, shared.microbatches)
        self.edges: list[tuple[Numbers, Numbers, Numbers]] = []
        """Before, after, and the order in which an operation releases those after it."""
        self.takes, self.gives = actions.results(shared.takes), actions.results(shared.gives)
        self.target = actions.by_row(shared.target)
        self.send = actions.by_row(self._message)
        self.sends = np.flatnonzero(self.send >= 0)
        self.turns, self.turn = self._turns()
        self.out, self.beside, self.back = self._copied()

    def run(self) -> None:
        """Lay out all that the role does, when all that there is to run is known."""
        self._place()
        self._chain()
        self._begin()
        self.ends = self._last(lambda one: one.ends)
        self._copy()
        self._send()
        self._finish()

    def _message(self, kind: Pass, chunk: int) -> int:
        return self.shared.message(self.stage, self.shared.target(kind, chunk), kind)

    def _turns(self) -> tuple[list[Turn], Numbers]:
        """What there is to run, in the order in which it comes, and by turn its place there."""
        actions, order = self.actions, self.actions.order
        ends = actions.ends() if self.program.ends else np.zeros(len(order), bool)
        code = 2 * order.row.astype(np.int64) + ends
        both = 2 * len(order.rows) * code[actions.first] + code[actions.last]
        _, place, number = np.unique(both, return_index=True, return_inverse=True)
        coming, keys = np.argsort(place), list[Passes]()
        for at in actions.first[place[coming]].tolist():
            pair = range(at, at + 1 + int(order.paired[at]))
            rows = [order.rows[int(order.row[i])] for i in pair]
            keys.append(tuple((*row, bool(ends[i])) for row, i in zip(rows, pair, strict=True)))
        found = [self.shared.turn(key) for key in keys]
        if any(one.columns.issue is not None for one in found):
            # Passes wait for a host that has issued those before, too.
            found = [self.shared.turn(key, hosted=True) for key in keys]
        return found, np.argsort(coming)[number]

    def _copied(self) -> tuple[Numbers, Numbers, Numbers]:
        """Forwards whose activations go to the host; backwards that others come back beside, and
        the backwards that need these."""
        actions, nothing = self.actions, np.zeros(0, np.int64)
        if not self.program.offload:
            return nothing, nothing, nothing
        out, backwards = actions.order.trips.forward, actions.of("B", "I")
        coming = np.isin(actions.key[backwards[1:]], actions.key[out])
        return out, backwards[:-1][coming], backwards[1:][coming]

    # Blocks.

    def _place(self) -> None:
        """All blocks in their order, and the first operation of each."""
        shared, actions, turns = self.shared, self.actions, len(self.turn)
        template, kinds = np.full((turns, BLOCKS), NOTHING), np.zeros((turns, BLOCKS), np.int64)
        template[:, MAIN] = np.array([one.columns.number for one in self.turns])[self.turn]
        kinds[:, MAIN] = np.array([one.kinds for one in self.turns])[self.turn]
        of = np.repeat(actions.first, BLOCKS).reshape(-1, BLOCKS, 1).repeat(2, axis=2)
        of[:, MAIN, 1] = actions.last
        for slot, by, whose, numbers in self._around():
            at = actions.turn[by], slot + actions.lane[by]
            template[at], of[at] = numbers, whose[:, None]
        opening = shared.opening[self.stage].number if shared.opening else NOTHING
        finish = shared.finish[self.stage].number
        self.template = np.concatenate(([opening], template.ravel(), [finish]))
        self.base = row_starts(np.where(self.template < 0, 0, shared.table.sizes[self.template]))
        # What opens and closes the step is of no action.
        whose = np.concatenate(([[-1, -1]], of.reshape(-1, 2), [[-1, -1]]))
        columns = [self.template, np.concatenate(([0], kinds.ravel(), [0]))]
        told = [np.append(column, -1) for column in (actions.chunk, actions.microbatch)]
        columns += [column[whose[:, lane]] for lane in range(2) for column in told]
        self.blocks = np.stack(columns, axis=1)
        self.marks = self.base[1 + BLOCKS * np.append(actions.turn, turns)]

    def _around(self) -> Iterator[tuple[int, Numbers, Numbers, Numbers | int]]:
        """What turns issue beside passes: the block, by which actions, for which, its template."""
        shared, sends = self.shared, self.sends
        if self.gathers:
            taking = np.flatnonzero(self.takes >= 0)
            yield GATHER, taking, taking, shared.receive.number
        yield SEND, sends, sends, self.send[sends]
        if shared.copies:
            yield OUT, self.out, self.out, shared.copies[TO_HOST].number
            yield BACK, self.beside, self.back, shared.copies[FROM_HOST].number

    @property
    def gathers(self) -> bool:
        """Whether messages are scattered, so that something brings them together."""
        return bool(self.program.receive) and self.program.stages > 1

    @property
    def size(self) -> int:
        """Operations."""
        return int(self.base[-1])

    def block(self, slot: int, actions: Numbers) -> Numbers:
        """The numbers of blocks of actions."""
        lane = 0 if slot == MAIN else self.actions.lane[actions]
        return 1 + BLOCKS * self.actions.turn[actions] + slot + lane

    def first(self, slot: int, actions: Numbers) -> Numbers:
        """The first operations of blocks of actions."""
        return self.base[self.block(slot, actions)]

    # Edges.

    def edge(self, before: Numbers, after: Numbers, block: Numbers, place: Numbers | int) -> None:
        """Operations of blocks wait for those before them. Of edges of one block `place` says which
        is first."""
        self.edges.append((before, after, block * EDGES + place))

    def _chain(self) -> None:
        """Streams are in order: what a block has first on a stream waits for the last before it."""
        present = np.flatnonzero(self.template >= 0)
        streams = self.shared.table.streams
        owner, item, place = streams.spread(self.template[present])
        block, stream = present[owner], streams.items[item]
        first, last = self.shared.table.reach[item].T
        op, end = self.base[block] + first, self.base[block] + last
        self.kernels = block[stream == COMPUTE], end[stream == COMPUTE]
        order = np.argsort(stream, kind="stable")
        same = stream[order[1:]] == stream[order[:-1]]
        before, after = order[:-1][same], order[1:][same]
        self.edge(end[before], op[after], block[after], place[after])

    def _begin(self) -> None:
        """Passes wait for the results that they take, or for what gathers these, and for weights;
        the host for the beginning of the turn before."""
        actions, every = self.actions, self.actions.first
        issues = [one.columns.issue for one in self.turns]
        main = self.first(MAIN, every)
        begun = main + np.array([one.begin for one in self.turns])[self.turn]
        issue = np.array([NOTHING if one is None else one for one in issues])[self.turn]
        at = np.flatnonzero(issue[1:] >= 0) + 1
        # The host is at most a pass ahead.
        self.edge(begun[at - 1], main[at] + issue[at], self.block(MAIN, every[at]), CHAINED)
        awaited = self.program.message.awaited
        self.roots = Ragged.of(
            [
                [*roots, *([] if issue is None or not awaited else [issue])]
                for one, issue in zip(self.turns, issues, strict=True)
                for roots in (one.roots[0], one.roots[-1])
            ]
        )
        taking = np.flatnonzero(self.takes >= 0)
        if self.gathers:
            gathers = self.first(GATHER, taking)
            self.needs = self.takes[taking], gathers
            self._hold(taking, gathers)
        else:
            owner, op, _ = self._begins(taking)
            self.needs = self.takes[taking[owner]], op
        if self.program.opening:
            forwards = actions.of("F")
            opens = [*dict(zip(self.program.opens[self.stage], count(), strict=False)).items()]
            for chunk, op in opens:
                own = forwards[actions.chunk[forwards] == chunk][:1]
                self._hold(own, np.full(len(own), op))

    def _begins(self, actions: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """The operations with which these passes begin: whose, which, and the how manieth."""
        rows = 2 * self.turn[self.actions.turn[actions]] + self.actions.lane[actions]
        owner, item, place = self.roots.spread(rows)
        return owner, self.first(MAIN, actions)[owner] + self.roots.items[item], place

    def _hold(self, actions: Numbers, ops: Numbers) -> None:
        """Passes wait for operations, each for its own."""
        owner, op, place = self._begins(actions)
        self.edge(ops[owner], op, self.block(MAIN, actions)[owner], CHAINED + 1 + place)

    def _last(self, told: Callable[[Turn], tuple[int, ...]]) -> Numbers:
        """An operation of each action, told by turn for each of its passes."""
        places = np.array([(told(one)[0], told(one)[-1]) for one in self.turns])
        every = np.arange(len(self.actions.kind))
        return self.first(MAIN, every) + places[self.turn[self.actions.turn], self.actions.lane]

    def _copy(self) -> None:
        """Copies to the host go out under the next forward, which the one after it waits for. They
        come back from the start of the backward before theirs on."""
        actions, out, forwards = self.actions, self.out, self.actions.of("F")
        gone = np.full(len(actions.kind), NOTHING)
        gone[out] = self.first(OUT, out)
        self.edge(self.ends[out], gone[out], self.block(OUT, out), CHAINED)
        held = forwards[2:][gone[forwards[:-2]] >= 0]
        self._hold(held, gone[forwards[:-2]][gone[forwards[:-2]] >= 0])
        back, block = self.first(BACK, self.beside), self.block(BACK, self.beside)
        kernel = self._kernel(block)
        known = kernel >= 0
        self.edge(kernel[known], back[known], block[known], CHAINED)
        left = np.full(len(self.shared.arrivals[0]), NOTHING)
        left[actions.key[out]] = gone[out]
        self.edge(left[actions.key[self.back]], back, block, CHAINED + 1)
        self._hold(self.back, back)

    def _kernel(self, block: Numbers) -> Numbers:
        """The last kernels before blocks."""
        blocks, ends = self.kernels
        at = np.searchsorted(blocks, block) - 1
        return np.where(at < 0, NOTHING, ends[at])

    def _send(self) -> None:
        """Results go to the stage that runs the next pass, or are there where that is the same."""
        op = self._last(lambda one: one.results)
        message = self.first(SEND, self.sends)
        self.edge(op[self.sends], message, self.block(SEND, self.sends), CHAINED)
        op[self.sends] = message
        given = self.target >= 0
        self.shared.arrivals[:, self.gives[given]] = np.full(given.sum(), self.stage), op[given]

    def _finish(self) -> None:
        """What closes the step waits for passes of its chunk, or for all."""
        program, stage, block = self.program, self.stage, np.array([len(self.template) - 1])
        backwards, (end,) = self.actions.of("B", "W"), self._kernel(block).tolist()
        pairs = self.actions.chunk[backwards], self.ends[backwards]
        released = dict(zip(*(column.tolist() for column in pairs), strict=True))
        steps = zip(program.finish[stage], program.ready_after[stage], strict=True)
        for op, (step, chunk) in enumerate(steps, int(self.base[-2])):
            before = end if chunk is None else released[chunk]
            if chunk is not None or (not step.after and step.stream != COMPUTE):
                self.edge(np.array([before]), np.array([op]), block, CHAINED)

    def waits(self) -> tuple[Numbers, Numbers]:
        """All edges, before and after, as operations release those after them."""
        before, after, when = (np.concatenate(column) for column in zip(*self.edges, strict=True))
        order = np.argsort(when, kind="stable")
        return before[order], after[order]

    def messages(self) -> dict[int, Numbers]:
        """By the stage they go to."""
        op, target = self.first(SEND, self.sends), self.target[self.sends]
        return {stage: op[target == stage] for stage in dict.fromkeys(target.tolist())}

    def copies(self) -> dict[tuple[int, int], Numbers]:
        """By stream and chunk."""
        chunk, ways = self.actions.chunk, ((TO_HOST, OUT, self.out), (FROM_HOST, BACK, self.back))
        found: dict[tuple[int, int], Numbers] = {}
        for stream, slot, of in ways:
            op = self.first(slot, of if slot == OUT else self.beside)
            for one in dict.fromkeys(chunk[of].tolist()):
                found[stream, one] = op[chunk[of] == one]
        return dict(sorted(found.items(), key=lambda pair: int(pair[1][0])))
