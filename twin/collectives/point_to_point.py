"""One message from one rank to another: over NVLink on one node, else through both NICs."""

from __future__ import annotations

from twin.collectives.base import Traffic
from twin.network.placement import Placement


def point_to_point(payload: float, placement: Placement) -> Traffic:
    """The `payload` (bytes) through the sender's port, and as much into the receiver's."""
    if placement.nodes == 1:
        return Traffic(nvlink_bytes=payload, nvlink_hops=1)
    return Traffic(nic_bytes=payload, nic_hops=1)
