"""How a group of ranks sits on nodes: all that a collective needs to know of the rank grid."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Placement:
    """How one kind of group sits on nodes: its size, and how many of its members share each node
    (equal on all nodes)."""

    size: int
    per_node: int

    @property
    def nodes(self) -> int:
        """Nodes that the group spans."""
        return self.size // self.per_node
