"""Speed of the links that bytes cross: what one of each class carries, how many GPUs share it, what
one hop costs, and which part of a group's bytes leaves its leaf switch.

Rates are what large transfers reach, not the line rate: line rate x efficiency of the link
(headers, protocol) and, for the NIC, x efficiency of the fabric (hashing of flows, congestion
control). `twin.network.fabric` wires the same links to a graph.
"""

from __future__ import annotations

from math import ceil
from typing import Final, Literal, overload

from twin.arch.ops import CollectiveKind
from twin.network import topology
from twin.network.placement import Placement
from twin.spec.cluster import ClusterSpec

LinkClass = Literal["nvlink", "pcie", "nic", "dram", "pcie_uplink", "leaf"]
"""A GPU's port to the NVSwitch, its x16 to the PCIe switch (for its NIC and host copies), its NIC;
shared: the memory of a socket, read and written together, a PCIe switch's way up to its socket, and
the uplinks of one leaf switch. Rates are of one direction, but for memory."""

LINKS: Final[tuple[LinkClass, ...]] = ("nvlink", "pcie", "nic", "dram", "pcie_uplink", "leaf")


@overload
def capacity(cluster: ClusterSpec, link: Literal["nvlink", "pcie", "nic", "dram"]) -> float: ...


@overload
def capacity(cluster: ClusterSpec, link: LinkClass) -> float | None: ...


def capacity(cluster: ClusterSpec, link: LinkClass) -> float | None:
    """Usable bytes per second of one link.

    None where a shared link carries whatever its sharers send: the uplinks of leaves at full
    bisection or in a cluster of one pod, and those of PCIe switches that the node says nothing of.
    """
    node, host = cluster.node, cluster.node.host
    match link:
        case "nvlink":
            return node.nvlink.bandwidth * node.nvlink.efficiency
        case "pcie":
            return host.pcie.bandwidth * host.pcie.efficiency
        case "nic":
            return node.nic.bandwidth * node.nic.efficiency * cluster.fabric.efficiency
        case "dram":
            return host.memory_bandwidth_per_socket * host.memory_efficiency
        case "pcie_uplink":
            return host.pcie_uplink and host.pcie_uplink * host.pcie.efficiency
        case "leaf":
            return _uplinks(cluster)


def _uplinks(cluster: ClusterSpec) -> float | None:
    fabric = cluster.fabric
    if fabric.oversubscription == 1 or cluster.nodes <= fabric.nodes_per_leaf:
        return None
    return sharers(cluster, "leaf") * capacity(cluster, "nic") / fabric.oversubscription


def sharers(cluster: ClusterSpec, link: LinkClass) -> float:
    """GPUs that share one link of the class; the fullest one, where they do not divide evenly."""
    match link:
        case "dram":
            return ceil(cluster.node.gpus / cluster.node.host.sockets)
        case "pcie_uplink":
            return min(cluster.node.host.gpus_per_pcie_switch, cluster.node.gpus)
        case "leaf":
            return topology.member(cluster.fabric.kind).nics_per_leaf(cluster)
        case _:
            return 1


def latency(
    cluster: ClusterSpec, link: Literal["nvlink", "nic", "pcie"], placement: Placement | None = None
) -> float:
    """Seconds that one serial hop costs beside its bytes: GPU to GPU through NVLink, NIC to NIC
    through the fabric, NIC + switches crossed x latency of a switch, or the start of a host copy.

    A group inside one pod crosses its leaf only. Any other, and where no placement is given, is
    priced for the farthest pair of nodes of the cluster: pessimistic for the hops of a ring that
    stay inside a pod.
    """
    if link == "nvlink":
        return cluster.node.nvlink.latency
    if link == "pcie":
        return cluster.node.host.pcie.latency
    fabric = cluster.fabric
    near = placement is not None and placement.in_one_pod
    nodes = min(cluster.nodes, fabric.nodes_per_leaf) if near else cluster.nodes
    switches = topology.member(fabric.kind).switches(fabric, nodes)
    return cluster.node.nic.latency + switches * fabric.hop_latency


def crossing(
    cluster: ClusterSpec, kind: CollectiveKind | Literal["message"], placement: Placement
) -> float:
    """Share of what the NICs of a group send that leaves their pod; nothing in a cluster of one."""
    if cluster.nodes <= cluster.fabric.nodes_per_leaf:
        return 0.0
    return far_share(kind, placement)


def far_share(kind: CollectiveKind | Literal["message"], placement: Placement) -> float:
    """Share of what the NICs of a group send that leaves their leaf: of a ring one node of each pod
    sends to another pod (of a tree as much: two nodes, each half of the payload per tree), of an
    all-to-all each rank what goes to members in other pods, of messages all; nothing where the
    group is inside one pod."""
    if placement.in_one_pod:
        return 0.0
    match kind:
        case "message":
            return 1.0
        case "all_to_all":
            near = placement.nodes_per_pod * placement.per_node
            return (placement.size - near) / (placement.size - placement.per_node)
        case _:
            return 1.0 / placement.nodes_per_pod
