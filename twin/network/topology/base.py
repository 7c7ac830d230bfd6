"""What every topology answers: switches on a path, and the network as a graph.

Vertices are named by what they are: `gpu/NODE/RAIL`, `nic/NODE/RAIL`, `nvswitch/NODE`, then the
switches of the kind. Every vertex has the attribute `role`; every edge has `capacity`, in bytes per
second in one direction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from twin.spec.cluster import ClusterSpec, FabricSpec

if TYPE_CHECKING:
    import networkx as nx


class Topology(ABC):
    """One way to wire nodes together."""

    kind: ClassVar[str]

    @abstractmethod
    def switches(self, fabric: FabricSpec, nodes: int) -> int:
        """Switches on the path between the two farthest nodes of a cluster, on one rail."""

    @abstractmethod
    def graph(self, cluster: ClusterSpec) -> nx.Graph[str]:
        """The cluster's GPUs, NICs and switches, with the line rate of every link."""
