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
    hops = flow.nvlink_hops * latency(cluster, "nvlink")
    return links + hops + flow.nic_hops * latency(cluster, "nic", placement)


def seconds(cluster: ClusterSpec, link: LinkClass, load: float) -> float:
    """Seconds that a link needs for the `load` (bytes) of each rank that shares it; nothing where
    the cluster has no such link."""
    rate = capacity(cluster, link)
    return 0.0 if rate is None else load * sharers(cluster, link) / rate
