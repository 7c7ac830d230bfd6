"""Program to graph: every operation of a step, its stream, duration, and what it waits for.

Templates are unrolled in the schedule's order. The arrays are plain lists because the player
touches single elements millions of times. Edges inside a template are kept as offsets relative to
the operation, so that all instances share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from twin.collectives.traffic import Traffic
from twin.engine.link_map import Sent, sent
from twin.engine.overlap import paired
from twin.engine.program import (
    COMPUTE,
    DATA,
    FROM_HOST,
    HOST,
    SEND_FORWARD,
    STREAMS,
    TO_HOST,
    Program,
    Role,
    Step,
    Template,
    last_steps,
    roots,
    send_stream,
)
from twin.planning.offload import offloaded
from twin.schedules.base import Action, Pass, ends_of

Offsets = tuple[int, ...]


@dataclass(slots=True)
class Graph:
    """Operations in columns. `waits` counts what each has to wait for; `local` are its dependents
    inside the template as relative offsets, `remote` all others as absolute positions."""

    role: list[int] = field(default_factory=list[int])
    stream: list[int] = field(default_factory=list[int])
    name: list[str] = field(default_factory=list[str])
    chunk: list[int] = field(default_factory=list[int])
    microbatch: list[int] = field(default_factory=list[int])
    duration: list[int] = field(default_factory=list[int])
    flows: list[tuple[Sent, ...]] = field(default_factory=list[tuple[Sent, ...]])
    sms: list[int] = field(default_factory=list[int])
    """Held while the operation runs."""
    sm_bound: list[float] = field(default_factory=list[float])
    """Share of a kernel's time that SMs bound."""
    waits: list[int] = field(default_factory=list[int])
    local: list[Offsets] = field(default_factory=list[Offsets])
    remote: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    rendezvous: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """Operations that start together, keyed by each member."""
    positions: list[list[int]] = field(default_factory=list[list[int]])
    """Per role: the first operation of each action, in order, and one past the last."""

    def edge(self, before: int, after: int) -> None:
        """`after` waits for `before`."""
        self.remote.setdefault(before, []).append(after)
        self.waits[after] += 1


@dataclass(frozen=True, slots=True)
class _Columns:
    """A template as columns, ready to be appended many times."""

    stream: Offsets
    name: tuple[str, ...]
    duration: Offsets
    traffic: tuple[tuple[Traffic, bool] | None, ...]
    """What travels, and whether kernels slow it."""
    waits: Offsets
    local: tuple[Offsets, ...]
    roots: Offsets
    """Steps that wait for nothing in the template but their stream, but for the host's."""
    issue: int | None
    """The first step of the host."""
    first: tuple[tuple[int, int], ...]
    last: tuple[tuple[int, int], ...]
    grouped: tuple[tuple[int, str], ...]
    sms: Offsets
    sm_bound: tuple[float, ...]

    @staticmethod
    def of(template: Template) -> _Columns:
        dependents: list[list[int]] = [[] for _ in template]
        waits = [0] * len(template)
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for i, step in enumerate(template):
            before = set(step.after)
            if step.stream in last:
                before.add(last[step.stream])
            first.setdefault(step.stream, i)
            last[step.stream] = i
            waits[i] = len(before)
            for j in before:
                dependents[j].append(i - j)
        return _Columns(
            stream=tuple(s.stream for s in template),
            name=tuple(s.name for s in template),
            duration=tuple(s.duration_ns for s in template),
            traffic=tuple((s.traffic, s.slowed) if s.traffic else None for s in template),
            waits=tuple(waits),
            local=tuple(tuple(d) for d in dependents),
            roots=roots(template),
            issue=next((i for i, step in enumerate(template) if step.stream == HOST), None),
            first=tuple(first.items()),
            last=tuple(last.items()),
            grouped=tuple((i, s.group) for i, s in enumerate(template) if s.group != "self"),
            sms=tuple(s.sms for s in template),
            sm_bound=tuple(s.sm_bound for s in template),
        )


def unroll(program: Program, microbatches: int) -> Graph:
    """The graph of a step of `microbatches` micro-batches of this Program."""
    return _Unroller(program, microbatches).run()


@dataclass(frozen=True, slots=True)
class _Turn:
    """A pass or a pair: columns, the pass of each step, and of each pass its roots, the step that
    ends its result, and its last, which may be a reduction behind that."""

    columns: _Columns
    lanes: tuple[int, ...]
    roots: tuple[Offsets, ...]
    results: Offsets
    ends: Offsets

    @staticmethod
    def of(columns: _Columns, lanes: tuple[int, ...]) -> _Turn:
        every = range(max(lanes) + 1)
        begins = tuple(tuple(i for i in columns.roots if lanes[i] == lane) for lane in every)
        return _Turn(columns, lanes, begins, *last_steps(columns.stream, lanes))


