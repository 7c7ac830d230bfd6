"""The Program: one training step as data, ready to be played.

A step is a set of roles (folded: one per pipeline stage; all-ranks: every rank), each with in-order
streams like CUDA streams. What a role does in one pass of one micro-batch through one chunk is the
same for every micro-batch, so the Program keeps it once, as a template of `Step`s; the schedule
orders the passes; `finish` closes the step. Neighbouring kernels with no communication between them
are one step (a segment). `twin.engine.unroll` unrolls a Program into single operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from twin.collectives.traffic import Traffic
from twin.engine.expert_rows import ExpertRows
from twin.engine.link_map import Wiring
from twin.engine.unevenness import ALL, Noise, Shares
from twin.schedules.base import ChunkMap, Pass, Schedule

STREAMS: Final = (
    "compute",
    "tensor",
    "expert",
    "send_forward",
    "send_backward",
    "data",
    "context",
    "gather",
    "to_host",
    "from_host",
    "host",
)
"""In-order streams of every role. Sends have a stream per direction because each neighbour has its
own communicator; gathers of sharded parameters do not queue behind reductions of gradients (torch
FSDP2 has a stream for each). Then come copy engines, one per direction, and the host thread that
issues all the rest (`twin.engine.host`)."""

COMPUTE, TENSOR, EXPERT, SEND_FORWARD, SEND_BACKWARD = range(5)
DATA, CONTEXT, GATHER, TO_HOST, FROM_HOST, HOST = range(5, len(STREAMS))

IMBALANCE: Final = "imbalance"
"""Of compute steps: what the fullest rank of an expert group takes longer than the mean rank, which
waits for it at the next exchange."""

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
"""Who has to be ready before a step starts: only this role, or all members of one of its groups.
`world` are those who agree on the gradient norm: every rank, or where the schedule is staggered
those of a stage."""

MESH_GROUPS: Final[tuple[Group, ...]] = (
    "tensor",
    "context",
    "data",
    "expert_tensor",
    "expert",
    "expert_data",
)
"""Those that lie inside a stage (`twin.planning.mesh.GROUPS`)."""


@dataclass(frozen=True, slots=True)
class Step:
    """One element of a template. It heads its stream when the earlier step on that stream is done,
    and starts when the steps in `after` (positions in the same template) are done too. A compute
    step lasts `duration_ns`; a communication step lasts `duration_ns` (latency, and what a rank's
    own share costs) and then until its bytes are through its ports."""

    name: str
    stream: int
    duration_ns: int
    after: tuple[int, ...]
    traffic: Traffic | None = None
    group: Group = "self"
    host_ns: float = 0.0
    """What the host needs to issue it."""
    sms: int = 0
    """SMs that a communication kernel holds while it runs."""
    sm_bound: float = 1.0
    """Share of a compute step's time that SMs bound, not memory."""
    slowed: bool = False
    """Whether kernels beside it cost its bytes a part of their rate (`OverlapLoss`)."""
    rows: tuple[tuple[int, float], ...] = ()
    """Layers of the chunk on whose rows of experts it depends, and by how many nanoseconds it, or
    what follows it, is longer on the fullest rank than on the mean one."""
    asks: Literal["", "start", "end"] = ""
    """Whether the host waits until it could start, or for its end: then the other pass of a pair
    does not go on meanwhile."""

    def alone_ns(self, capacity: Mapping[str, float]) -> float:
        """How long it lasts with its links and SMs to itself; `capacity` as in `Program`."""
        if self.traffic is None:
            return self.duration_ns
        sizes = parts(self.traffic, slowed=self.slowed)
        times = (size / capacity[path] for path, size in sizes.items())
        return self.duration_ns + max(times, default=0.0)


Template = tuple[Step, ...]


