"""Where ranks sit and how fast links are: placements of groups, usable capacity and latency of each
class of link, the fabric as a graph, topologies."""

from twin.network.links import (
    LINKS,
    LinkClass,
    capacity,
    crossing,
    crowding,
    far_share,
    latency,
    sharers,
)
from twin.network.placement import Placement

__all__ = [
    "LINKS",
    "LinkClass",
    "Placement",
    "capacity",
    "crossing",
    "crowding",
    "far_share",
    "latency",
    "sharers",
]
