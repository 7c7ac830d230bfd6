"""The Program: one training step as data, ready to be played.

A step is a set of roles (folded: one per pipeline stage; all-ranks: every rank), each with in-order
streams like CUDA streams. What a role does in one pass of one micro-batch through one chunk is the
same for every micro-batch, so the Program keeps it once, as a template of `Step`s; the schedule
orders the passes; `finish` closes the step. Neighbouring kernels with no communication between them
are one step (a segment). `twin.engine.graph` unrolls a Program into single operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from twin.collectives.traffic import Traffic
from twin.schedules import ChunkMap, Schedule
from twin.schedules.action import Pass

STREAMS: Final = (
    "compute",
    "tensor",
    "expert",
    "send_forward",
    "send_backward",
    "data",
    "context",
    "gather",
)
"""In-order streams of every role. Sends have a stream per direction because each neighbour has its
own communicator; gathers of sharded parameters do not queue behind reductions of gradients (torch
FSDP2 has a stream for each)."""

COMPUTE, TENSOR, EXPERT, SEND_FORWARD, SEND_BACKWARD, DATA, CONTEXT, GATHER = range(len(STREAMS))

Group = Literal[
    "self",
    "tensor",
    "context",
    "data",
    "expert_tensor",
    "expert",
    "expert_data",
    "embedding",
    "world",
]
"""Who has to be ready before a step starts: only this role, or all members of one of its groups."""

MESH_GROUPS: Final[tuple[Group, ...]] = (
    "tensor",
    "context",
    "data",
    "expert_tensor",
    "expert",
    "expert_data",
)
"""Those that lie inside a stage (`twin.plan.mesh.GROUPS`)."""

LINKS: Final = ("nvlink", "nic")
"""Link classes; every role has a port of each class in each direction."""


@dataclass(frozen=True, slots=True)
class Step:
    """One element of a template. It heads its stream when the earlier step on that stream is done,
    and starts when the steps in `after` (positions in the same template) are done too. A compute
    step lasts `duration_ns`; a communication step lasts `duration_ns` (latency) and then until its
    bytes are through its ports."""

    name: str
    stream: int
    duration_ns: int
    after: tuple[int, ...]
    traffic: Traffic | None = None
    group: Group = "self"
    kernels: int = 0
    """Kernels that the host launches for it."""

    def alone_ns(self, capacity: Mapping[str, float]) -> float:
        """How long it lasts with its links to itself; `capacity` in bytes per nanosecond by link
        class."""
        if self.traffic is None:
            return self.duration_ns
        nvlink = self.traffic.nvlink_bytes / capacity["nvlink"]
        return self.duration_ns + max(nvlink, self.traffic.nic_bytes / capacity["nic"])


Template = tuple[Step, ...]


def send_stream(own: int, peer: int, stages: int, *, forward: bool) -> int:
    """The stream of a message to another stage: each neighbour has its own. Of two stages each is
    the other's only neighbour, on both sides."""
    up, down = (peer - own) % stages == 1, (own - peer) % stages == 1
    return SEND_FORWARD if up and (forward or not down) else SEND_BACKWARD


@dataclass(frozen=True, slots=True)
class Message:
    """What one stage sends to a neighbour per pass: bytes, the link class they take, and the
    latency."""

    bytes: float
    link: Literal["nvlink", "nic"]
    latency_ns: int


@dataclass(frozen=True, slots=True)
class Role:
    """One simulated rank, standing for `ranks` identical ones. `peers` are the roles of its
    pipeline, by stage; `groups` names the group of each kind that it belongs to."""

    name: str
    stage: int
    ranks: int
    peers: tuple[int, ...]
    groups: dict[Group, int]


@dataclass(frozen=True, slots=True)
class Program:
    """One step of `microbatches` micro-batches."""

    roles: tuple[Role, ...]
    schedule: Schedule
    stages: int
    chunks_per_stage: int
    microbatches: int
    passes: dict[tuple[Pass, int], Template]
    """Template of each pass of each (global) chunk."""
    receive: Template
    """What a role does with a message that has arrived, before the pass that needs it; empty for
    most layouts."""
    message: Message
    finish: tuple[Template, ...]
    """Per stage: gradient reduction, optimizer, parameter gathering. A step with empty `after`
    waits for the whole role's passes; see `ready_after`."""
    ready_after: tuple[tuple[int | None, ...], ...]
    """Per stage and step of `finish`: the chunk whose last backward pass releases it; None: nothing
    but `after`."""
    capacity: dict[str, float]
    """Bytes per nanosecond of one port in one direction, per link class."""
    dispatch_ns: float = 0.0
    """What the host needs per kernel: no pass is over before its kernels are launched."""

    @property
    def chunk_map(self) -> ChunkMap:
        """Where the chunks live."""
        return self.schedule.chunk_map(self.stages, self.chunks_per_stage)
