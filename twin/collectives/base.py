"""What every collective algorithm answers with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Traffic:
    """Per rank and direction: bytes through the NVLink port and the NIC (sent = received), and
    latency in serial hops; bytes of copies to and from host memory. `far_bytes` are those of the
    NIC's that leave the leaf switch."""

    nvlink_bytes: float = 0.0
    nic_bytes: float = 0.0
    nvlink_hops: int = 0
    nic_hops: int = 0
    far_bytes: float = 0.0
    to_host_bytes: float = 0.0
    from_host_bytes: float = 0.0
