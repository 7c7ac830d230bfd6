"""A step as execution traces of MLCommons Chakra, which ASTRA-sim and others play: one file for
each rank, `STEP.RANK.et`, and the members of its groups, `comm_groups.json`, in one zip.

    twin export SCENARIO --format chakra -o step.zip

A trace is a graph: kernels and the host with their durations, collectives and messages with their
bytes, and what each waits for. Links are whose player it is to share out. Numbers of fields and
kinds are those of schema/protobuf/et_def.proto (mlcommons/chakra 21585d8, 2026; Apache-2.0), names
of attributes those of its feeder (src/feeder/et_feeder_node.cpp). Messages are written by
`protobuf` (extra `chakra`).

`comm_size` is what one rank holds: of an all-reduce the tensor, of gathers and scatters the whole
of it, of an exchange what the rank sends and keeps. A duration in whole microseconds is the
schema's; `duration_ns` has all of it.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from typing import Any, BinaryIO, Final

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from twin.answers import Run
from twin.answers.trace_files import Content
from twin.engine import lower
from twin.engine.graph import Graph
from twin.engine.layout import Layout, laid_out
from twin.engine.program import COMPUTE, FROM_HOST, HOST, MESH_GROUPS, TO_HOST, Program
from twin.engine.templates import Steps
from twin.engine.unroll import unroll
from twin.errors import Problem, UsageError
from twin.interop.export.base import Stamp
from twin.planning.mesh import group_numbers, ranks_of_stages

SUFFIX = ".zip"
PARTS = ("",)

VERSION: Final = "1.0.0"
"""Of the schema, as its generator writes it."""
_MOST: Final = 2_000_000
"""Nodes of all ranks together: half a minute."""
_LOAD, _STORE, _COMPUTE, _SEND, _RECEIVE, _COLLECTIVE = range(2, 8)
"""Kinds of nodes, as `NodeType` numbers them."""
_ALL_REDUCE, _ALL_GATHER, _ALL_TO_ALL, _REDUCE_SCATTER = 0, 2, 6, 7
"""Of `CollectiveCommType`."""
_GATHERED: Final = frozenset({"expert_counts"})
"""Of an expert group; all else is exchanged."""
_DATE: Final = (1980, 1, 1, 0, 0, 0)
"""The oldest that a zip has: the same inputs give the same bytes."""

_MESSAGES: Final[Mapping[str, Mapping[str, tuple[int, str, bool]]]] = {
    "AttributeProto": {
        "name": (1, "string", False),
        "int32_val": (7, "int32", False),
        "int64_val": (9, "int64", False),
        "uint64_val": (13, "uint64", False),
        "bool_val": (27, "bool", False),
        "string_val": (29, "string", False),
    },
    "GlobalMetadata": {"version": (1, "string", False), "attr": (2, "AttributeProto", True)},
    "Node": {
        "id": (1, "uint64", False),
        "name": (2, "string", False),
        "type": (3, "int32", False),
        "data_deps": (5, "uint64", True),
        "duration_micros": (7, "uint64", False),
        "attr": (10, "AttributeProto", True),
    },
}
"""The part of the schema that is written: number, type, and whether a field repeats."""
_VALUES: Final = ("int32_val", "int64_val", "uint64_val", "bool_val", "string_val")
"""The oneof `value` of an attribute."""


def files(run: Run, stamp: Stamp) -> dict[str, Content]:
    """The zip. Raises `UsageError` where the step has too many operations."""
    program = lower(run.plan)
    traces = Traces.of(program, run)
    total = sum(traces.sizes)
    if total > _MOST:
        message = f"{total:,} operations on {sum(r.ranks for r in program.roles):,} ranks are many"
        fix = f"at most {_MOST:,}: `--set` fewer nodes, or a smaller train.global_batch"
        raise UsageError([Problem("TW338", "", message, fix)])

    def written(file: BinaryIO) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
            for rank, data in traces.ranks(stamp):
                packed.writestr(zipfile.ZipInfo(f"step.{rank}.et", _DATE), data)
            groups = json.dumps(traces.groups, indent=1)
            packed.writestr(zipfile.ZipInfo("comm_groups.json", _DATE), groups)

    return {"": written}


@dataclass(frozen=True, slots=True)
class Operation:
    """One node as all ranks of a stage have it: what differs is who the others are."""

    number: int
    name: str
    kind: int
    duration_ns: int
    after: tuple[int, ...]
    size: int = 0
    collective: int = 0
    group: str = ""
    peer: int = -1
    """Stage of the other end of a message."""
    tag: int = 0


@dataclass(frozen=True, slots=True)
class Traces:
    """The operations of each stage, its ranks, and the groups of ranks by number."""

    stages: tuple[tuple[Operation, ...], ...]
    members: Any
    """Ranks as stages x ranks of a stage."""
    numbers: Mapping[str, Any]
    """For each kind of group the number of each rank's."""

    @staticmethod
    def of(program: Program, run: Run) -> Traces:
        """Those of a step."""
        mesh = run.plan.mesh
        graph = unroll(program, program.microbatches)
        layout = laid_out(program, program.microbatches)
        numbers = group_numbers(mesh)
        sizes = {kind: own.size // len(np.unique(own)) for kind, own in numbers.items()}
        roles = range(len(program.roles))
        waits = Waits.of(graph, len(roles))
        stages = [_stage(program, graph, layout, role, waits, sizes) for role in roles]
        return Traces(tuple(map(tuple, stages)), ranks_of_stages(mesh), numbers)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Nodes of the ranks of each stage together."""
        return tuple(
            len(own) * len(ranks) for own, ranks in zip(self.stages, self.members, strict=True)
        )

    @property
    def groups(self) -> dict[str, list[int]]:
        """Ranks of each group, by its name in the traces."""
        found: dict[str, list[int]] = {"0": sorted(int(rank) for rank in self.members.flat)}
        for kind in MESH_GROUPS:
            for rank, number in zip(self.members.flat, self.numbers[kind].flat, strict=True):
                found.setdefault(self._name(kind, int(number)), []).append(int(rank))
        return {name: sorted(ranks) for name, ranks in found.items() if len(ranks) > 1}

    def _name(self, kind: str, number: int) -> str:
        """Names are numbers, as those that PyTorch gives: every rank is 0."""
        if kind not in MESH_GROUPS:
            return "0"
        place = MESH_GROUPS.index(kind)
        before = sum(int(self.numbers[one].max()) + 1 for one in MESH_GROUPS[:place])
        return str(1 + before + number)

    def ranks(self, stamp: Stamp) -> Iterator[tuple[int, bytes]]:
        """Each rank and its trace."""
        made = messages()
        known = [
            made["AttributeProto"](name=name, string_val=text)
            for name, text in asdict(stamp).items()
        ]
        head = made["GlobalMetadata"](version=VERSION, attr=known)
        for stage, operations in enumerate(self.stages):
            names = {kind: own[stage] for kind, own in self.numbers.items()}
            for place, rank in enumerate(self.members[stage].tolist()):
                own = {kind: self._name(kind, int(one[place])) for kind, one in names.items()}
                others = self.members[:, place].tolist()
                sink = BytesIO()
                sink.write(framed(head))
                for operation in operations:
                    sink.write(framed(_node(made, operation, own, rank, others)))
                yield rank, sink.getvalue()


@dataclass(frozen=True, slots=True)
class Waits:
    """What the operations of each role wait for: others of the role by their places in it, and
    messages, as the role and the place of what sends them."""

    own: list[list[list[int]]]
    arrivals: list[list[tuple[int, int, int]]]
    """Place of what waits, role that sends, and place of the send there."""

    @staticmethod
    def of(graph: Graph, roles: int) -> Waits:
        """Those of a graph."""
        begins: list[int] = [graph.of_role(role).start for role in range(roles)]
        ends: list[int] = [graph.of_role(role).stop for role in range(roles)]
        own: list[list[list[int]]] = [
            [[] for _ in range(a, b)] for a, b in zip(begins, ends, strict=True)
        ]
        arrivals: list[list[tuple[int, int, int]]] = [[] for _ in range(roles)]
        of: list[int] = graph.role.tolist()
        for op, waiting in enumerate(graph.after.lists()):
            sender = of[op]
            place = op - begins[sender]
            for later in waiting:
                role = of[later]
                if role == sender:
                    own[role][later - begins[role]].append(place)
                else:
                    arrivals[role].append((later - begins[role], sender, place))
        return Waits(own, arrivals)


def _stage(
    program: Program,
    graph: Graph,
    layout: Layout,
    role: int,
    waits: Waits,
    sizes: Mapping[str, int],
) -> Iterator[Operation]:
    """The operations of a role; what comes from another one is received by a node of its own."""
    steps, stage = layout.table.steps, layout.stages[program.roles[role].stage]
    first, count = graph.of_role(role).start, len(waits.own[role])
    peers = {op: peer for peer, ops in stage.messages.items() for op in ops.tolist()}
    before = [list(one) for one in waits.own[role]]
    size = round(program.message.bytes)
    for number, (later, sender, op) in enumerate(waits.arrivals[role], start=count):
        before[later].append(number)
        peer = program.roles[sender].stage
        yield Operation(number, "receive", _RECEIVE, 0, (), size, peer=peer, tag=op)
    for number in range(count):
        step = int(stage.step[number])
        operation = Operation(
            number,
            str(steps.names[int(steps.name[step])]),
            _COMPUTE,
            int(graph.duration[first + number]),
            tuple(before[number]),
        )
        if number in peers:
            yield _as(operation, kind=_SEND, size=size, peer=peers[number], tag=number)
        else:
            chunk = int(stage.chunk[number])
            copied = program.offload.bytes[chunk] if program.offload and chunk >= 0 else 0.0
            yield _sorted_out(operation, steps, step, sizes, copied)


def _sorted_out(
    operation: Operation, steps: Steps, step: int, sizes: Mapping[str, int], copied: float
) -> Operation:
    """What no other stage has a part in: a copy, a collective, a kernel, or the host's work."""
    number = int(steps.group[step])
    group = str(steps.groups[number]) if number >= 0 else ""
    stream, sent = int(steps.stream[step]), steps.traffic.get(step)
    if stream in (TO_HOST, FROM_HOST):
        size = max(sent[0].to_host_bytes, sent[0].from_host_bytes) if sent else copied
        return _as(operation, kind=_STORE if stream == TO_HOST else _LOAD, size=round(size))
    if stream == HOST:
        return _as(operation, group="host")
    if sent is not None:
        return _collective(operation, sent[0], group, sizes)
    if group and stream != COMPUTE:
        return _as(operation, kind=_COLLECTIVE, size=_NORM, group=group)
    return operation


_NORM: Final = 4
"""Bytes of a gradient norm."""


def _as(operation: Operation, **changes: Any) -> Operation:
    return Operation(**(asdict(operation) | changes))


def _collective(
    operation: Operation, traffic: Any, group: str, sizes: Mapping[str, int]
) -> Operation:
    """Its kind by its name, and by what it sends for each byte that a rank keeps of the tensor:
    n - 1 of a gather or a scatter over n ranks, twice as much of an all-reduce."""
    sent = traffic.nvlink_bytes + traffic.nic_bytes
    ranks = sizes.get(group, 1)
    if not sent:
        kind, size = _ALL_REDUCE, _NORM
    elif group == "expert" and operation.name not in _GATHERED:
        kind, size = _ALL_TO_ALL, sent + traffic.own_bytes
    else:
        gathers = "gather" in operation.name or operation.name in _GATHERED
        twice = traffic.own_bytes > 0 and sent / traffic.own_bytes > 1.5 * (ranks - 1)
        kind = _ALL_REDUCE if twice else _ALL_GATHER if gathers else _REDUCE_SCATTER
        size = traffic.own_bytes * ranks if traffic.own_bytes else sent
    return _as(operation, kind=_COLLECTIVE, size=round(size), collective=kind, group=group)


def _node(
    made: Mapping[str, Any],
    operation: Operation,
    groups: Mapping[str, str],
    rank: int,
    others: Sequence[int],
) -> Any:
    """An operation as one rank has it."""
    node = made["Node"](
        id=operation.number,
        name=operation.name,
        type=operation.kind,
        data_deps=operation.after,
        duration_micros=round(operation.duration_ns / 1000),
    )

    def say(name: str, **value: Any) -> None:
        node.attr.append(made["AttributeProto"](name=name, **value))

    say("is_cpu_op", bool_val=operation.group == "host")
    if operation.duration_ns:
        say("duration_ns", int64_val=operation.duration_ns)
    if operation.kind in (_SEND, _RECEIVE):
        sends = operation.kind == _SEND
        other = others[operation.peer]
        say("comm_size", int64_val=operation.size)
        say("comm_src", int32_val=rank if sends else other)
        say("comm_dst", int32_val=other if sends else rank)
        say("comm_tag", int32_val=operation.tag)
    elif operation.kind == _COLLECTIVE:
        say("comm_type", int64_val=operation.collective)
        say("comm_size", int64_val=operation.size)
        say("pg_name", string_val=groups.get(operation.group, "0"))
    elif operation.kind in (_LOAD, _STORE):
        say("tensor_size", uint64_val=operation.size)
    return node


def framed(message: Any) -> bytes:
    """A message behind its length, as Chakra's readers take it."""
    data: bytes = message.SerializeToString()
    length, head = len(data), bytearray()
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + data


def messages() -> dict[str, Any]:
    """The classes of the schema's messages."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="twin/chakra.proto", package="twin.ChakraProtoMsg", syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        one = file.message_type.add(name=name)
        for field, (number, kind, repeats) in fields.items():
            label = kinds.LABEL_REPEATED if repeats else kinds.LABEL_OPTIONAL
            made = one.field.add(name=field, number=number, label=label)
            if kind in _MESSAGES:
                made.type, made.type_name = kinds.TYPE_MESSAGE, f".{file.package}.{kind}"
            else:
                made.type = getattr(kinds, f"TYPE_{kind.upper()}")
        if name == "AttributeProto":
            one.oneof_decl.add(name="value")
            for made in one.field:
                if made.name in _VALUES:
                    made.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{name}"))
        for name in _MESSAGES
    }
