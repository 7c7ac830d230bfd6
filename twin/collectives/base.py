"""What every collective algorithm answers with, and what starting any of them costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from operator import add, attrgetter
from typing import Any, Final, Literal

Algorithm = Literal["ring", "tree", "hierarchical", "nvls", "switches"]
"""Ways to reduce, gather and broadcast; one module each."""
Choice = Literal["ring", "tree", "hierarchical", "nvls", "switches", "auto"]
"""An algorithm for every collective of a run, or the cheapest for each."""

START_HOPS: Final = 16
"""What starting any collective costs, in NVLink hops: ranks meet, the kernel starts, the pipeline
of slices fills.

Fitted with the NVLink rates of the catalog on NCCL 2.27 times (scenarios/published/nccl-*.yaml,
payloads of 4 MiB to 512 MiB, 2 to 8 ranks): the mean error is 14 % without it, 6 to 7 % with it,
and falls by less than one point with more."""
FLAGGED_START: Final = 6.2
FLAGGED_HOP: Final = 0.47
FLAGGED_BYTES: Final = 2.6
"""The same for small payloads, which NCCL sends with a flag in every word (LL: 4 bytes of 8, LL128:
8 of 128), so that nobody waits for a slice: a start and a hop, in NVLink hops, and what a byte
counts.

Fitted on the same series, 4 KiB to 1 MiB: the mean error is 12 %; by the numbers of large payloads
alone they would take 2.2 times as long as measured. Fitted on H100 alone they miss A100 by 15 %,
and the other way round. Breaks for all-to-all of 64 KiB to 1 MiB, which is up to 46 % too fast, and
nothing is known between nodes."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Per rank and direction: bytes through the NVLink port and the NIC (sent = received), and
    latency in serial hops; bytes of copies to and from host memory. `far_bytes` are those of the
    NIC's that leave the leaf switch. `own_bytes` cross no port: a rank's own share, which its
    kernel receives last and copies, partly while nothing is sent (`node.nvlink.own_share`). `peers`
    are ranks on other nodes that the kernel sends to one by one (`node.nic.exchange_peer`).

    Where ranks differ, it is the busiest: a collective ends with its last rank.
    """

    nvlink_bytes: float = 0.0
    nic_bytes: float = 0.0
    nvlink_hops: float = 0
    nic_hops: int = 0
    far_bytes: float = 0.0
    to_host_bytes: float = 0.0
    from_host_bytes: float = 0.0
    own_bytes: float = 0.0
    peers: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        """One after the other."""
        return Traffic(*map(add, _amounts(self), _amounts(other)))


_amounts: Callable[[Traffic], tuple[Any, ...]] = attrgetter(*(f.name for f in fields(Traffic)))
"""What a traffic holds; `astuple` copies deeply, which takes ten times as long."""


def started(flow: Traffic, far: float) -> Traffic:
    """A traffic with the start that every collective has; `far` is the share of what the NICs send
    that leaves the leaf switch."""
    return replace(flow, nvlink_hops=flow.nvlink_hops + START_HOPS, far_bytes=flow.nic_bytes * far)


def flagged(flow: Traffic) -> Traffic:
    """A traffic inside a node as small payloads go."""
    hops = FLAGGED_START + FLAGGED_HOP * flow.nvlink_hops
    return Traffic(nvlink_bytes=FLAGGED_BYTES * flow.nvlink_bytes, nvlink_hops=hops)
