"""What a collective costs one rank: bytes through each of its ports in one direction, and serial
hops of latency.

Seconds without sharing = max(NVLink bytes / capacity, NIC bytes / capacity) + hops x latency; the
engine shares the links.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from twin.arch.ops import CollectiveKind
from twin.collectives.all_to_all import all_to_all
from twin.collectives.base import Traffic
from twin.collectives.ring import all_gather, all_reduce, reduce_scatter
from twin.network.placement import Placement

__all__ = ["START_HOPS", "Traffic", "traffic"]

START_HOPS = 16
"""What starting any collective costs, in NVLink hops: ranks meet, the kernel starts, the pipeline
of slices fills.

Fitted with the NVLink rates of the catalog on NCCL 2.27 times (scenarios/published/nccl-*.yaml,
payloads of 4 MiB to 512 MiB, 2 to 8 ranks): the mean error is 18 % without it, 9 to 10 % with it,
and falls by less than one point with more. Breaks for small messages, which use other protocols: at
4 KiB the price is up to 3.5 times the measured time."""

_ALGORITHMS: Mapping[CollectiveKind, Callable[[float, Placement], Traffic]] = MappingProxyType(
    {
        "all_reduce": all_reduce,
        "all_gather": all_gather,
        "reduce_scatter": reduce_scatter,
        "all_to_all": all_to_all,
    }
)


def traffic(kind: CollectiveKind, bytes: float, placement: Placement) -> Traffic:
    """The traffic of one collective on one rank; nothing for a group of one.

    `bytes` is the full payload per rank, as `twin.arch.ops.Exchange` says: the whole tensor for
    all-reduce, the gathered tensor for all-gather, the unreduced tensor for reduce-scatter, all
    that the rank sends (its own share included) for all-to-all.
    """
    if placement.size == 1:
        return Traffic()
    cost = _ALGORITHMS[kind](bytes, placement)
    return replace(cost, nvlink_hops=cost.nvlink_hops + START_HOPS)
