"""Scenario to plan of an update: who owns what, in which buckets it travels, and what that takes of
memory.

What a weight update is made of: the plan (who holds, sends and takes what), the program
(operations over links), and the trace (when each of them ran).

Who holds which tensors in host memory, and the buckets in which they travel.

As checkpoint-engine does it (`ps.py`, `examples/update.py`): tensors are dealt out in order, as
many to each rank; a bucket holds whole tensors of one owner, and is closed when the next one would
not fit. Its size is the limit, or the largest tensor where that is larger, and at most a third of
the free memory: one buffer takes the copy from the host, the halves of another are filled and
reloaded in turn. Where a third does not hold the largest tensor, the first buffer is left out, and
the other two take half of the memory each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import ClassVar, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from twin.errors import Problem, ScenarioError
from twin.kinds.weight_update.checkpoint import CUTS, Checkpoint, checkpoint
from twin.network.links import LinkClass
from twin.planning.mesh import divisors
from twin.planning.model_rules import nearest
from twin.planning.types import Warning
from twin.reports.table import gibibytes
from twin.scenario import UpdateScenario
from twin.units import format_quantity

MOST_GPUS = 8192
"""Ranks of an update; every one of them is simulated."""
MOST_BUCKETS = 50_000


def plan(scenario: UpdateScenario) -> UpdatePlan:
    """The resolved update of a scenario.

    Raises:
        ScenarioError: it cannot happen as written; carries every problem.
    """
    if found := _problems(scenario):
        raise ScenarioError(scenario.locate(found))
    update, gpus = scenario.weight_update, scenario.cluster.gpus
    weights = checkpoint(scenario.model, update.precision)
    space = _buffers(scenario, weights)
    if found := _tight(scenario, weights, space):
        raise ScenarioError(scenario.locate(found))
    made = buckets(weights, gpus, space.bytes)
    recovers = update.event == "recover"
    takers = update.replica.gpus if recovers else gpus
    held = held_bytes(weights, scenario)
    return UpdatePlan(
        scenario=scenario,
        tensors=weights.tensors,
        payload=weights.payload,
        largest=weights.largest,
        takers=takers,
        buffers=space,
        buckets=_brought(made, update.updater.readers or takers) if recovers else made,
        received=held if update.method == "p2p" else float(weights.payload),
        held=held,
        memory=_memory(scenario, weights, space, held),
        warnings=_warnings(scenario, space, made, takers),
    )


def held_bytes(weights: Checkpoint, scenario: UpdateScenario) -> float:
    """Bytes of the checkpoint that one rank of an instance keeps."""
    replica, cut = scenario.weight_update.replica, weights.by_cut()
    return cut["replicated"] + cut["tensor"] / replica.tensor_ranks + cut["expert"] / replica.gpus


def _problems(scenario: UpdateScenario) -> list[Problem]:
    update, gpus = scenario.weight_update, scenario.cluster.gpus
    found: list[Problem] = []
    if gpus % update.replica.gpus:
        message = f"{gpus} GPUs are no whole number of instances of {update.replica.gpus}"
        hint = nearest("gpus", update.replica.gpus, divisors(gpus))
        found.append(Problem("TW153", "weight_update.replica.gpus", message, hint))
    if update.event == "start" and update.storage is None:
        message = "a start reads the checkpoint from storage, and nothing says how fast that is"
        hint = "add `storage: {per_node: 10GB/s, total: 100GB/s}`, with your rates"
        found.append(Problem("TW154", "weight_update.event", message, hint))
    if update.event == "recover" and update.method == "p2p":
        message = "an instance that recovers reads whole buckets and broadcasts them in itself"
        hint = "write `method: broadcast`, or another event"
        found.append(Problem("TW155", "weight_update.method", message, hint))
    if gpus > MOST_GPUS:
        message = f"{gpus:,} GPUs: an update is simulated for {MOST_GPUS:,} at most"
        hint = f"at most {MOST_GPUS // scenario.cluster.node.gpus:,} nodes"
        found.append(Problem("TW157", "cluster.nodes", message, hint))
    return found


def _buffers(scenario: UpdateScenario, weights: Checkpoint) -> Buffers:
    """The buffers that the free memory allows. A rank that sends needs one buffer, or two if it
    copies the next bucket meanwhile: what arrives goes straight into the engine's weights."""
    update = scenario.weight_update
    if update.method == "broadcast":
        return buffers(update.free_memory, update.bucket, weights.largest)
    count = 2 if update.stages == "three" else 1
    limit = min(max(update.bucket, weights.largest), update.free_memory // count)
    return Buffers(int(limit), count)


def _tight(scenario: UpdateScenario, weights: Checkpoint, space: Buffers) -> list[Problem]:
    free, path = scenario.weight_update.free_memory, "weight_update.free_memory"
    if space.bytes < weights.largest:
        message = (
            f"the largest tensor has {gibibytes(weights.largest)}, and {space.count} buffers in "
            f"{gibibytes(free)} have {gibibytes(space.bytes)} each"
        )
        least = format_quantity(space.count * weights.largest, "bytes", digits=4)
        return [Problem("TW156", path, message, f"free more than {least}")]
    if weights.payload > MOST_BUCKETS * space.bytes:
        message = f"buffers of {gibibytes(space.bytes)} make more than {MOST_BUCKETS:,} buckets"
        return [Problem("TW157", path, message, "free more memory, or allow larger buckets")]
    return []


def _brought(made: tuple[Bucket, ...], readers: int) -> tuple[Bucket, ...]:
    """Buckets of owners elsewhere, dealt out to the ranks of one instance that bring them."""
    return tuple(
        replace(bucket, owner=at % readers, round=at // readers) for at, bucket in enumerate(made)
    )


def _memory(
    scenario: UpdateScenario, weights: Checkpoint, space: Buffers, held: float
) -> UpdateMemory:
    node, gpus = scenario.cluster.node, scenario.cluster.gpus
    own = min(ceil(weights.tensors / gpus) * node.gpus, weights.tensors)
    return UpdateMemory(
        categories={
            "weights of the engine": held,
            "buffers of the update": float(space.count * space.bytes),
        },
        capacity=node.gpu.memory,
        reserve={entry.name: entry.bytes for entry in node.gpu.reserve},
        host_bytes=float(_fullest(weights, own)),
        host_capacity=node.host.memory,
    )


def _fullest(weights: Checkpoint, count: int) -> int:
    """Bytes of the fullest of the nodes, which have so many tensors each, in order."""
    return max(
        int(weights.bytes[first : first + count].sum())
        for first in range(0, weights.tensors, count)
    )


def _warnings(
    scenario: UpdateScenario, space: Buffers, made: tuple[Bucket, ...], takers: int
) -> tuple[Warning, ...]:
    update, updater = scenario.weight_update, scenario.weight_update.updater
    found: list[Warning] = []
    if updater.nics > scenario.cluster.node.gpus:
        text = "The updater keeps more NICs busy than a node has: all of the node's are counted."
        found.append(Warning("more-nics-than-gpus", text))
    gpu = scenario.cluster.node.gpu.name
    if updater.gpu != gpu:
        text = f"The updater {updater.name} was measured on {updater.gpu}, and is used for {gpu}."
        found.append(Warning("updater-of-another-gpu", text))
    if update.method == "broadcast" and space.count == 2:
        text = (
            "A third of the free memory does not hold the largest tensor, so there is no buffer "
            "for copies from the host: owners copy one after another."
        )
        found.append(Warning("no-copy-buffer", text))
    if update.method == "p2p":
        text = (
            "Sending only what each rank needs is the links' bound: a map of both layouts is taken "
            "to be made before, and weights to arrive in place. No measured row was fitted."
        )
        found.append(Warning("ideal-p2p", text))
    if update.stages == "three":
        text = "No measured row has three stages; what they do follows from the links."
        found.append(Warning("unmeasured-three-stages", text))
    if update.event == "start":
        text = "What reading from storage takes is the planner's own rate; no row was fitted."
        found.append(Warning("unmeasured-start", text))
    elif update.storage is not None:
        text = f"storage changes nothing: the event `{update.event}` reads no checkpoint."
        found.append(Warning("idle-storage", text))
    if takers > 256:
        text = "More than 256 GPUs: the time per rank and bucket was fitted on 16 and 256."
        found.append(Warning("beyond-fitted-ranks", text))
    if len({bucket.owner for bucket in made}) < scenario.cluster.gpus:
        text = "There are fewer tensors than GPUs, so some of them bring nothing."
        found.append(Warning("idle-owners", text))
    return tuple(found)


NAME: Final = "weight_update"
"""Of the kind that these nouns are of."""

Stage = Literal["regroup", "read", "host_copy", "fetch", "broadcast", "send", "handover", "reload"]
"""What an operation does. `regroup`: a new instance joins; `read`: from storage; `host_copy`: host
to device; `fetch`: another host's copy to a device; `broadcast`, `send`: device to devices;
`handover`: ranks meet, engines are told; `reload`: into the engine's own weights."""

STAGES: Final[tuple[Stage, ...]] = get_args(Stage)

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


@dataclass(frozen=True, slots=True)
class Buffers:
    """Bytes of one buffer, and how many there are: three, or two without one for host copies."""

    bytes: int
    count: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """Whole tensors of one owner that travel together: their bytes, those that every rank of an
    instance takes (`replicated`), and those that they share by the dense matrices' ranks."""

    owner: int
    round: int
    bytes: int
    tensors: int
    replicated: int
    shared: int


def buffers(free: float, limit: float, largest: int) -> Buffers:
    """The buffers that fit in `free` bytes. Too small ones say that the largest tensor does not
    fit: `bytes` < `largest`."""
    count = 3 if largest <= free // 3 else 2
    return Buffers(int(min(max(limit, largest), free // count)), count)


def shares(tensors: int, owners: int) -> list[range]:
    """The tensors of each owner: equal counts, the last ones fewer or none."""
    each = -(-tensors // owners)
    return [range(min(i * each, tensors), min((i + 1) * each, tensors)) for i in range(owners)]


def pack(sizes: NDArray[np.int64], limit: int) -> list[range]:
    """Tensors of these sizes in buckets of at most `limit` bytes, in order; `limit` holds every
    one of them."""
    ends = np.cumsum(sizes)
    found: list[range] = []
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + limit, side="right"))
        found.append(range(start, stop))
        start = stop
    return found


def buckets(checkpoint: Checkpoint, owners: int, limit: int) -> tuple[Bucket, ...]:
    """All buckets in the order in which they travel: the first one of every owner, then the second
    ones, and so on."""
    found: list[Bucket] = []
    for owner, own in enumerate(shares(checkpoint.tensors, owners)):
        sizes, cuts = checkpoint.bytes[own.start : own.stop], checkpoint.cut[own.start : own.stop]
        for turn, packed in enumerate(pack(sizes, limit)):
            part = slice(packed.start, packed.stop)
            found.append(_bucket(owner, turn, sizes[part], cuts[part]))
    return tuple(sorted(found, key=lambda one: (one.round, one.owner)))


def _bucket(owner: int, turn: int, sizes: NDArray[np.int64], cuts: NDArray[np.int8]) -> Bucket:
    replicated, shared = (
        int(sizes[cuts == CUTS.index(cut)].sum()) for cut in ("replicated", "tensor")
    )
    return Bucket(owner, turn, int(sizes.sum()), len(sizes), replicated, shared)
