"""Hierarchical all-reduce: reduce-scatter inside each node, all-reduce of each share across nodes,
all-gather inside.

Rank i of every node owns share i of its node, so that shares travel between nodes on their own
rail. It moves what a flat ring moves, or less, but its serial hops are n + k where a ring's are
n x k. The three phases work on slices one behind another, so that NVLink and NIC are busy at the
same time; a payload of few slices would take the sum of the phases instead.
"""

from __future__ import annotations

from twin.collectives import ring
from twin.collectives.base import Traffic
from twin.network.placement import Placement


def all_reduce(payload: float, placement: Placement) -> Traffic:
    """Every rank ends with the sum of `payload` (bytes per rank)."""
    local, nodes = placement.per_node, placement.nodes
    inside = ring.all_reduce(payload, Placement(local, local))
    across = ring.all_reduce(payload / local, Placement(nodes, 1)) if nodes > 1 else Traffic()
    return Traffic(
        nvlink_bytes=inside.nvlink_bytes,
        nic_bytes=across.nic_bytes,
        nvlink_hops=inside.nvlink_hops,
        nic_hops=across.nic_hops,
        own_bytes=inside.own_bytes if local > 1 else across.own_bytes,
    )
