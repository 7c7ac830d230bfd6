"""Where ranks sit and how fast their ports are: placements of groups, usable capacity and latency
of links, crowding of spines, topologies."""

from twin.network.links import LinkClass, capacity, crossing, crowding, latency
from twin.network.placement import Placement

__all__ = ["LinkClass", "Placement", "capacity", "crossing", "crowding", "latency"]
