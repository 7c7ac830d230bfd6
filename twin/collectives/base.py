"""What every collective algorithm answers with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Traffic:
    """Per rank and direction: bytes through the NVLink port and the NIC (sent = received), and
    latency in serial hops."""

    nvlink_bytes: float = 0.0
    nic_bytes: float = 0.0
    nvlink_hops: int = 0
    nic_hops: int = 0
