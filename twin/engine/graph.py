"""Program to graph: every operation of a step, its stream, duration, and what it waits for.

Templates are unrolled in the schedule's order. The arrays are plain lists because the player
touches single elements millions of times. Edges inside a template are kept as offsets relative to
the operation, so that all instances share them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from twin.collectives.traffic import Traffic
from twin.engine.overlap import paired
from twin.engine.program import (
    COMPUTE,
    SEND_FORWARD,
    STREAMS,
    Program,
    Role,
    Step,
    Template,
    send_stream,
)
from twin.schedules.action import Action, Pass

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
    flows: list[tuple[tuple[float, tuple[int, ...]], ...]] = field(
        default_factory=list[tuple[tuple[float, tuple[int, ...]], ...]]
    )
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
    traffic: tuple[Traffic | None, ...]
    waits: Offsets
    local: tuple[Offsets, ...]
    roots: Offsets
    """Steps that wait for nothing in the template but their stream."""
    first: tuple[tuple[int, int], ...]
    last: tuple[tuple[int, int], ...]
    grouped: tuple[tuple[int, str], ...]

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
            traffic=tuple(s.traffic for s in template),
            waits=tuple(waits),
            local=tuple(tuple(d) for d in dependents),
            roots=tuple(i for i, step in enumerate(template) if not step.after),
            first=tuple(first.items()),
            last=tuple(last.items()),
            grouped=tuple((i, s.group) for i, s in enumerate(template) if s.group != "self"),
        )


def link_index(role: int, link: str, inward: bool) -> int:
    """Position of a role's port in the table of links: NVLink out and in, then NIC out and in."""
    return 4 * role + (2 if link == "nic" else 0) + int(inward)


def unroll(program: Program, microbatches: int) -> Graph:
    """The graph of a step of `microbatches` micro-batches of this Program."""
    return _Unroller(program, microbatches).run()


