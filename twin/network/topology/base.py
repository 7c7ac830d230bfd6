"""What every topology answers: switches on a path, and the network as a graph.

A fabric of any kind here has leaves and spines. The nodes under one set of leaves are a pod; inside
it a path crosses one switch, between pods three. Vertices are named by what they are:
`gpu/NODE/RAIL`, `nic/NODE/RAIL`, `nvswitch/NODE`, then the switches of the kind. Every vertex has
the attribute `role`; every edge has `capacity`, in bytes per second in one direction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import ceil
from typing import TYPE_CHECKING, ClassVar

from twin.spec.cluster import ClusterSpec, FabricSpec

if TYPE_CHECKING:
    import networkx as nx


class Topology(ABC):
    """One way to wire nodes together."""

    kind: ClassVar[str]

    @abstractmethod
    def leaf(self, fabric: FabricSpec, node: int, rail: int) -> str:
        """The leaf switch that a NIC is wired to."""

    @abstractmethod
    def nics_per_leaf(self, cluster: ClusterSpec) -> int:
        """NICs that a leaf switch has ports for."""

    def switches(self, fabric: FabricSpec, nodes: int) -> int:
        """Switches on the path between the two farthest of so many neighbouring nodes, on one rail:
        0 for one node, 1 inside a pod (the leaf), 3 across pods (leaf, spine, leaf)."""
        if nodes == 1:
            return 0
        return 1 if nodes <= fabric.nodes_per_leaf else 3

    def graph(self, cluster: ClusterSpec) -> nx.Graph[str]:
        """The cluster's GPUs, NICs and switches, with the line rate of every link; uplinks share
        the NICs' rate / oversubscription."""
        import networkx as nx  # noqa: PLC0415  a planner's run asks for `switches` only and must not pay for networkx

        graph: nx.Graph[str] = nx.Graph()
        fabric = cluster.fabric
        for node in range(cluster.nodes):
            self._add_node(graph, cluster, node)
        leaf_rate = self.nics_per_leaf(cluster) * cluster.node.nic.bandwidth
        uplink = leaf_rate / fabric.oversubscription / fabric.spines
        for pod in range(ceil(cluster.nodes / fabric.nodes_per_leaf)):
            first = pod * fabric.nodes_per_leaf
            leaves = {self.leaf(fabric, first, rail) for rail in range(cluster.node.gpus)}
            for leaf in sorted(leaves):
                for spine in range(fabric.spines):
                    graph.add_node(f"spine/{spine}", role="spine")
                    graph.add_edge(leaf, f"spine/{spine}", capacity=uplink)
        return graph

    def _add_node(self, graph: nx.Graph[str], cluster: ClusterSpec, node: int) -> None:
        """Adds one server: GPUs to the NVSwitch by NVLink, each GPU to its NIC by PCIe, each NIC to
        its leaf."""
        spec = cluster.node
        graph.add_node(f"nvswitch/{node}", role="nvswitch")
        for rail in range(spec.gpus):
            gpu, nic = f"gpu/{node}/{rail}", f"nic/{node}/{rail}"
            leaf = self.leaf(cluster.fabric, node, rail)
            graph.add_node(gpu, role="gpu")
            graph.add_node(nic, role="nic")
            graph.add_node(leaf, role="leaf")
            graph.add_edge(gpu, f"nvswitch/{node}", capacity=spec.nvlink.bandwidth)
            graph.add_edge(gpu, nic, capacity=spec.host.pcie.bandwidth)
            graph.add_edge(nic, leaf, capacity=spec.nic.bandwidth)
