"""What a weight update is made of: the plan (who holds, sends and takes what), the program
(operations over links), and the trace (when each of them ran)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from twin.kinds.weight_update.buckets import Bucket, Buffers
from twin.network.links import LinkClass
from twin.planning.types import Warning
from twin.scenario import UpdateScenario

NAME: Final = "weight_update"
"""Of the kind that these nouns are of."""

Stage = Literal["regroup", "read", "host_copy", "fetch", "broadcast", "send", "handover", "reload"]
"""What an operation does. `regroup`: a new instance joins; `read`: from storage; `host_copy`: host
to device; `fetch`: another host's copy to a device; `broadcast`, `send`: device to devices;
`handover`: ranks meet, engines are told; `reload`: into the engine's own weights."""

STAGES: Final[tuple[Stage, ...]] = (
    "regroup",
    "read",
    "host_copy",
    "fetch",
    "broadcast",
    "send",
    "handover",
    "reload",
)

Link = LinkClass | Literal["storage"]
"""Classes of links; `storage` is what delivers the checkpoint to all nodes."""


@dataclass(frozen=True, slots=True)
class UpdateMemory:
    """Device bytes of the fullest rank by category, and host bytes of the fullest node."""

    categories: Mapping[str, float]
    capacity: float
    reserve: Mapping[str, float]
    host_bytes: float
    host_capacity: float

    @property
    def device_bytes(self) -> float:
        """All categories."""
        return sum(self.categories.values())

    @property
    def budget(self) -> float:
        """Bytes for tensors: capacity minus reserve."""
        return self.capacity - sum(self.reserve.values())

    @property
    def fits(self) -> bool:
        """True when device and host hold what they have to."""
        return self.device_bytes <= self.budget and self.host_bytes <= self.host_capacity


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """The resolved update. `takers` are the ranks that get the weights: all GPUs, but for a
    recovery, which is of one instance. Of the checkpoint's bytes, `received` come to each rank,
    which keeps `held`."""

    kind: ClassVar[str] = NAME

    scenario: UpdateScenario
    tensors: int
    payload: int
    largest: int
    takers: int
    buffers: Buffers
    buckets: tuple[Bucket, ...]
    received: float
    held: float
    memory: UpdateMemory
    warnings: tuple[Warning, ...] = ()

    @property
    def rounds(self) -> int:
        """How many buckets the fullest owner brings."""
        return 1 + max(bucket.round for bucket in self.buckets)

    @property
    def instances(self) -> int:
        """Instances of the inference engine that are updated."""
        return self.takers // self.scenario.weight_update.replica.gpus

    @property
    def nodes(self) -> int:
        """Nodes of the takers."""
        return -(-self.takers // self.scenario.cluster.node.gpus)


@dataclass(frozen=True, slots=True)
class Flow:
    """Bytes on their way over links (indices into `UpdateProgram.capacity`)."""

    bytes: float
    links: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that takes time: `duration_ns`, then until its flows are through. It starts when
    all of `after` (earlier operations) are done. `rank` is the owner of what is moved, -1: all
    ranks; `carried` are the bytes over all links of each class."""

    stage: Stage | None
    """None for a mere meeting of others."""
    round: int
    rank: int
    bytes: float
    duration_ns: int
    after: tuple[int, ...]
    flows: tuple[Flow, ...]
    carried: Mapping[Link, float]


@dataclass(frozen=True, slots=True)
class UpdateProgram:
    """The update as data: operations, each after earlier ones; capacity in bytes per nanosecond of
    every link; and, per class, how many links there are and what one carries."""

    kind: ClassVar[str] = NAME

    operations: tuple[Operation, ...]
    capacity: tuple[float, ...]
    classes: Mapping[Link, tuple[float, float]]
    """Links of a class, and bytes per nanosecond of one."""


@dataclass(frozen=True, slots=True)
class UpdateTrace:
    """When each operation ran, in integer nanoseconds, and what that means: `breakdown_ns` follows
    the operations that made the update as long as it is, and sums to `update_ns`; `busy_ns` is how
    long each stage was at work anywhere, whatever ran beside it."""

    kind: ClassVar[str] = NAME

    start: tuple[int, ...]
    end: tuple[int, ...]
    critical: tuple[int, ...]
    update_ns: int
    breakdown_ns: Mapping[Stage, int]
    busy_ns: Mapping[Stage, int]
    link_bytes: Mapping[Link, float]
    """Bytes over one link of each class, mean of all."""
    link_busy: Mapping[Link, float]
    """Share of the update's capacity used, per class."""
    events: int
