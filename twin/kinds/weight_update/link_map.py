"""The links that an update's bytes cross, for every rank by itself.

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

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from twin.kinds.weight_update.types import Flow, Link, UpdatePlan
from twin.network.links import capacity, far_share
from twin.network.placement import Placement
from twin.spec.cluster import ClusterSpec

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
