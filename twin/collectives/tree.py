"""Double binary trees: all-reduce up and down again, and broadcast down.

Two binary trees span the nodes, each with half of the payload; a node that passes data on in one is
a leaf of the other, so that nearly all nodes send and receive alike (Sanders, Speck and Traeff
2009, "Two-tree algorithms for full bandwidth broadcast, reduction and scan"; NCCL since 2.4).
Inside a node the ranks are a chain. As with rings there is one pair of trees per rail, with 1/n of
the payload. Depth, and so latency, grows with the logarithm of the nodes where a ring's grows with
their number; an all-reduce between two nodes moves half of a ring's bytes, between many as much.
"""

from __future__ import annotations

from math import ceil, log2

from twin.collectives.base import Traffic
from twin.network.placement import Placement


def all_reduce(payload: float, placement: Placement) -> Traffic:
    """Every rank ends with the sum of `payload` (bytes per rank).

    The busiest node sends half of the payload to its parent in both trees and to its two children
    in one; between two or three nodes there are fewer edges than that.
    """
    local, nodes = placement.per_node, placement.nodes
    halves = min(nodes, 4) if nodes > 1 else 0
    return Traffic(
        nvlink_bytes=2 * payload * (local - 1) / local,
        nic_bytes=halves / 2 * payload / local,
        nvlink_hops=2 * (local - 1),
        own_bytes=payload / placement.size,
        nic_hops=2 * ceil(log2(nodes)),
    )


def broadcast(payload: float, placement: Placement) -> Traffic:
    """Every rank ends with the `payload` (bytes) that one of them had.

    That one starts the chains of all rails in its node, and its node sends half of the payload to
    the root of each tree; so does any node with two children in a tree.
    """
    local, nodes = placement.per_node, placement.nodes
    return Traffic(
        nvlink_bytes=payload if local > 1 else 0.0,
        nic_bytes=payload / local if nodes > 1 else 0.0,
        nvlink_hops=local - 1,
        nic_hops=ceil(log2(nodes)),
    )
