"""Speed of the two links that a GPU owns: what one port carries in one direction, and what one hop
costs.

Rates are what large transfers reach, not the line rate: line rate x efficiency of the link
(headers, protocol) and, for the NIC, x efficiency of the fabric (hashing of flows, congestion
control). Links that GPUs share (PCIe, DRAM, spines) are not here.
"""

from __future__ import annotations

from typing import Literal

from twin.network import topology
from twin.spec.cluster import ClusterSpec

LinkClass = Literal["nvlink", "nic"]
"""The links of one GPU: its port to the node's NVSwitch, and its NIC."""


def capacity(cluster: ClusterSpec, link: LinkClass) -> float:
    """Usable bytes per second of one GPU's port in one direction.

    An oversubscribed fabric slows every NIC as soon as the cluster needs more than one leaf per
    rail: pessimistic for groups that stay under one leaf, exact for those that all cross.
    """
    if link == "nvlink":
        return cluster.node.nvlink.bandwidth * cluster.node.nvlink.efficiency
    fabric = cluster.fabric
    crosses = topology.member(fabric.kind).switches(fabric, cluster.nodes) > 1
    share = fabric.efficiency / (fabric.oversubscription if crosses else 1.0)
    return cluster.node.nic.bandwidth * cluster.node.nic.efficiency * share


def latency(cluster: ClusterSpec, link: LinkClass) -> float:
    """Seconds that one serial hop costs beside its bytes: GPU to GPU through NVLink, or NIC to NIC
    through the fabric.

    The NIC's hop is priced for the farthest pair of nodes on one rail: NIC + switches crossed x
    latency of a switch.
    """
    if link == "nvlink":
        return cluster.node.nvlink.latency
    fabric = cluster.fabric
    switches = topology.member(fabric.kind).switches(fabric, cluster.nodes)
    return cluster.node.nic.latency + switches * fabric.hop_latency
