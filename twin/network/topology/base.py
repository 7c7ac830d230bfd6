"""What every topology answers: which leaf a NIC is wired to, and how many switches a path crosses.

A fabric of any kind here has leaves and spines, every leaf wired to every spine. The nodes under
one set of leaves are a pod; inside it a path crosses one switch, between pods three.
`twin.network.fabric` makes the graph.
"""

from __future__ import annotations

from typing import ClassVar

from twin.spec.cluster import ClusterSpec, FabricSpec


class Topology:
    """One way to wire nodes together."""

    kind: ClassVar[str]
    rails: ClassVar[bool]
    """Whether each rail has switches of its own, so that other rails are reached over NVLink."""

    def leaf(self, fabric: FabricSpec, node: int, rail: int) -> str:
        """The leaf switch that a NIC is wired to: its pod's, or its rail's in the pod."""
        pod = f"leaf/{node // fabric.nodes_per_leaf}"
        return f"{pod}/{rail}" if self.rails else pod

    def nics_per_leaf(self, cluster: ClusterSpec) -> int:
        """NICs that a leaf switch has ports for: all of its pod, or one of each node."""
        return cluster.fabric.nodes_per_leaf * (1 if self.rails else cluster.node.gpus)

    def switches(self, fabric: FabricSpec, nodes: int) -> int:
        """Switches on the path between the two farthest of so many neighbouring nodes, on one rail:
        0 for one node, 1 inside a pod (the leaf), 3 across pods (leaf, spine, leaf)."""
        if nodes == 1:
            return 0
        return 1 if nodes <= fabric.nodes_per_leaf else 3
