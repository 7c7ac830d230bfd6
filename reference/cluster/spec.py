"""What an honest cluster on one machine is: nodes, ranks on each, and the links between them."""

from __future__ import annotations

from dataclasses import dataclass

from twin.spec.cluster import ClusterSpec


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """Nodes that are network namespaces of this machine. Every rank has a network card of its own,
    as a GPU has in a scenario; ranks of one node reach each other without it, at memory speed."""

    nodes: int
    ranks_per_node: int = 1
    rate: float | None = None
    """Bytes per second of a rank's network card, in each direction; None: not held to any."""

    @property
    def ranks(self) -> int:
        """Of all nodes."""
        return self.nodes * self.ranks_per_node

    def node_of(self, rank: int) -> int:
        """Where a rank is: neighbours share a node, as in the twin."""
        return rank // self.ranks_per_node


def of_scenario(cluster: ClusterSpec) -> LocalCluster:
    """The cluster of a scenario: its GPUs are ranks, its network cards have their line rate."""
    return LocalCluster(cluster.nodes, cluster.node.gpus, cluster.node.nic.bandwidth)
