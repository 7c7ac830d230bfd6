"""Hierarchical all-reduce: reduce-scatter inside each node, all-reduce of each share across nodes,
all-gather inside.

Rank i of every node owns share i of its node, so that shares travel between nodes on their own
rail. It moves what a flat ring moves, or less, but its serial hops are n + k where a ring's are
n x k. The three phases work on slices one behind another, so that NVLink and NIC are busy at the
same time; a payload of few slices would take the sum of the phases instead.

Switches between nodes may add up themselves (InfiniBand SHARP): each adds up what comes from below,
sends one sum up, and hands the sum of all down again. A NIC then sends its share of the payload S
over n ranks of a node once and receives the sum once, S/n, where a ring over k nodes sends
2 S/n (k - 1)/k; the way is one hop up and one down, whatever k is. Uplinks of a leaf carry one sum
for all nodes below it. Source: Graham et al. 2016, "Scalable hierarchical aggregation protocol
(SHArP)", COMHPC, section 3. Left out: how many trees a switch serves at once. No published row
judges it: what it saves is assumed.
"""

from __future__ import annotations

from twin.collectives import ring
from twin.collectives.base import Traffic
from twin.network.placement import Placement


def all_reduce(payload: float, placement: Placement) -> Traffic:
    """Every rank ends with the sum of `payload` (bytes per rank)."""
    nodes, local = placement.nodes, placement.per_node
    across = ring.all_reduce(payload / local, Placement(nodes, 1)) if nodes > 1 else Traffic()
    return _around(across, payload, local)


def by_switches(payload: float, placement: Placement) -> Traffic:
    """The same with sums of the switches between nodes."""
    nodes, local = placement.nodes, placement.per_node
    across = Traffic(nic_bytes=payload / local, nic_hops=2) if nodes > 1 else Traffic()
    return _around(across, payload, local)


def _around(across: Traffic, payload: float, local: int) -> Traffic:
    """What happens between nodes, and inside them before and after it."""
    inside = ring.all_reduce(payload, Placement(local, local))
    return Traffic(
        nvlink_bytes=inside.nvlink_bytes,
        nic_bytes=across.nic_bytes,
        nvlink_hops=inside.nvlink_hops,
        nic_hops=across.nic_hops,
        own_bytes=inside.own_bytes if local > 1 else across.own_bytes,
    )