class _Unroller:
    def __init__(self, program: Program, microbatches: int) -> None:
        self.program = program
        self.microbatches = microbatches
        self.graph = Graph()
        made = {id(template): _Columns.of(template) for template in program.passes.values()}
        self.columns = {key: made[id(template)] for key, template in program.passes.items()}
        self.receive = _Columns.of(program.receive)
        self.message = _Columns.of((Step("send", SEND_FORWARD, program.message.latency_ns, ()),))
        self.flow_cache: dict[tuple[int, int], list[tuple[tuple[float, tuple[int, ...]], ...]]] = {}
        self.arrivals: dict[tuple[int, str, int, int], int] = {}
        """(role, pass, chunk, micro-batch) -> the operation whose end brings that pass's result to
        the role."""
        self.needs: list[tuple[tuple[int, str, int, int], int]] = []
        self.tails: list[dict[int, int]] = []
        self.groups: dict[tuple[str, int, int], list[int]] = {}
        self.sequence: dict[tuple[int, str], int] = {}
        self.chunks = program.chunk_map
        self.pairs: dict[tuple[int, Pass, int], tuple[_Columns, tuple[int, ...]]] = {}
        """Columns and lanes of a forward's chunk paired with a backward pass of a chunk."""

    def run(self) -> Graph:
        program = self.program
        order = program.schedule.order(program.stages, program.chunks_per_stage, self.microbatches)
        for index, role in enumerate(program.roles):
            self.tails.append({})
            released: dict[int, int] = {}
            marks: list[int] = []
            actions = iter(order[role.stage])
            for action in actions:
                marks.append(len(self.graph.role))
                if action.paired:
                    marks.append(marks[-1])
                    ended = next(actions)
                    end = self._pair(index, role, action, ended)
                else:
                    ended, end = action, self._single(index, role, action)
                if ended.kind in ("B", "W"):
                    released[ended.chunk] = end
            marks.append(len(self.graph.role))
            self.graph.positions.append(marks)
            self._finish(index, role, released)
        for key, after in self.needs:
            self.graph.edge(self.arrivals[key], after)
        for members in self.groups.values():
            if len(members) > 1:
                for member in members:
                    self.graph.rendezvous[member] = members
        return self.graph

    def _single(self, index: int, role: Role, action: Action) -> int:
        """Append a pass, its message in and its message out; the position of its last operation."""
        gather = self._gather(index, role, action)
        columns = self.columns[action.kind, action.chunk]
        base = self._append(columns, index, role, action)
        self._receive(index, action, gather, [base + i for i in columns.roots])
        end = len(self.graph.role) - 1
        self._send(index, role, action, end)
        return end

    def _pair(self, index: int, role: Role, forward: Action, backward: Action) -> int:
        """Append a forward and a backward, block by block; each has its own messages. The position
        of the backward's last operation."""
        gathers = [self._gather(index, role, action) for action in (forward, backward)]
        columns, lanes = self._paired(forward, backward)
        base = self._append(columns, index, role, forward)
        graph, both = self.graph, (forward, backward)
        graph.chunk[base:] = [both[lane].chunk for lane in lanes]
        graph.microbatch[base:] = [both[lane].microbatch for lane in lanes]
        for lane, action in enumerate(both):
            roots = [base + i for i in columns.roots if lanes[i] == lane]
            self._receive(index, action, gathers[lane], roots)
        ends = [base + max(i for i, owner in enumerate(lanes) if owner == lane) for lane in (0, 1)]
        for action, end in zip(both, ends, strict=True):
            self._send(index, role, action, end)
        return ends[1]

    def _paired(self, forward: Action, backward: Action) -> tuple[_Columns, tuple[int, ...]]:
        key = forward.chunk, backward.kind, backward.chunk
        if key not in self.pairs:
            program = self.program
            pair = paired(
                program.passes["F", forward.chunk],
                program.passes[backward.kind, backward.chunk],
                program.capacity,
                program.dispatch_ns,
            )
            self.pairs[key] = _Columns.of(pair.steps), pair.lanes
        return self.pairs[key]

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

    def _receive(self, index: int, action: Action, gather: int | None, roots: list[int]) -> None:
        """The pass, or the gather before it, waits for the result that it needs."""
        source = self._source(action)
        if source is None:
            return
        if gather is not None:
            for root in roots:
                self.graph.edge(gather, root)
        key = (index, *source, action.microbatch)
        self.needs += [(key, after) for after in (roots if gather is None else [gather])]

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
        graph, message = self.graph, self.program.message
        tails = self.tails[index]
        graph.stream[op], graph.name[op] = stream, STREAMS[stream]
        if stream in tails:
            graph.edge(tails[stream], op)
        tails[stream] = op
        graph.edge(end, op)
        links = (link_index(index, message.link, False), link_index(key[0], message.link, True))
        graph.flows[op] = ((message.bytes, links),) if message.bytes > 0 else ()
        self.arrivals[key] = op

    def _append(self, columns: _Columns, index: int, role: Role, action: Action) -> int:
        """Append an instance of a template; the position of its first operation."""
        graph = self.graph
        base, size = len(graph.role), len(columns.stream)
        graph.role.extend([index] * size)
        graph.stream.extend(columns.stream)
        graph.name.extend(columns.name)
        graph.chunk.extend([action.chunk] * size)
        graph.microbatch.extend([action.microbatch] * size)
        graph.duration.extend(columns.duration)
        graph.waits.extend(columns.waits)
        graph.local.extend(columns.local)
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

    def _flows(
        self, columns: _Columns, index: int
    ) -> list[tuple[tuple[float, tuple[int, ...]], ...]]:
        key = (id(columns), index)
        if key not in self.flow_cache:
            self.flow_cache[key] = [port_flows(t, index) if t else () for t in columns.traffic]
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
        base = self._append(_Columns.of(template), index, role, Action("B", -1, -1))
        for offset, (step, chunk) in enumerate(
            zip(template, self.program.ready_after[role.stage], strict=True)
        ):
            if chunk is not None:
                self.graph.edge(released[chunk], base + offset)
            elif not step.after and step.stream != COMPUTE:
                self.graph.edge(end, base + offset)


def port_flows(traffic: Traffic, role: int) -> tuple[tuple[float, tuple[int, ...]], ...]:
    """A collective's bytes as flows through the role's own ports: what it sends leaves, and as much
    arrives."""
    flows = (("nvlink", traffic.nvlink_bytes), ("nic", traffic.nic_bytes))
    return tuple(
        (size, (link_index(role, link, False), link_index(role, link, True)))
        for link, size in flows
        if size > 0
    )
