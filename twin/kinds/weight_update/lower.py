"""Plan to program of an update: its operations, in the order in which ranks do them.

Two stages, as checkpoint-engine runs: in every round all ranks copy their next bucket from the
host, together; then one bucket after another goes from its owner to all. Engines reload a bucket
while the next one is broadcast, from the other half of their buffer; before it is handed over, all
ranks meet. Three stages: a rank copies its next bucket as soon as its copy buffer is free again,
which is when its bucket has left it, whatever else is on the way. Without a copy buffer every owner
copies in its own turn.

Sent point to point, the ranks of a round send at once; there is no reload. In three stages the next
buckets are copied meanwhile, into another buffer.

The links that an update's bytes cross, for every rank by itself.

A copy from the host reads the DRAM of a socket and enters the GPU by its PCIe link; what a NIC
brings enters by the same link (GPUDirect), and so the two meet there. What is sent leaves by the
other direction, which nothing shares. A broadcast is a ring per busy NIC, as NCCL's: rings have one
direction, so that the GPUs before the owner are reached last, and every node is entered, the
owner's, too. Inside a node it passes from GPU to GPU over NVLink, so that all of it crosses each
port. Rings are pipelined: bytes move at the rate of the slowest link on their way. Left out: the
uplinks of leaf switches as links of their own (oversubscribed ones slow the NICs), and the second
direction of NVLink.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType
from typing import Final, Literal

from twin.engine.cost_model import nanoseconds
from twin.kinds.weight_update.plan import (
    Bucket,
    Flow,
    Link,
    Operation,
    Stage,
    UpdatePlan,
    UpdateProgram,
)
from twin.network.links import capacity, far_share, latency
from twin.network.placement import Placement
from twin.spec.cluster import ClusterSpec

ALL: Final = -1
"""Stands for all ranks."""
NOTHING: Mapping[Link, float] = MappingProxyType({})


def lower(plan: UpdatePlan) -> UpdateProgram:
    """The operations of an update and the links that they share."""
    made = _Program(plan, Wires(plan))
    first = made.prepare()
    if plan.scenario.weight_update.method == "p2p":
        made.send_all(first)
    else:
        made.broadcast_all(first)
    return UpdateProgram(tuple(made.operations), tuple(made.wires.rates), made.wires.classes())


@dataclass(slots=True)
class _Program:
    """The operations so far."""

    plan: UpdatePlan
    wires: Wires
    operations: list[Operation] = field(default_factory=list[Operation])

    def prepare(self) -> tuple[int, ...]:
        """What happens before the first bucket: reading a checkpoint, or joining."""
        update = self.plan.scenario.weight_update
        if update.event == "recover":
            return (self.add("regroup", seconds=update.updater.regroup),)
        if update.event == "update":
            return ()
        own = [0] * self.plan.nodes
        for bucket in self.plan.buckets:
            own[bucket.owner // self.plan.scenario.cluster.node.gpus] += bucket.bytes
        reads = [
            self.add(
                "read", bytes=size, flows=self.wires.read(node, size), carried={"storage": size}
            )
            for node, size in enumerate(own)
            if size
        ]
        return (self.meet(reads),)

    def broadcast_all(self, first: tuple[int, ...]) -> None:
        """Every bucket to every taker. Ranks of a round copy from the host together, or each of
        them ahead, or, without a buffer for it, in its own turn."""
        together = self.plan.buffers.count == 3
        ahead = together and self.plan.scenario.weight_update.stages == "three"
        rounds = self._rounds()
        handed, reloaded = first, ()
        copied: dict[int, int] = {}
        for turn, buckets in enumerate(rounds):
            if together and (turn == 0 or not ahead):
                copied = self.copy_together(buckets, handed)
            coming = {one.owner: one for one in rounds[turn + 1]} if turn + 1 < len(rounds) else {}
            for bucket in buckets:
                ready = copied.pop(bucket.owner) if together else self.copy(bucket, handed)
                moved = self.move(bucket, (ready, *handed))
                if ahead and bucket.owner in coming:
                    copied[bucket.owner] = self.copy(coming[bucket.owner], (moved,))
                cast = self.broadcast(bucket, (moved,))
                handed = (self.hand_over(bucket, (cast, *reloaded)),)
                reloaded = (self.reload(bucket, handed),)

    def copy_together(self, buckets: Iterable[Bucket], after: Iterable[int]) -> dict[int, int]:
        """Copies of a round; by owner, what to wait for: all of them."""
        copies = {one.owner: self.copy(one, after) for one in buckets}
        return dict.fromkeys(copies, self.meet(copies.values()))

    def send_all(self, first: tuple[int, ...]) -> None:
        """To every rank what it needs of every bucket. With a second buffer, a copy waits for what
        was sent two rounds ago, and for the copy before it."""
        ahead = self.plan.buffers.count == 2
        sent = [first]
        copied = first
        for buckets in self._rounds():
            free = (*copied, *sent[max(0, len(sent) - 2)]) if ahead else sent[-1]
            copied = (self.meet(self.copy(one, free) for one in buckets),)
            sends = self.send(buckets, (*copied, *sent[-1]))
            sent.append((self.hand_over(buckets[0], sends),))

    def _rounds(self) -> list[tuple[Bucket, ...]]:
        by_round = groupby(self.plan.buckets, key=lambda one: one.round)
        return [tuple(group) for _, group in by_round]

    def copy(self, bucket: Bucket, after: Iterable[int]) -> int:
        """A bucket into its owner's buffer: from its host, or from another one for a recovery."""
        size, rank = bucket.bytes, bucket.owner
        cluster = self.plan.scenario.cluster
        if self.plan.scenario.weight_update.event == "recover":
            carried: dict[Link, float] = {"nic": size, "pcie": size}
            return self.add(
                "fetch",
                bucket,
                seconds=latency(cluster, "nic"),
                after=after,
                flows=self.wires.fetch(rank, size),
                carried=carried,
            )
        if self.plan.scenario.weight_update.source == "device":
            seconds = self._device_seconds(size)
            return self.add("broadcast", bucket, seconds=seconds, after=after)
        return self.add(
            "host_copy",
            bucket,
            seconds=latency(cluster, "pcie"),
            after=after,
            flows=self.wires.host_copy(rank, size),
            carried={"pcie": size, "dram": size},
        )

    def move(self, bucket: Bucket, after: Iterable[int]) -> int:
        """A bucket from its owner's copy buffer into the half that is sent; nothing without one."""
        seconds = self._device_seconds(bucket.bytes) if self.plan.buffers.count == 3 else 0.0
        return self.add("broadcast", bucket, seconds=seconds, after=after)

    def broadcast(self, bucket: Bucket, after: Iterable[int]) -> int:
        """A bucket from its owner to all takers: into every node by NICs, and on over NVLink; or
        from trainers to engines in place."""
        size, takers = bucket.bytes, self.plan.takers
        rate = self.plan.scenario.weight_update.updater.in_place
        if rate is not None:
            return self.add("broadcast", bucket, seconds=size / rate, after=after)
        entered = float(size * self.plan.nodes) if self.plan.nodes > 1 else 0.0
        return self.add(
            "broadcast",
            bucket,
            after=after,
            flows=self.wires.broadcast(size),
            carried={"nvlink": size * (takers - 1) - entered, "nic": entered, "pcie": entered},
        )

    def send(self, buckets: tuple[Bucket, ...], after: Iterable[int]) -> list[int]:
        """All sends of a round. Every rank receives alike."""
        takers, replica = self.plan.takers, self.plan.scenario.weight_update.replica
        near = min(self.plan.scenario.cluster.node.gpus, takers) / takers
        instances, after = self.plan.instances, tuple(after)
        sizes = {
            one.owner: instances
            * (
                one.replicated * replica.gpus
                + one.shared * replica.gpus / replica.tensor_ranks
                + (one.bytes - one.replicated - one.shared)
            )
            for one in buckets
        }
        into = sum(sizes.values()) / takers
        return [
            self.add(
                "send",
                turn=buckets[0].round,
                rank=rank,
                bytes=into,
                after=after,
                flows=self.wires.send(rank, sizes.get(rank, 0.0), into),
                carried={
                    "nvlink": into * near,
                    "nic": into * (1 - near),
                    "pcie": into * (1 - near),
                },
            )
            for rank in range(takers)
        ]

    def hand_over(self, bucket: Bucket, after: Iterable[int]) -> int:
        """All ranks have the bucket, and engines hear of it."""
        hop = self.plan.scenario.weight_update.updater.hop
        return self.add("handover", bucket, seconds=hop * (self.plan.takers - 1), after=after)

    def reload(self, bucket: Bucket, after: Iterable[int]) -> int:
        """An engine looks at every tensor of a bucket, and copies what it keeps of it."""
        replica = self.plan.scenario.weight_update.replica
        rest = bucket.bytes - bucket.replicated - bucket.shared
        kept = bucket.replicated + bucket.shared / replica.tensor_ranks + rest / replica.gpus
        own = self.plan.scenario
        per_tensor = own.weight_update.updater.each_tensor(own.model.layers)
        seconds = per_tensor * bucket.tensors + self._device_seconds(kept)
        return self.add("reload", bucket, seconds=seconds, after=after)

    def meet(self, after: Iterable[int]) -> int:
        """One operation to wait for instead of many."""
        return self.add(None, after=after)

    def add(  # noqa: PLR0913  one parameter per field of an operation
        self,
        stage: Stage | None,
        bucket: Bucket | None = None,
        *,
        turn: int = 0,
        rank: int = ALL,
        bytes: float = 0.0,
        seconds: float = 0.0,
        after: Iterable[int] = (),
        flows: tuple[Flow, ...] = (),
        carried: Mapping[Link, float] = NOTHING,
    ) -> int:
        """One more operation; its number. Of a bucket's, it has round, owner and bytes."""
        if bucket is not None:
            turn, rank, bytes = bucket.round, bucket.owner, bucket.bytes
        self.operations.append(
            Operation(stage, turn, rank, bytes, nanoseconds(seconds), tuple(after), flows, carried)
        )
        return len(self.operations) - 1

    def _device_seconds(self, size: float) -> float:
        """Reading and writing so many bytes of device memory."""
        scenario = self.plan.scenario
        memory = scenario.cluster.node.gpu.memory_bandwidth * scenario.calibration.bandwidth
        return 2 * size / memory


