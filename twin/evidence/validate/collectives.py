"""Rows of communication: NCCL's collectives, expert all-to-all, host copies, latencies of links.

Every time is priced on idle links of the catalog's nodes of the row's GPU, and answered as the
bandwidth that its source reports: errors are of bandwidths, and too long is negative. Of these rows
a fit has seen what tells NVLink's efficiency and latency, and what starting a collective costs
(docs/collectives.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from twin.collectives import Traffic, alone
from twin.evidence.validate import exchanges, nccl
from twin.evidence.validate.answer import Answer, blank, refused
from twin.evidence.validate.points import Nvlink, Point, assumed, cluster_for, placed
from twin.evidence.validate.row import Row, Unreadable, number
from twin.network import capacity, latency

RATE: Final = "bus_bytes_per_second"
SECONDS: Final = "kernel_seconds"
MOST: Final = 1e30
"""More bytes, or seconds, than any transfer has."""
_BOUND: Final = "12 SMs: they bind, not the links"
_ODD: Final = "dispatch slower than combine of twice the bytes: anomalous"
_SWAPPED: Final = "cells of 8 and 16 ranks look swapped in the source"
_UNMEASURED: Final = "not documented whether measured"
OUTSIDE: Final = MappingProxyType(
    {
        "deepseek-isca25-deepep-mpft-fig7": "which number belongs to which size is not known",
        "aic-deepep-h100-ep8-e256-sm12": _BOUND,
        "aic-deepep-h100-ep8-e384-sm12": _BOUND,
        "aic-deepep-h100-ep16-sm12": _BOUND,
        "aic-deepep-h100-ep32-sm12": _BOUND,
        "aic-deepep-h100-ep64-sm12": _ODD,
        "aic-deepep-h100-ep64-sm20": _ODD,
        "aic-deepep-h100-ep64-sm24": _ODD,
        "pplx-pplx-cx7-ep8-4096tok": _SWAPPED,
        "pplx-deepep-cx7-ep8-4096tok": _SWAPPED,
        "pplx-pplx-efa-ep8-4096tok": _SWAPPED,
        "pplx-pplx-cx7-ep16-4096tok": _SWAPPED,
        "pplx-deepep-cx7-ep16-4096tok": _SWAPPED,
        "pplx-pplx-efa-ep16-4096tok": _SWAPPED,
        "nccl-2409-2node-h100-roce": "a misbehaving fabric, half of what its authors expect",
        "simai-efficiency-nvlink-ratio": _UNMEASURED,
        "simai-efficiency-nic-ratio": _UNMEASURED,
        "simai-efficiency-ata-ratio": _UNMEASURED,
        "simai-busbw-example": "an example configuration, not a measurement",
    }
)
"""Rows that are not priced, with what is wrong with them."""
COPY: Final = 2**30
"""Bytes of a copy by a copy engine; its source gives the rate of long ones."""
NETS: Final = MappingProxyType({"roce": "H800", "ib": "A100-80GB"})
"""Whose NICs have the latency of a kind of network in the catalog."""
PLACES: Final = MappingProxyType({"same_leaf": 2, "cross_leaf": 64})
"""Nodes of a cluster whose farthest pair is under one leaf, and under two."""

Read = Callable[[Row, Nvlink | None], Iterator[Point]]


def answers(row: Row) -> tuple[Answer, ...]:
    """Bandwidth (or latency) of everything that a row measured, one answer each."""
    reason = OUTSIDE.get(row.id)
    if reason is not None:
        return (refused(row, RATE, reason),)
    try:
        found = tuple(answer(row, point) for point in points(row))
        below = nccl.small(row) if _reader(row) is nccl.points else ()
    except Unreadable as why:
        return (refused(row, RATE, str(why)),)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        return (refused(row, RATE, "its payloads and times cannot be read"),)
    why = "NCCL sends payloads under 4 MiB by other protocols, which the twin does not price"
    return (
        *(replace(refused(row, RATE, why), id=f"{row.id}[{size:,.0f} B]") for size in below),
        *found,
    ) or (refused(row, RATE, "nothing in it is a time or rate of bytes over a link"),)


def answer(row: Row, point: Point) -> Answer:
    """The answer to one measured time."""
    known = replace(
        blank(row, SECONDS if point.bytes is None else RATE),
        id=f"{row.id}[{point.what}]",
        stack=point.family,
        assumed=assumed(row),
    )
    if point.bytes is None:
        return replace(known, predicted=point.ours, measured=point.measured)
    if not 0 < point.bytes < MOST or not 0 < point.measured < MOST:
        raise Unreadable("its payloads and times cannot be read")
    rates = point.bytes / point.ours, point.bytes / point.measured
    return replace(known, predicted=rates[0], measured=rates[1])


def points(row: Row, nvlink: Nvlink | None = None) -> Iterator[Point]:
    """Everything that a row measured; `nvlink` in place of the catalog's numbers."""
    yield from _reader(row)(row, nvlink)


def _reader(row: Row) -> Read:
    if "ep" in row.layout:
        return exchanges.points
    if "h2d_GBps" in row.metrics:
        return _copies
    if any(key.endswith("_leaf_us") for key in row.metrics):
        return _latencies
    return nccl.points


def _copies(row: Row, nvlink: Nvlink | None) -> Iterator[Point]:
    """Copies from pinned memory, to it, and between two GPUs by the copy engine."""
    where = cluster_for(row, nvlink=nvlink)
    ours = COPY / capacity(where, "pcie") + latency(where, "pcie")
    for way in ("h2d", "d2h"):
        rate = number(row.metrics, f"{way}_GBps")
        if rate is not None:
            yield Point("Host copies, PCIe Gen5", way, COPY / (rate * 1e9), ours, COPY)
    rate = number(row.metrics, "nvlink_p2p_unidirectional_GBps")
    if rate is not None:
        pair = placed(2)
        ours = alone(Traffic(nvlink_bytes=COPY, nvlink_hops=1), where, pair)
        yield Point("GPU to GPU by copy engine", "1 GiB", COPY / (rate * 1e9), ours, COPY)


def _latencies(row: Row, nvlink: Nvlink | None) -> Iterator[Point]:
    """Messages of 64 bytes between NICs."""
    for net, gpu in NETS.items():
        for place, nodes in PLACES.items():
            measured = number(row.metrics, f"{net}_{place}_us")
            if measured is not None:
                ours = latency(cluster_for(row, nodes, gpu, nvlink), "nic")
                what = f"{net} {place.replace('_', ' ')}"
                yield Point("A hop between NICs", what, measured * 1e-6, ours, None)
