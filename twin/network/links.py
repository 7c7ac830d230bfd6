"""Speed of the two links that a GPU owns: what one port carries in one direction, what one hop
costs, and how much longer bytes take that cross an oversubscribed spine.

Rates are what large transfers reach, not the line rate: line rate x efficiency of the link
(headers, protocol) and, for the NIC, x efficiency of the fabric (hashing of flows, congestion
control). Links that GPUs share (PCIe, DRAM) are not here; spines are, as `crowding`.
"""

from __future__ import annotations

from typing import Literal

from twin.arch.ops import CollectiveKind
from twin.network import topology
from twin.network.placement import Placement
from twin.spec.cluster import ClusterSpec

LinkClass = Literal["nvlink", "nic"]
"""The links of one GPU: its port to the node's NVSwitch, and its NIC."""


def capacity(cluster: ClusterSpec, link: LinkClass) -> float:
    """Usable bytes per second of one GPU's port in one direction, under its leaf switch."""
    if link == "nvlink":
        return cluster.node.nvlink.bandwidth * cluster.node.nvlink.efficiency
    nic = cluster.node.nic
    return nic.bandwidth * nic.efficiency * cluster.fabric.efficiency


def latency(cluster: ClusterSpec, link: LinkClass, placement: Placement | None = None) -> float:
    """Seconds that one serial hop costs beside its bytes: GPU to GPU through NVLink, or NIC to NIC
    through the fabric, NIC + switches crossed x latency of a switch.

    A group inside one pod crosses its leaf only. Any other, and where no placement is given, is
    priced for the farthest pair of nodes of the cluster: pessimistic for the hops of a ring that
    stay inside a pod.
    """
    if link == "nvlink":
        return cluster.node.nvlink.latency
    fabric = cluster.fabric
    near = placement is not None and placement.in_one_pod
    nodes = min(cluster.nodes, fabric.nodes_per_leaf) if near else cluster.nodes
    switches = topology.member(fabric.kind).switches(fabric, nodes)
    return cluster.node.nic.latency + switches * fabric.hop_latency


def crowding(
    cluster: ClusterSpec, kind: CollectiveKind | Literal["message"], placement: Placement
) -> float:
    """How many times longer the NICs' bytes of a group take because uplinks are oversubscribed,
    when all groups of its kind exchange at once; 1 inside one pod or at full bisection.

    A leaf's uplinks carry 1 / oversubscription of what its NICs send. So a ring over four nodes of
    each pod does not feel an oversubscription of 4. Flows that do not share a leaf evenly would
    feel more; groups of other kinds that use the same uplinks at the same time, too.
    """
    return max(1.0, cluster.fabric.oversubscription * crossing(cluster, kind, placement))


def crossing(
    cluster: ClusterSpec, kind: CollectiveKind | Literal["message"], placement: Placement
) -> float:
    """Share of what the NICs of a group send that leaves their pod: of a ring one node of each pod
    sends to another pod, of an all-to-all each rank what goes to members in other pods, of pipeline
    messages all; nothing where the group is inside one pod."""
    if placement.in_one_pod or cluster.nodes <= cluster.fabric.nodes_per_leaf:
        return 0.0
    match kind:
        case "message":
            return 1.0
        case "all_to_all":
            near = placement.nodes_per_pod * placement.per_node
            return (placement.size - near) / (placement.size - placement.per_node)
        case _:
            return 1.0 / placement.nodes_per_pod
