"""A rail-optimised fat tree of two levels: NIC r of every node goes to leaf r of its pod, and every
leaf to every spine.

A pod is as many nodes as a leaf has ports for. GPUs of equal index share a rail, so that neighbours
in a rail talk through one leaf inside a pod, and through leaf, spine, leaf across pods. Sources:
DeepSeek-AI, "Insights into DeepSeek-V3", ISCA 2025, section 5.1; NVIDIA DGX SuperPOD reference
architecture (A100), compute fabric. Left out: a third level (core switches), needed beyond spine
ports / rails pods, and failed links.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, ClassVar, final

from twin.network.topology.base import Topology
from twin.spec.cluster import ClusterSpec, FabricSpec

if TYPE_CHECKING:
    import networkx as nx


@final
class RailFatTree(Topology):
    """One leaf per rail and pod; all leaves meet in the spines."""

    kind: ClassVar[str] = "rail_fat_tree"

    def switches(self, fabric: FabricSpec, nodes: int) -> int:
        """0 for one node, 1 inside a pod (the leaf), 3 across pods (leaf, spine, leaf)."""
        if nodes == 1:
            return 0
        return 1 if nodes <= fabric.nodes_per_leaf else 3

    def graph(self, cluster: ClusterSpec) -> nx.Graph[str]:
        """Nodes wired to leaves rail by rail, and leaves to spines; uplinks share the NICs' rate /
        oversubscription."""
        import networkx as nx  # noqa: PLC0415  a planner's run asks for `switches` only and must not pay for networkx

        graph: nx.Graph[str] = nx.Graph()
        for node in range(cluster.nodes):
            _add_node(graph, cluster, node)
        fabric = cluster.fabric
        leaf_rate = fabric.nodes_per_leaf * cluster.node.nic.bandwidth
        uplink = leaf_rate / fabric.oversubscription / fabric.spines
        for pod in range(ceil(cluster.nodes / fabric.nodes_per_leaf)):
            for rail in range(cluster.node.gpus):
                graph.add_node(f"leaf/{pod}/{rail}", role="leaf")
                for spine in range(fabric.spines):
                    graph.add_node(f"spine/{spine}", role="spine")
                    graph.add_edge(f"leaf/{pod}/{rail}", f"spine/{spine}", capacity=uplink)
        return graph


def _add_node(graph: nx.Graph[str], cluster: ClusterSpec, node: int) -> None:
    """Adds one server: GPUs to the NVSwitch by NVLink, each GPU to its NIC by PCIe, each NIC to its
    rail's leaf."""
    spec = cluster.node
    graph.add_node(f"nvswitch/{node}", role="nvswitch")
    for rail in range(spec.gpus):
        gpu, nic = f"gpu/{node}/{rail}", f"nic/{node}/{rail}"
        graph.add_node(gpu, role="gpu")
        graph.add_node(nic, role="nic")
        graph.add_edge(gpu, f"nvswitch/{node}", capacity=spec.nvlink.bandwidth)
        graph.add_edge(gpu, nic, capacity=spec.host.pcie.bandwidth)
        leaf = f"leaf/{node // cluster.fabric.nodes_per_leaf}/{rail}"
        graph.add_node(leaf, role="leaf")
        graph.add_edge(nic, leaf, capacity=spec.nic.bandwidth)
