"""What a collective costs one rank: bytes through each of its ports in one direction, serial hops
of latency, and what its own share costs.

Seconds without sharing = max over links of bytes / capacity + hops x latency + own share x own
bytes / NVLink's capacity (`seconds.alone`); the engine shares the links.

How long a traffic takes where nothing else is under way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from types import MappingProxyType

from twin.arch.ops import CollectiveKind
from twin.collectives import hierarchical, nvls, ring, tree
from twin.collectives.all_to_all import all_to_all
from twin.collectives.base import Algorithm, Choice, Traffic, flagged, started
from twin.network.links import LinkClass, capacity, far_share, latency, sharers
from twin.network.placement import Placement
from twin.spec.cluster import ClusterSpec


def alone(flow: Traffic, cluster: ClusterSpec, placement: Placement) -> float:
    """Seconds on idle links, when all groups of its kind exchange at once: the fullest link of one
    rank, and the serial hops. Slices are taken to fill all links at the same time."""
    loads: dict[LinkClass, float] = {
        "nvlink": flow.nvlink_bytes,
        "nic": flow.nic_bytes,
        "leaf": flow.far_bytes,
    }
    links = max(seconds(cluster, link, load) for link, load in loads.items())
    return links + serial(flow, cluster, placement)


def serial(flow: Traffic, cluster: ClusterSpec, placement: Placement | None = None) -> float:
    """Seconds of a traffic during which no link is busy: its serial hops, what peers on other nodes
    cost that are served one by one, and what the rank's own share costs."""
    hops = flow.nvlink_hops * latency(cluster, "nvlink")
    hops += flow.nic_hops * latency(cluster, "nic", placement)
    hops += far_hops(flow, cluster, placement) * cluster.fabric.distance
    if flow.peers:
        nic = cluster.node.nic
        hops += nic.exchange_start + flow.peers * nic.exchange_peer
    own = cluster.node.nvlink.own_share * flow.own_bytes
    return hops + own / capacity(cluster, "nvlink")


def far_hops(flow: Traffic, cluster: ClusterSpec, placement: Placement | None) -> int:
    """Serial hops between sites: of a group's nodes in one site only one sends to another."""
    alone = cluster.nodes <= cluster.fabric.nodes_per_leaf
    if alone or not flow.nic_hops or placement is None or placement.in_one_pod:
        return 0
    return ceil(flow.nic_hops / placement.nodes_per_pod)


def seconds(cluster: ClusterSpec, link: LinkClass, load: float) -> float:
    """Seconds that a link needs for the `load` (bytes) of each rank that shares it; nothing where
    the cluster has no such link."""
    rate = capacity(cluster, link)
    return 0.0 if rate is None else load * sharers(cluster, link) / rate


_Price = Callable[[float, Placement], Traffic]

_DIRECT: Mapping[CollectiveKind, _Price] = MappingProxyType({"all_to_all": all_to_all})
"""Collectives that every rank does with every other, whatever the algorithm of the rest."""

_ALGORITHMS: Mapping[Algorithm, Mapping[CollectiveKind, _Price]] = MappingProxyType(
    {
        "ring": {
            "all_reduce": ring.all_reduce,
            "all_gather": ring.all_gather,
            "reduce_scatter": ring.reduce_scatter,
            "broadcast": ring.broadcast,
        },
        "tree": {"all_reduce": tree.all_reduce, "broadcast": tree.broadcast},
        "hierarchical": {"all_reduce": hierarchical.all_reduce},
        "nvls": {
            "all_reduce": nvls.all_reduce,
            "all_gather": nvls.all_gather,
            "reduce_scatter": nvls.reduce_scatter,
        },
        "switches": {"all_reduce": hierarchical.by_switches},
    }
)


def traffic(
    kind: CollectiveKind, bytes: float, placement: Placement, algorithm: Algorithm = "ring"
) -> Traffic:
    """The traffic of one collective on one rank; nothing for a group of one.

    `bytes` is the full payload per rank, as `twin.arch.ops.Exchange` says: the whole tensor for
    all-reduce and broadcast, the gathered tensor for all-gather, the unreduced tensor for
    reduce-scatter, all that the rank sends (its own share included) for all-to-all. A collective
    that the algorithm does not have, or not for such a placement, goes by rings.
    """
    if placement.size == 1:
        return Traffic()
    price = _prices(kind, placement)
    flow = price.get(algorithm, price["ring"])(bytes, placement)
    return started(flow, far_share(kind, placement))


def phases(
    kind: CollectiveKind, size: float, placement: Placement, copies: int
) -> tuple[tuple[CollectiveKind, float, Placement], ...]:
    """The collectives, one after the other, of one over ranks that hold so many copies of what they
    shard: inside a copy, and behind a reduce-scatter the sum of each shard over the copies."""
    if copies == 1 or kind == "all_reduce":
        return ((kind, size, placement),)
    inside, across = placement.split(copies)
    if kind != "reduce_scatter":
        return ((kind, size, inside),)
    return (kind, size, inside), ("all_reduce", size / inside.size, across)


def ways(kind: CollectiveKind, placement: Placement) -> tuple[Algorithm, ...]:
    """The algorithms that have this collective for groups that sit so."""
    return tuple(_prices(kind, placement))


def chosen(
    cluster: ClusterSpec, choice: Choice, kind: CollectiveKind, bytes: float, placement: Placement
) -> Traffic:
    """The traffic of one collective by a run's choice of algorithm. `auto` takes what is fastest on
    idle links, as the tuner of NCCL does: rings where two are equal, and the switches' help only
    where they add up. Small payloads go with flags where the library has them, whatever the
    choice."""
    every: Sequence[Algorithm] = (choice,) if choice != "auto" else ways(kind, placement)
    flows = [
        traffic(kind, bytes, placement, way)
        for way in every
        if choice != "auto" or _adds_up(cluster, way)
    ]
    if cluster.node.nvlink.flags and placement.nodes == 1 and placement.size > 1:
        flows.append(flagged(_prices(kind, placement)["ring"](bytes, placement)))
    return min(flows, key=lambda flow: alone(flow, cluster, placement))


def _adds_up(cluster: ClusterSpec, way: Algorithm) -> bool:
    """Whether the cluster has the switches that an algorithm needs."""
    needs = {"nvls": cluster.node.nvlink_sharp, "switches": cluster.fabric.reduces}
    return needs.get(way, True)


def _prices(kind: CollectiveKind, placement: Placement) -> dict[Algorithm, _Price]:
    if kind in _DIRECT:
        return {"ring": _DIRECT[kind]}
    return {
        algorithm: prices[kind]
        for algorithm, prices in _ALGORITHMS.items()
        if kind in prices and (algorithm != "nvls" or _switched(kind, placement))
    }


def _switched(kind: CollectiveKind, placement: Placement) -> bool:
    """Whether switches can help: shares meet in one, and only sums go on to other nodes."""
    return placement.per_node > 1 and (placement.nodes == 1 or kind == "all_reduce")