NANO: Final = 1e-9
"""Seconds of a nanosecond."""


@dataclass(slots=True)
class Wires:
    """Makes links as they are first crossed. `rates` is bytes per nanosecond of each."""

    plan: UpdatePlan
    rates: list[float] = field(default_factory=list[float])
    known: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    entered: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])

    def host_copy(self, rank: int, size: float) -> tuple[Flow, ...]:
        """From the host memory of a rank's socket."""
        return (Flow(size, (*self._memory(rank), self._pcie(rank))),)

    def fetch(self, rank: int, size: float) -> tuple[Flow, ...]:
        """From another host's memory, over the network. Its own links are many nodes', and carry
        little each."""
        return (Flow(size, (self._link("nic in", rank, self._nic()), self._pcie(rank))),)

    def read(self, node: int, size: float) -> tuple[Flow, ...]:
        """From storage to a node's host memory."""
        storage = self.plan.scenario.weight_update.storage
        assert storage is not None, "a start has storage"
        own = self._link("storage of a node", node, storage.per_node)
        return (Flow(size, (own, self._link("storage", 0, storage.total))),)

    def broadcast(self, size: float) -> tuple[Flow, ...]:
        """From any rank to all takers."""
        port = self._link("nvlink", 0, capacity(self._cluster, "nvlink"))
        if self.plan.nodes == 1:
            return (Flow(size, (port,)),) if self.plan.takers > 1 else ()
        return tuple(
            Flow(
                size / self.rails,
                (
                    port,
                    self._link("ring", rail, self._ring()),
                    *self._entries(rail),
                ),
            )
            for rail in range(self.rails)
        )

    def broadcast_rate(self) -> tuple[str, float]:
        """What holds a broadcast up, in words, and bytes per second of it with no host copy
        beside."""
        port, rings = capacity(self._cluster, "nvlink"), self.rails * self._ring()
        if self.plan.nodes == 1 or port <= rings:
            return "NVLink ports", port
        return f"the {self.rails} busy NICs of each node", rings

    def send(self, rank: int, out: float, into: float) -> tuple[Flow, ...]:
        """What a rank sends and receives at once, each taker its own: to its node over NVLink, to
        others over NICs."""
        near = min(self._per_node, self.plan.takers) / self.plan.takers
        nic = self._nic("all_to_all")
        return tuple(
            flow
            for flow in (
                Flow(out * (1 - near), (self._link("nic out", rank, nic),)),
                Flow(into * (1 - near), (self._link("nic in", rank, nic), self._pcie(rank))),
                Flow(
                    max(out, into) * near,
                    (self._link("nvlink port", rank, capacity(self._cluster, "nvlink")),),
                ),
            )
            if flow.bytes
        )

    def classes(self) -> Mapping[Link, tuple[float, float]]:
        """How many links of each class the takers have, and bytes per nanosecond of one."""
        cluster, takers, nodes = self._cluster, self.plan.takers, self.plan.nodes
        sockets = min(cluster.node.host.sockets, cluster.node.gpus)
        found: dict[Link, tuple[float, float]] = {
            "nvlink": (takers, capacity(cluster, "nvlink") * NANO),
            "pcie": (takers, capacity(cluster, "pcie") * NANO),
            "nic": (takers, capacity(cluster, "nic") * NANO),
            "dram": (nodes * sockets, capacity(cluster, "dram") * NANO),
        }
        storage = self.plan.scenario.weight_update.storage
        return found if storage is None else {**found, "storage": (1, storage.total * NANO)}

    @property
    def rails(self) -> int:
        """NICs of a node that a broadcast keeps busy."""
        per_node = min(self._per_node, self.plan.takers)
        return min(self.plan.scenario.weight_update.updater.nics, per_node)

    @property
    def _cluster(self) -> ClusterSpec:
        return self.plan.scenario.cluster

    @property
    def _per_node(self) -> int:
        return self._cluster.node.gpus

    def _entries(self, rail: int) -> tuple[int, ...]:
        """The PCIe links by which a ring enters the nodes; none where no host copy could meet it
        there."""
        if self.plan.scenario.weight_update.stages == "two" or self.plan.rounds == 1:
            return ()
        if rail not in self.entered:
            entry = rail * self._per_node // self.rails
            self.entered[rail] = tuple(
                self._pcie(node * self._per_node + entry) for node in range(self.plan.nodes)
            )
        return self.entered[rail]

    def _ring(self) -> float:
        """Bytes per second of one ring between nodes: through NICs, and their PCIe links."""
        efficiency = self.plan.scenario.weight_update.updater.efficiency
        return min(self._nic("broadcast") * efficiency, capacity(self._cluster, "pcie"))

    def _nic(self, kind: Literal["broadcast", "all_to_all"] = "all_to_all") -> float:
        """Bytes per second of one NIC when all use theirs, over uplinks that may have less."""
        fabric, takers = self._cluster.fabric, self.plan.takers
        pod = min(fabric.nodes_per_leaf * self._per_node, takers)
        group = Placement(takers, min(self._per_node, takers), pod)
        crowd = max(1.0, fabric.oversubscription * far_share(kind, group))
        return capacity(self._cluster, "nic") / crowd

    def _pcie(self, rank: int) -> int:
        return self._link("pcie", rank, capacity(self._cluster, "pcie"))

    def _memory(self, rank: int) -> tuple[int, ...]:
        """The DRAM of a rank's socket, and the way of its PCIe switch to it where the node has
        one."""
        host, (node, local) = self._cluster.node.host, divmod(rank, self._per_node)
        sockets = min(host.sockets, self._per_node)
        socket = node * sockets + local * sockets // self._per_node
        memory = self._link("dram", socket, capacity(self._cluster, "dram"))
        uplink = capacity(self._cluster, "pcie_uplink")
        if uplink is None:
            return (memory,)
        switches = -(-self._per_node // host.gpus_per_pcie_switch)
        switch = node * switches + local // host.gpus_per_pcie_switch
        return memory, self._link("pcie uplink", switch, uplink)

    def _link(self, name: str, index: int, rate: float) -> int:
        """The number of a link, made if it is new; `rate` in bytes per second."""
        if (name, index) not in self.known:
            self.known[name, index] = len(self.rates)
            self.rates.append(rate * NANO)
        return self.known[name, index]
