"""How long a traffic takes where nothing else is under way."""

from __future__ import annotations

from twin.collectives.base import Traffic
from twin.network.links import LinkClass, capacity, latency, sharers
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
    """Seconds of a traffic during which no link is busy: its serial hops, and what the rank's own
    share costs."""
    hops = flow.nvlink_hops * latency(cluster, "nvlink")
    hops += flow.nic_hops * latency(cluster, "nic", placement)
    own = cluster.node.nvlink.own_share * flow.own_bytes
    return hops + own / capacity(cluster, "nvlink")


def seconds(cluster: ClusterSpec, link: LinkClass, load: float) -> float:
    """Seconds that a link needs for the `load` (bytes) of each rank that shares it; nothing where
    the cluster has no such link."""
    rate = capacity(cluster, link)
    return 0.0 if rate is None else load * sharers(cluster, link) / rate