def template_graph(template: Template, program: Program) -> Graph:
    """The graph of one template on the first role."""
    columns, wiring, size = _Columns.of(template), program.wiring, len(template)
    return Graph(
        role=[0] * size,
        stream=[*columns.stream],
        name=[*columns.name],
        chunk=[0] * size,
        microbatch=[0] * size,
        duration=[*columns.duration],
        flows=[
            sent(wiring.flows(one[0], 0, slowed=one[1])) if one else () for one in columns.traffic
        ],
        sms=[*columns.sms],
        sm_bound=[*columns.sm_bound],
        waits=[*columns.waits],
        local=[*columns.local],
    )


class _Unroller:
    def __init__(self, program: Program, microbatches: int) -> None:
        self.program = program
        self.microbatches = microbatches
        self.graph = Graph()
        templates = (*program.passes.values(), *program.ends.values())
        self.columns = {id(template): _Columns.of(template) for template in templates}
        # All columns are kept: flows are looked up by their identity.
        self.opening = [_Columns.of(template) for template in program.opening]
        self.finish = [_Columns.of(template) for template in program.finish]
        self.receive = _Columns.of(program.receive)
        self.message = _Columns.of((Step("send", SEND_FORWARD, program.message.latency_ns, ()),))
        self.copies = {
            stream: _Columns.of((Step(STREAMS[stream], stream, delay, ()),))
            for stream in (TO_HOST, FROM_HOST)
            if program.offload
            for delay in (program.offload.latency_ns,)
        }
        self.flow_cache: dict[tuple[int, int], list[tuple[Sent, ...]]] = {}
        self.arrivals: dict[tuple[int, str, int, int], int] = {}
        """(role, pass, chunk, micro-batch) -> the operation whose end brings that pass's result to
        the role."""
        self.needs: list[tuple[tuple[int, str, int, int], int]] = []
        self.tails: list[dict[int, int]] = []
        self.groups: dict[tuple[str, int, int], list[int]] = {}
        self.begun: dict[int, int] = {}
        """Role -> the first operation of its last turn."""
        self.sequence: dict[tuple[int, str], int] = {}
        self.chunks = program.chunk_map
        self.messages: dict[tuple[int, int], tuple[Sent, ...]] = {}
        """By sender and receiver."""
        self.moves: dict[tuple[int, int, int], tuple[Sent, ...]] = {}
        """Of copies to and from the host, by stream, role and chunk."""
        self.turns: dict[tuple[tuple[Pass, int, bool], ...], _Turn] = {}
        """Passes and pairs by what they run."""
        self.ends: frozenset[Action] = frozenset()
        """First forwards and last backwards of the role at hand, where they differ."""

    def run(self) -> Graph:
        program = self.program
        order = program.schedule.order(program.stages, program.chunks_per_stage, self.microbatches)
        for index, role in enumerate(program.roles):
            self.tails.append({})
            self._role(index, role, order[role.stage])
        for key, after in self.needs:
            self.graph.edge(self.arrivals[key], after)
        for members in self.groups.values():
            if len(members) > 1:
                for member in members:
                    self.graph.rendezvous[member] = members
        return self.graph

    def _role(self, index: int, role: Role, order: Sequence[Action]) -> None:
        """Append all that one role does."""
        opened, released = self._open(index, role), dict[int, int]()
        self.ends = ends_of(order) if self.program.ends else frozenset()
        copies = _Copies(self, index, role, order)
        marks: list[int] = []
        actions = iter(order)
        for action in actions:
            both = (action, next(actions)) if action.paired else (action,)
            marks += [len(self.graph.role)] * len(both)
            copies.begin(both)
            held = [copies.needed(one) for one in both]
            for one, before in zip(both, held, strict=True):
                if one.kind == "F" and one.chunk in opened:
                    before.append(opened.pop(one.chunk))
            ends = self._take(index, role, both, held)
            copies.end(both, ends)
            released |= {
                one.chunk: end for one, end in zip(both, ends, strict=True) if one.kind in "BW"
            }
        marks.append(len(self.graph.role))
        self.graph.positions.append(marks)
        self._finish(index, role, released)

    def _open(self, index: int, role: Role) -> dict[int, int]:
        """Append what opens the step; by chunk the operation that its first forward waits for."""
        if not self.program.opening:
            return {}
        chunks = self.program.opens[role.stage]
        base = self._append(self.opening[role.stage], index, role, Action("F", -1, -1))
        return {chunk: base + place for place, chunk in enumerate(chunks)}

    def _take(
        self, index: int, role: Role, both: tuple[Action, ...], held: list[list[int]]
    ) -> list[int]:
        """Append a pass or a pair, block by block, with the messages of each, and let each wait for
        what holds it up; the positions of their last operations."""
        gathers = [self._gather(index, role, action) for action in both]
        turn = self._turn(both)
        base = self._append(turn.columns, index, role, both[0])
        graph = self.graph
        if turn.columns.issue is not None and index in self.begun:
            # The host is at most a pass ahead.
            graph.edge(self.begun[index], base + turn.columns.issue)
        self.begun[index] = base + min(begins[0] for begins in turn.roots)
        self._name(base, both, turn.lanes)
        ends: list[int] = []
        for action, gather, before, begins, end in zip(
            both, gathers, held, turn.roots, turn.ends, strict=True
        ):
            first = [base + i for i in begins]
            if self.program.message.awaited and turn.columns.issue is not None:
                first.append(base + turn.columns.issue)
            self._receive(index, action, gather, first)
            for op in before:
                for root in first:
                    graph.edge(op, root)
            ends.append(base + end)
        for action, result in zip(both, turn.results, strict=True):
            self._send(index, role, action, base + result)
        return ends

    def _name(self, base: int, both: tuple[Action, ...], lanes: tuple[int, ...]) -> None:
        """Note whose operations the last ones are: buckets belong to no micro-batch."""
        graph = self.graph
        if len(both) > 1:
            graph.chunk[base:] = [both[lane].chunk for lane in lanes]
            graph.microbatch[base:] = [both[lane].microbatch for lane in lanes]
        if any(one in self.ends and (one.kind, one.chunk) in self.program.ends for one in both):
            for place in range(base, len(graph.role)):
                if graph.stream[place] == DATA:
                    graph.microbatch[place] = -1

    def _turn(self, both: tuple[Action, ...]) -> _Turn:
        """The columns of a pass or a pair."""
        key: tuple[tuple[Pass, int, bool], ...]
        key = tuple([(one.kind, one.chunk, one in self.ends) for one in both])
        if key in self.turns:
            return self.turns[key]
        program = self.program
        templates = [program.template(*one) for one in key]
        if len(both) == 1:
            made = _Turn.of(self.columns[id(templates[0])], (0,) * len(templates[0]))
        else:
            pair = paired(
                templates[0],
                templates[1],
                program.capacity,
                program.sync_ns,
                program.beside,
            )
            made = _Turn.of(_Columns.of(pair.steps), pair.lanes)
        self.turns[key] = made
        return made

    def _source(self, action: Action) -> tuple[str, int] | None:
        """The pass, and its chunk, whose result this one needs from the neighbouring chunk."""
        if action.kind == "W":
            return None
        forward = action.kind == "F"
        chunk = (self.chunks.before if forward else self.chunks.after)[action.chunk]
        return None if chunk is None else ("F" if forward else "B", chunk)

    def _gather(self, index: int, role: Role, action: Action) -> int | None:
        """Append what brings a scattered message together, where messages are scattered."""
        if not self.program.receive or self.program.stages == 1 or self._source(action) is None:
            return None
        return self._append(self.receive, index, role, action)

    def _receive(self, index: int, action: Action, gather: int | None, begins: list[int]) -> None:
        """The pass, or the gather before it, waits for the result that it needs."""
        source = self._source(action)
        if source is None:
            return
        if gather is not None:
            for root in begins:
                self.graph.edge(gather, root)
        key = (index, *source, action.microbatch)
        self.needs += [(key, after) for after in (begins if gather is None else [gather])]

    def _send(self, index: int, role: Role, action: Action, end: int) -> None:
        """Send the result to the role that runs the next pass, or hand it over where that is the
        same role."""
        if action.kind == "W":
            return
        forward = action.kind == "F"
        target = (self.chunks.after if forward else self.chunks.before)[action.chunk]
        if target is None:
            return
        stage = self.chunks.stage_of[target]
        key = (role.peers[stage], "F" if forward else "B", action.chunk, action.microbatch)
        if stage == role.stage:
            self.arrivals[key] = end
            return
        stream = send_stream(role.stage, stage, self.program.stages, forward=forward)
        op = self._append(self.message, index, role, action)
        graph = self.graph
        tails = self.tails[index]
        graph.stream[op], graph.name[op] = stream, STREAMS[stream]
        if stream in tails:
            graph.edge(tails[stream], op)
        tails[stream] = op
        graph.edge(end, op)
        graph.flows[op] = self._message(index, key[0])
        self.arrivals[key] = op

    def _message(self, source: int, target: int) -> tuple[Sent, ...]:
        """The flow of a message from one role to another."""
        if (source, target) not in self.messages:
            one = self.program.message
            flows = self.program.wiring.message(one.bytes, (one.link, one.far), (source, target))
            self.messages[source, target] = sent(flows)
        return self.messages[source, target]

    def _append(self, columns: _Columns, index: int, role: Role, action: Action) -> int:
        """Append an instance of a template; the position of its first operation."""
        graph = self.graph
        base, size = len(graph.role), len(columns.stream)
        graph.role.extend([index] * size)
        graph.stream.extend(columns.stream)
        graph.name.extend(columns.name)
        graph.chunk.extend([action.chunk] * size)
        graph.microbatch.extend([action.microbatch] * size)
        graph.duration.extend(role.scaled(columns.duration, columns.stream))
        graph.waits.extend(columns.waits)
        graph.local.extend(columns.local)
        graph.sms.extend(columns.sms)
        graph.sm_bound.extend(columns.sm_bound)
        graph.flows.extend(self._flows(columns, index))
        if columns is not self.message:
            tails = self.tails[index]
            for stream, offset in columns.first:
                if stream in tails:
                    graph.edge(tails[stream], base + offset)
            for stream, offset in columns.last:
                tails[stream] = base + offset
        for offset, group in columns.grouped:
            self._group(base + offset, role, group)
        return base

    def copy(self, stream: int, index: int, role: Role, action: Action) -> int:
        """Append a copy of a pass's activations between the device and the host."""
        op = self._append(self.copies[stream], index, role, action)
        key = stream, index, action.chunk
        if key not in self.moves:
            offload, ports = self.program.offload, self.program.wiring.ports[index]
            size = offload.bytes[action.chunk] if offload else 0.0
            route = ports.to_host if stream == TO_HOST else ports.from_host
            self.moves[key] = sent(((size, route),)) if size > 0 else ()
        self.graph.flows[op] = self.moves[key]
        return op

    def _flows(self, columns: _Columns, index: int) -> list[tuple[Sent, ...]]:
        key = (id(columns), index)
        if key not in self.flow_cache:
            own = self.program.wiring.flows
            self.flow_cache[key] = [
                sent(own(one[0], index, slowed=one[1])) if one else () for one in columns.traffic
            ]
        return self.flow_cache[key]

    def _group(self, op: int, role: Role, group: str) -> None:
        """Members of a group run their collectives of a kind in the same order: the n-th of each
        start together."""
        if group not in role.groups:
            return
        index = self.graph.role[op]
        number = self.sequence.get((index, group), 0)
        self.sequence[index, group] = number + 1
        self.groups.setdefault((group, role.groups[group], number), []).append(op)

    def _finish(self, index: int, role: Role, released: dict[int, int]) -> None:
        template = self.program.finish[role.stage]
        end = self.tails[index][COMPUTE]
        base = self._append(self.finish[role.stage], index, role, Action("B", -1, -1))
        for offset, (step, chunk) in enumerate(
            zip(template, self.program.ready_after[role.stage], strict=True)
        ):
            if chunk is not None:
                self.graph.edge(released[chunk], base + offset)
            elif not step.after and step.stream != COMPUTE:
                self.graph.edge(end, base + offset)


class _Copies:
    """The activations of one role on their way to the host and back: out under the next forward,
    which the one after it waits for; back from the start of the backward before theirs on."""

    def __init__(
        self, unroller: _Unroller, index: int, role: Role, order: Sequence[Action]
    ) -> None:
        self.unroller, self.index, self.role = unroller, index, role
        away = offloaded(order) if unroller.program.offload else frozenset[tuple[int, int]]()
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
            after = self.coming.get((one.chunk, one.microbatch))
            if one.kind not in ("B", "I") or after is None:
                continue
            unroller, key = self.unroller, (after.chunk, after.microbatch)
            before = unroller.tails[self.index].get(COMPUTE)
            op = unroller.copy(FROM_HOST, self.index, self.role, after)
            if before is not None:
                unroller.graph.edge(before, op)
            unroller.graph.edge(self.out[key], op)
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
                op = self.unroller.copy(TO_HOST, self.index, self.role, one)
                self.unroller.graph.edge(end, op)
                self.out[key] = op
            self.last = [self.last[1], op]
