"""What a collective costs one rank: bytes through each of its ports in one direction, and serial hops of latency."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Traffic:
    """Per rank and direction: bytes through the NVLink port and the NIC (sent = received), and latency in serial hops."""

    nvlink_bytes: float = 0.0
    nic_bytes: float = 0.0
    nvlink_hops: int = 0
    nic_hops: int = 0
