"""How a group of ranks sits on nodes: all that a collective needs to know of the rank grid."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Placement:
    """How one kind of group sits on nodes: its size, and how many of its members share each node
    (equal on all nodes).

    `per_pod` is how many members at least share the nodes of one pod (those under one set of leaf
    switches); None where nobody looked: a group of several nodes then counts as spread over pods.
    """

    size: int
    per_node: int
    per_pod: int | None = None

    @property
    def nodes(self) -> int:
        """Nodes that the group spans."""
        return self.size // self.per_node

    @property
    def in_one_pod(self) -> bool:
        """Whether no member has to cross a spine to another."""
        return self.nodes == 1 or self.per_pod == self.size

    @property
    def nodes_per_pod(self) -> float:
        """Nodes of the group that share a pod, at least one."""
        return max(1.0, (self.per_pod or 0) / self.per_node)
