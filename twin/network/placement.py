"""How a group of ranks sits on nodes: all that a collective needs to know of the rank grid."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd


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

    def split(self, count: int) -> tuple[Placement, Placement]:
        """The group in so many parts of neighbours: a part, and the ranks that have one place in
        each of the parts. Where parts do not fill nodes evenly, ranks of different parts share
        none."""
        size = self.size // count
        pod = self.per_pod
        return (
            Placement(size, gcd(self.per_node, size), None if pod is None else gcd(pod, size)),
            Placement(count, _apart(self.per_node, size), pod and _apart(pod, size)),
        )


def _apart(together: int, size: int) -> int:
    """Ranks of one place in each part that share what `together` neighbours do."""
    return 1 if together % size else together // size
