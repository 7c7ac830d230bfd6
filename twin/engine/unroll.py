"""Program to graph: every operation of a step, its stream, duration, and what it waits for.

What a role does follows from its stage, so each stage is laid out once, block by block, in the
schedule's order. A block is one instance of a template. Its operations, and the edges inside it,
are copied from the template's columns, all blocks of a stage at once. Roles of a stage differ in
their links, peers and groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from twin.collectives.traffic import Traffic
from twin.engine.graph import NONE, Bundles, Graph, Indices, Ragged, SmallGraph, row_starts
from twin.engine.layout import Layout, Stage, laid_out
from twin.engine.link_map import Flow
from twin.engine.program import IMBALANCE, TO_HOST, Program, Role, Template


def unroll(program: Program, microbatches: int) -> Graph:
    """The graph of a step of `microbatches` micro-batches of this Program."""
    layout = laid_out(program, microbatches)
    stages = [layout.stages[role.stage] for role in program.roles]
    bases = row_starts([stage.size for stage in stages])
    steps = layout.table.steps
    step = _joined([stage.step for stage in stages])
    rows = [_Rows(program, layout, stage) for stage in layout.stages]
    durations = [
        role.scaled(rows[role.stage].durations(role), steps.stream[stage.step])
        for role, stage in zip(program.roles, stages, strict=True)
    ]
    bundles = _Bundles(program, layout, rows)
    group, members = _rendezvous(program, layout, bases)
    return Graph(
        role=np.repeat(np.arange(len(stages), dtype=np.int32), np.diff(bases)),
        stream=steps.stream[step],
        name=steps.name[step],
        names=steps.names,
        chunk=_joined([stage.chunk for stage in stages]),
        microbatch=_joined([stage.microbatch for stage in stages]),
        duration=np.concatenate(durations),
        sms=steps.sms[step],
        sm_bound=steps.sm_bound[step],
        bundle=_joined([bundles.of(index, role) for index, role in enumerate(program.roles)]),
        bundles=bundles.all,
        after=_edges(program.roles, stages, bases),
        waits=_joined([stage.waits for stage in stages]),
        group=group,
        members=members,
        marks=[stage.marks + base for stage, base in zip(stages, bases.tolist(), strict=False)],
    )


def template_graph(template: Template, program: Program) -> Graph:
    """The graph of one template on the first role."""
    made, last = SmallGraph(program.wiring), dict[int, int]()
    for step in template:
        before = (*step.after, *((last[step.stream],) if step.stream in last else ()))
        last[step.stream] = made.add(step, 0, before)
    return made.made()


def _joined(parts: Sequence[Indices]) -> Indices:
    return np.concatenate(parts, dtype=np.int32) if parts else np.zeros(0, np.int32)


def _edges(roles: Sequence[Role], stages: Sequence[Stage], bases: NDArray[np.int64]) -> Ragged:
    """The edges of all roles: those of a stage, from each role to itself and its peers."""
    items = [
        (bases[np.asarray(role.peers)][stage.target_stage] + stage.target)
        for role, stage in zip(roles, stages, strict=True)
    ]
    lengths = np.concatenate([stage.targets for stage in stages])
    return Ragged(row_starts(lengths), _joined(items))


class _Rows:
    """The operations of a stage that depend on rows of experts: which, and of each kind of them, a
    step of a chunk, nanoseconds by expert rank."""

    def __init__(self, program: Program, layout: Layout, stage: Stage) -> None:
        self.stage, self.steps = stage, layout.table.steps
        self.rows, found = program.expert_rows, np.zeros(0, np.int64)
        if self.rows is not None:
            marked = np.zeros(len(self.steps.stream), bool)
            marked[[*self.steps.rows]] = True
            found = np.flatnonzero(marked[stage.step])
        self.ops = found
        pairs = np.stack([stage.step[found], stage.chunk[found]], axis=1)
        kinds, self.kind = np.unique(pairs, axis=0, return_inverse=True)
        self.kinds: list[tuple[int, int]] = [(int(step), int(chunk)) for step, chunk in kinds]
        self.kind = self.kind.reshape(-1)
        self.times = [self._times(*kind) for kind in self.kinds]

    def _times(self, step: int, chunk: int) -> NDArray[np.float64]:
        """Nanoseconds by expert rank."""
        assert self.rows is not None
        own = self.steps.duration[step]
        if step in self.steps.traffic:
            return np.full(len(next(iter(self.rows.excess.values()))), float(own))
        later = self.rows.later(chunk, self.steps.rows[step])
        if self.steps.names[self.steps.name[step]] == IMBALANCE:
            return np.maximum(later, 0.0)
        return np.maximum(own + np.minimum(later, 0.0), 0.0)

    def durations(self, role: Role) -> NDArray[np.int64]:
        """Of all operations of a role, on a GPU like the rest."""
        found = self.steps.duration[self.stage.step]
        if self.kinds:
            own = np.array([times[role.expert] for times in self.times])
            found[self.ops] = np.rint(own).astype(np.int64)[self.kind]
        return found

    def sent(self, role: Role) -> Iterator[tuple[NDArray[np.int64], Traffic, bool]]:
        """What the exchanges among them send: operations, traffic, whether kernels slow it."""
        for number, (step, chunk) in enumerate(self.kinds):
            if self.rows is not None and step in self.steps.traffic:
                (layer, _), *_ = self.steps.rows[step]
                flow, slowed = self.steps.traffic[step]
                if (chunk, layer) in self.rows.excess:
                    flow = self.rows.sent(flow, (chunk, layer), role.expert)
                yield self.ops[self.kind == number], flow, slowed


class _Bundles:
    """What the operations of each role send."""

    def __init__(self, program: Program, layout: Layout, rows: Sequence[_Rows]) -> None:
        self.program, self.layout, self.rows, self.all = program, layout, rows, Bundles()

    def of(self, index: int, role: Role) -> Indices:
        """By operation of a role."""
        stage, wiring = self.layout.stages[role.stage], self.program.wiring
        steps = self.layout.table.steps
        own = np.full(len(steps.stream), NONE, np.int32)
        for place in stage.sending.tolist():
            traffic, slowed = steps.traffic[place]
            own[place] = self.all.add(wiring.flows(traffic, index, slowed=slowed))
        found = own[stage.step]
        for ops, flow, slowed in self.rows[role.stage].sent(role):
            found[ops] = self.all.add(wiring.flows(flow, index, slowed=slowed))
        for target, ops in stage.messages.items():
            found[ops] = self.all.add(self._message(index, role.peers[target]))
        for (stream, chunk), ops in stage.copies.items():
            found[ops] = self.all.add(self._copy(index, stream, chunk))
        return found

    def _message(self, source: int, target: int) -> tuple[Flow, ...]:
        """The flow of a message from one role to another."""
        stages = (self.program.roles[end].stage for end in (source, target))
        one = self.program.message.between(*stages)
        return self.program.wiring.message(one.bytes, (one.link, one.far), (source, target))

    def _copy(self, index: int, stream: int, chunk: int) -> tuple[Flow, ...]:
        """The flow of a chunk's activations between a role's device and the host."""
        offload, ports = self.program.offload, self.program.wiring.ports[index]
        size = offload.bytes[chunk] if offload else 0.0
        route = ports.to_host if stream == TO_HOST else ports.from_host
        return ((size, route),) if size > 0 else ()


def _rendezvous(
    program: Program, layout: Layout, bases: NDArray[np.int64]
) -> tuple[Indices, Ragged]:
    """Members of a group run their collectives of a kind in the same order: the n-th of each start
    together."""
    by_group: dict[tuple[str, int], list[NDArray[np.int64]]] = {}
    for base, role in zip(bases.tolist(), program.roles, strict=False):
        for name, ops in layout.stages[role.stage].grouped.items():
            if name in role.groups:
                by_group.setdefault((name, role.groups[name]), []).append(ops + base)
    members: list[NDArray[np.int64]] = []
    lengths: list[NDArray[np.int64]] = []
    for own in by_group.values():
        number = np.concatenate([np.arange(len(ops)) for ops in own])
        counts = np.bincount(number)
        alone = counts[number] == 1
        order = np.argsort(number, kind="stable")
        members.append(np.concatenate(own)[order[~alone[order]]])
        lengths.append(counts[counts > 1])
    group = np.full(bases[-1], NONE, np.int32)
    if not members:
        return group, Ragged.of([])
    every, sizes = np.concatenate(members), np.concatenate(lengths)
    group[every] = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    return group, Ragged(row_starts(sizes), every.astype(np.int32))
