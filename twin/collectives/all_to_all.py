"""Plain all-to-all: every rank sends each other rank its share directly, all at once.

Of a payload S over N ranks, S/N stays in place, (n - 1)/N x S goes to the n - 1 peers on the same
node over NVLink, and the rest over the NIC, with no forwarding and no merging of equal tokens on
the way (which DeepEP does). Every byte crosses one port once, the lower bound for distinct data.

NCCL runs it as one send and one receive per peer, so what it takes beside its bytes grows with the
peers on other nodes. Over EFA a rate, a start and a time per peer meet 35 times (16 to 256 H100,
32 MB to 2 GB) within 6 % in the mean; a rate alone does within 17 %
(scenarios/published/nccl-nodes.yaml).
"""

from __future__ import annotations

from twin.collectives.base import Traffic
from twin.network.placement import Placement


def all_to_all(payload: float, placement: Placement) -> Traffic:
    """Every rank ends with its share of every rank's `payload` (bytes that one rank sends, its own
    share included)."""
    size, local = placement.size, placement.per_node
    return Traffic(
        nvlink_bytes=payload * (local - 1) / size,
        nic_bytes=payload * (size - local) / size,
        nvlink_hops=int(local > 1),
        nic_hops=int(size > local),
        own_bytes=payload / size,
        peers=size - local,
    )
