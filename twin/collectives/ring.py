"""Ring collectives: all-gather, reduce-scatter, all-reduce as one after the other, and broadcast.

N ranks pass N shares of the payload S around a ring in N - 1 steps, so each rank sends (N - 1)/N x
S: the lower bound for all-gather and reduce-scatter, and twice that for all-reduce (Patarasuk and
Yuan 2009, "Bandwidth optimal all-reduce algorithms", theorem 1). On k nodes with n ranks each there
are n rings, one per rail, each with 1/n of the payload. A ring enters every node once and leaves it
once, by another GPU's NIC for each ring; so of what a rank sends, 1/n goes through its NIC and the
rest stays on NVLink, as NCCL's rings do.
"""

from __future__ import annotations

from twin.collectives.base import Traffic
from twin.network.placement import Placement


def all_gather(payload: float, placement: Placement) -> Traffic:
    """Every rank ends with the whole `payload` (bytes, gathered), having started with 1/N of it."""
    return _passes(1, payload, placement)


def reduce_scatter(payload: float, placement: Placement) -> Traffic:
    """Every rank ends with 1/N of the sum of `payload` (bytes, unreduced, per rank)."""
    return _passes(1, payload, placement)


def all_reduce(payload: float, placement: Placement) -> Traffic:
    """Every rank ends with the sum of `payload` (bytes per rank): a reduce-scatter, then an
    all-gather."""
    return _passes(2, payload, placement)


def broadcast(payload: float, placement: Placement) -> Traffic:
    """Every rank ends with the `payload` (bytes) that one of them had.

    Each ring carries 1/n of it in slices from rank to rank: all but the last pass on what they
    receive while more arrives, so that a payload of many slices takes as long as one port needs for
    all of it. Hops are those of the first slice.
    """
    size, local, nodes = placement.size, placement.per_node, placement.nodes
    if nodes == 1:
        return Traffic(nvlink_bytes=payload, nvlink_hops=size - 1)
    return Traffic(
        nvlink_bytes=payload * (local - 1) / local,
        nic_bytes=payload / local,
        nvlink_hops=size - nodes,
        nic_hops=nodes - 1,
    )


def _passes(passes: int, payload: float, placement: Placement) -> Traffic:
    """`passes` trips around the rings.

    Hops are those of the slowest share: it travels N - 1 of the ring's N edges, and of these k
    cross nodes (all of them when each node has one rank). What a rank receives last it sends to no
    one: its own share, once, as an all-reduce is one kernel.
    """
    size, local, nodes = placement.size, placement.per_node, placement.nodes
    sent = passes * payload * (size - 1) / size
    steps = size - 1
    if nodes == 1:
        return Traffic(nvlink_bytes=sent, nvlink_hops=passes * steps, own_bytes=payload / size)
    nic_hops = steps if local == 1 else nodes
    return Traffic(
        nvlink_bytes=sent * (local - 1) / local,
        nic_bytes=sent / local,
        nvlink_hops=passes * (steps - nic_hops),
        nic_hops=passes * nic_hops,
        own_bytes=payload / size,
    )