def parts(traffic: Traffic, *, slowed: bool = False) -> dict[str, float]:
    """Bytes of a transfer by path, in one direction; those of `far` are the NIC's, too, and where
    it is slowed those of each are those of its channel."""
    sizes = {
        "nvlink": traffic.nvlink_bytes,
        "nic": traffic.nic_bytes,
        "far": traffic.far_bytes,
        "host": max(traffic.to_host_bytes, traffic.from_host_bytes),
    }
    if slowed:
        sizes |= {"slow_nvlink": traffic.nvlink_bytes, "slow_nic": traffic.nic_bytes}
    return {path: size for path, size in sizes.items() if size > 0}


def roots(template: Template) -> tuple[int, ...]:
    """Steps of the device that wait for no other of the template, but for their stream and the
    host."""
    host = {place for place, step in enumerate(template) if step.stream == HOST}
    return tuple(
        place
        for place, step in enumerate(template)
        if step.stream != HOST and host.issuperset(step.after)
    )


def last_steps(
    streams: Sequence[int], lanes: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of each pass, steps being on these streams and of these passes (negative: of none), the one
    that ends its result, and its last: reductions of gradients come after the result, and the host
    has no part in either."""
    ends: dict[int, int] = {}
    results: dict[int, int] = {}
    for place, (stream, lane) in enumerate(zip(streams, lanes, strict=True)):
        if lane >= 0 and streams[place] != HOST:
            ends[lane] = place
            if stream != DATA or lane not in results:
                results[lane] = place
    return tuple(results[lane] for lane in sorted(ends)), tuple(ends[lane] for lane in sorted(ends))


def send_stream(own: int, peer: int, stages: int, *, forward: bool) -> int:
    """The stream of a message to another stage: each neighbour has its own. Of two stages each is
    the other's only neighbour, on both sides."""
    up, down = (peer - own) % stages == 1, (own - peer) % stages == 1
    return SEND_FORWARD if up and (forward or not down) else SEND_BACKWARD


@dataclass(frozen=True, slots=True)
class StageMessage:
    """What one stage sends to a neighbour per pass: bytes, the link class they take, and the
    latency."""

    bytes: float
    link: Literal["nvlink", "nic"]
    latency_ns: int
    far: bool = False
    """Whether it leaves the leaf switch."""
    awaited: bool = False
    """Whether the host waits for it before it issues the pass behind."""
    apart: tuple[bool, ...] = ()
    """Of each stage whether the next one is on another site; empty: nobody's is."""
    distance_ns: int = 0
    """Between sites."""

    @property
    def delays(self) -> tuple[int, int]:
        """Latencies to a stage that is near, and to one on another site."""
        return self.latency_ns, self.latency_ns + self.distance_ns

    def between(self, source: int, target: int) -> StageMessage:
        """The same from one stage to another."""
        if not self.apart:
            return self
        low, high = sorted((source, target))
        one = low if high - low == 1 else high
        if not self.apart[one]:
            return replace(self, far=False)
        return replace(self, far=True, latency_ns=self.latency_ns + self.distance_ns)

    def step(self, stream: int) -> Step:
        """The same as a step on a stream."""
        flow = Traffic(nvlink_bytes=self.bytes)
        if self.link == "nic":
            flow = Traffic(nic_bytes=self.bytes, far_bytes=self.bytes if self.far else 0.0)
        return Step(STREAMS[stream], stream, self.latency_ns, (), flow)


@dataclass(frozen=True, slots=True)
class Role:
    """One simulated rank, standing for `ranks` identical ones. `peers` are the roles of its
    pipeline, by stage; `groups` names the group of each kind that it belongs to."""

    name: str
    stage: int
    ranks: int
    peers: tuple[int, ...]
    groups: dict[Group, int]
    shares: Shares = ALL
    """What is left to its GPU."""
    noise: Noise | None = None
    """How its kernels vary."""
    rank: int = 0
    """The first of its ranks."""
    expert: int = 0
    """Its number in its expert group."""

    def scaled(self, durations: NDArray[np.int64], streams: NDArray[np.int32]) -> NDArray[np.int64]:
        """Nanoseconds of steps on its GPU, from those on a GPU like the rest."""
        if not self.uneven:
            return durations
        kernels = np.flatnonzero(streams == COMPUTE)
        times = durations[kernels] / self.shares.compute
        if self.noise is not None:
            times *= self.noise.factors(self.rank, len(kernels))
        found = durations.copy()
        found[kernels] = np.rint(times).astype(np.int64)
        return found

    @property
    def uneven(self) -> bool:
        """Whether its GPU does not do what the rest do."""
        return self.shares != ALL or self.noise is not None


@dataclass(frozen=True, slots=True)
class OverlapLoss:
    """What an expert all-to-all loses beside the kernels of the other pass of a pair: time that its
    ranks wait for each other first, and a part of its rate."""

    wait_ns: int = 0
    loss: float = 0.0


@dataclass(frozen=True, slots=True)
class Offload:
    """Activations on their way through host memory: bytes of one pass of each chunk."""

    bytes: tuple[float, ...]
    latency_ns: int

    def copy(self, stream: int, size: float) -> Step:
        """A copy of so many bytes from the device to the host, or back."""
        flow = Traffic(to_host_bytes=size) if stream == TO_HOST else Traffic(from_host_bytes=size)
        return Step(STREAMS[stream], stream, self.latency_ns, (), flow)


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
    message: StageMessage
    finish: tuple[Template, ...]
    """Per stage: gradient reduction, optimizer, parameter gathering. A step with empty `after`
    waits for the whole role's passes; see `ready_after`."""
    ready_after: tuple[tuple[int | None, ...], ...]
    """Per stage and step of `finish`: the chunk whose last backward pass releases it; None: nothing
    but `after`."""
    wiring: Wiring
    """The links of the roles."""
    sync_ns: float = 0.0
    """What it takes the host to go on after it has waited for the device."""
    offload: Offload | None = None
    sms: int = 1
    """Of a GPU."""
    contention: float = 0.0
    """Speed that kernels lose beside communication, beyond the SMs that it holds."""
    contention_by_role: tuple[float, ...] = ()
    """The same of each role, where jobs of two stacks run beside each other."""
    beside: OverlapLoss = OverlapLoss()
    expert_rows: ExpertRows | None = None
    """The rows of each expert rank; None: all are the fullest."""
    opening: tuple[Template, ...] = ()
    """Per stage: weights that the last step's update has left to gather."""
    opens: tuple[tuple[int, ...], ...] = ()
    """Per stage and step of `opening`: the chunk whose first forward waits for it."""
    ends: Mapping[tuple[Pass, int], Template] = field(
        default_factory=dict[tuple[Pass, int], Template]
    )
    """Of chunks that gather new weights or reduce gradients by bucket: the first forward and the
    last backward, with these collectives on the stream `data`."""

    def template(self, kind: Pass, chunk: int, end: bool) -> Template:
        """The template of a pass; `end`: the chunk's first forward or last backward."""
        key = kind, chunk
        return self.ends[key] if end and key in self.ends else self.passes[key]

    def once(self, stage: int) -> Template:
        """What a role of a stage sends once in a step: what opens and closes it, and its
        buckets."""
        stage_of = self.chunk_map.stage_of
        own = (steps for (_, chunk), steps in self.ends.items() if stage_of[chunk] == stage)
        by_bucket = (step for steps in own for step in steps if step.stream == DATA)
        opening = self.opening[stage] if self.opening else ()
        return (*opening, *by_bucket, *self.finish[stage])

    @property
    def uneven(self) -> bool:
        """Whether GPUs differ."""
        return any(role.uneven for role in self.roles)

    @property
    def repeats(self) -> bool:
        """Whether the same kernels take as long again."""
        return all(role.noise is None for role in self.roles)

    @property
    def contentions(self) -> tuple[float, ...]:
        """Of each role, the speed that its kernels lose beside communication."""
        return self.contention_by_role or (self.contention,) * len(self.roles)

    @property
    def capacity(self) -> Mapping[str, float]:
        """Bytes per nanosecond of one transfer that has its links to itself, per path."""
        return self.wiring.alone

    @property
    def chunk_map(self) -> ChunkMap:
        """Where the chunks live."""
        return self.schedule.chunk_map(self.stages, self.chunks_per_stage)
