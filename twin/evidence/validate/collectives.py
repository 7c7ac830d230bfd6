"""Rows of communication: NCCL's collectives, expert all-to-all, host copies, link latencies.

Every time is priced on idle links of the catalog's nodes of the row's GPU, and answered as the
bandwidth that its source reports: errors are of bandwidths, and too long is negative. A fit has
seen the rows that determine NVLink's efficiency and latency, and the start-up cost of a collective
(docs/collectives.md). Bus bandwidth is NCCL's: payload over time, times 2 (N - 1)/N for all-reduce
and (N - 1)/N for the others, so that it compares with a link whatever the group (nccl-tests,
doc/PERFORMANCE.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, get_args

from twin.arch.ops import CollectiveKind
from twin.collectives.base import Traffic
from twin.collectives.traffic import alone, chosen, traffic
from twin.evidence.validate import exchanges
from twin.evidence.validate.answer import RowResult, answering, blank, reason_of, refused
from twin.evidence.validate.exchanges import (
    EFA,
    MeasuredTransfer,
    Nvlink,
    assumed,
    cluster_for,
    placed,
)
from twin.evidence.validate.scenario_parts import on_efa
from twin.evidence.validate.suite import PublishedRow, Unreadable, number
from twin.network.links import capacity, latency

SMALL: Final = 4 * 2**20
"""Bytes; NCCL sends smaller payloads with flags (`twin.collectives.base.flagged`)."""
LARGE: Final = 16 * 2**30
"""Bytes; where a row gives the best bandwidth of a sweep."""
KINDS: Final[dict[str, CollectiveKind]] = {
    "alltoall": "all_to_all",
    **{kind: kind for kind in get_args(CollectiveKind)},
}
_RATE: Final = re.compile(r"(?:(h100|a100)_|(ring_no_nvls)_|single_node_)?"
                          r"(?:(all_reduce|all_gather|reduce_scatter|alltoall)_)?busbw_GBps"
                          r"(?:_(\d+)([MG])iB|_peak)?")  # fmt: skip
"""Names of bus bandwidths: of which GPU, by which algorithm, of what, at which payload."""


@dataclass(frozen=True, slots=True)
class CollectiveRun:
    """One collective: its kind, bytes of its payload, its ranks, the GPU where the row names
    several, and whether rings were forced."""

    kind: CollectiveKind
    payload: float
    ranks: int
    gpu: str | None = None
    ring: bool = False

    @property
    def bus_bytes(self) -> float:
        """Bytes that bus bandwidth counts."""
        passes = 2 if self.kind == "all_reduce" else 1
        return passes * self.payload * (self.ranks - 1) / self.ranks

    @property
    def priced(self) -> bool:
        """Whether it is large, or inside a node."""
        return self.payload >= SMALL or placed(self.ranks).nodes == 1


def nccl_points(row: PublishedRow, nvlink: Nvlink | None = None) -> Iterator[MeasuredTransfer]:
    """Every collective of a row from the smallest payload up."""
    for run, seconds in runs(row):
        yield _point(row, run, seconds, nvlink)
    nic = number(row.metrics, "per_nic_GBps")
    if nic is not None:
        rate = capacity(cluster_for(row, 2), "nic")
        yield MeasuredTransfer("A NIC", "one NIC", 1 / (nic * 1e9), 1 / rate, 1.0)


def runs(row: PublishedRow) -> Iterator[tuple[CollectiveRun, float]]:
    """The collectives of a row, and seconds of each."""
    yield from _series(row)
    for key in row.metrics:
        found = _RATE.fullmatch(key)
        rate = number(row.metrics, key) if found else None
        if found is None or rate is None:
            continue
        gpu, ring, kind, size, unit = found.groups()
        payload = int(size) * 2 ** (30 if unit == "G" else 20) if size else LARGE
        name = KINDS[kind or str(row.metrics.get("op", "all_reduce"))]
        run = CollectiveRun(name, payload, row.gpus or 8, gpu and gpu.upper(), ring is not None)
        if run.priced:
            yield run, run.bus_bytes / (rate * 1e9)


def unpriced(row: PublishedRow) -> tuple[float, ...]:
    """Payloads of a row's series that are too small to be priced."""
    return tuple(size for size, _ in _payloads(row) if not _run(row, size).priced)


def _run(row: PublishedRow, payload: float) -> CollectiveRun:
    return CollectiveRun(KINDS[str(row.metrics.get("op"))], payload, row.gpus or 1)


def _series(row: PublishedRow) -> Iterator[tuple[CollectiveRun, float]]:
    for payload, entry in _payloads(row):
        run = _run(row, payload)
        if run.priced:
            timed = "ms" in entry
            yield run, entry["ms"] * 1e-3 if timed else run.bus_bytes / (entry["busbw_GBps"] * 1e9)


def _payloads(row: PublishedRow) -> Iterator[tuple[float, dict[str, float]]]:
    """Entries of a series with the bytes of their payloads."""
    columns = row.metrics.get("columns", ())
    for values in row.metrics.get("series", ()):
        entry = dict(zip(columns, values, strict=True))
        if not {"bytes", "MiB"} & set(entry) or not {"ms", "busbw_GBps"} & set(entry):
            raise Unreadable("a series without payloads and times")
        yield entry.get("bytes") or entry["MiB"] * 2**20, entry


def _point(
    row: PublishedRow, run: CollectiveRun, measured: float, nvlink: Nvlink | None
) -> MeasuredTransfer:
    group = placed(run.ranks)
    where = cluster_for(row, group.nodes, run.gpu, nvlink)
    flow = chosen(where, "auto", run.kind, run.payload, group)
    if run.ring:
        flow = traffic(run.kind, run.payload, group)
    ours = alone(flow, where, group)
    size, unit = (
        (run.payload / 2**20, "MiB") if run.payload >= 2**20 else (run.payload / 2**10, "KiB")
    )
    what = f"{run.kind.replace('_', '-')} {size:,.0f} {unit}"
    if run.ring:
        what = f"{what}, ring"
    if run.gpu:
        what = f"{what}, {run.gpu}"
    return MeasuredTransfer(_family(row, run), what, measured, ours, run.bus_bytes)


def _family(row: PublishedRow, run: CollectiveRun) -> str:
    if on_efa(row):
        return f"NCCL over {EFA}"
    if run.payload < SMALL:
        return "NCCL in a node, small payloads"
    if "ms" in row.metrics.get("columns", ()):
        return f"NCCL in a node, {row.gpu.partition('-')[0]}"
    return "NCCL in a node, best of a sweep"


RATE: Final = "bus_bytes_per_second"
SECONDS: Final = "kernel_seconds"
MOST: Final = 1e30
"""More bytes, or seconds, than any transfer has."""
COPY: Final = 2**30
"""Bytes of a copy by a copy engine; its source gives the rate of long ones."""
NETS: Final = MappingProxyType({"roce": "H800", "ib": "A100-80GB"})
"""Whose NICs have the latency of a kind of network in the catalog."""
PLACES: Final = MappingProxyType({"same_leaf": 2, "cross_leaf": 64})
"""Nodes of a cluster whose farthest pair is under one leaf, and under two."""

Read = Callable[[PublishedRow, Nvlink | None], Iterator[MeasuredTransfer]]


_NOTHING: Final = "nothing in it is a time or rate of bytes over a link"
_GARBLED: Final = "its payloads and times cannot be read"
_SMALL: Final = "what NCCL's protocols for payloads under 4 MiB cost between nodes"


@answering(RATE, _NOTHING, garbled=_GARBLED)
def answers(row: PublishedRow) -> Iterator[RowResult]:
    """Bandwidth (or latency) of everything that a row measured, one answer each."""
    reason = reason_of("collectives", row.id)
    if reason is not None:
        raise Unreadable(reason)
    for size in unpriced(row) if _reader(row) is nccl_points else ():
        yield replace(refused(row, RATE, _SMALL), id=f"{row.id}[{size:,.0f} B]")
    for point in points(row):
        yield answer(row, point)


def answer(row: PublishedRow, point: MeasuredTransfer) -> RowResult:
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
        raise Unreadable(_GARBLED)
    rates = point.bytes / point.ours, point.bytes / point.measured
    return replace(known, predicted=rates[0], measured=rates[1])


def points(row: PublishedRow, nvlink: Nvlink | None = None) -> Iterator[MeasuredTransfer]:
    """Everything that a row measured; `nvlink` in place of the catalog's numbers."""
    yield from _reader(row)(row, nvlink)


def _reader(row: PublishedRow) -> Read:
    if "ep" in row.layout:
        return exchanges.points
    if any(map(exchanges.NAMED.fullmatch, row.metrics)):
        return exchanges.named_points
    if "h2d_GBps" in row.metrics:
        return _copies
    if any(key.endswith("_leaf_us") for key in row.metrics):
        return _latencies
    return nccl_points


def _copies(row: PublishedRow, nvlink: Nvlink | None) -> Iterator[MeasuredTransfer]:
    """Copies from pinned memory, to it, and between two GPUs by the copy engine."""
    where = cluster_for(row, nvlink=nvlink)
    ours = COPY / capacity(where, "pcie") + latency(where, "pcie")
    for way in ("h2d", "d2h"):
        rate = number(row.metrics, f"{way}_GBps")
        if rate is not None:
            yield MeasuredTransfer("Host copies, PCIe Gen5", way, COPY / (rate * 1e9), ours, COPY)
    rate = number(row.metrics, "nvlink_p2p_unidirectional_GBps")
    if rate is not None:
        pair = placed(2)
        ours = alone(Traffic(nvlink_bytes=COPY, nvlink_hops=1), where, pair)
        yield MeasuredTransfer(
            "GPU to GPU by copy engine", "1 GiB", COPY / (rate * 1e9), ours, COPY
        )


def _latencies(row: PublishedRow, nvlink: Nvlink | None) -> Iterator[MeasuredTransfer]:
    """Messages of 64 bytes between NICs."""
    for net, gpu in NETS.items():
        for place, nodes in PLACES.items():
            measured = number(row.metrics, f"{net}_{place}_us")
            if measured is not None:
                ours = latency(cluster_for(row, nodes, gpu, nvlink), "nic")
                what = f"{net} {place.replace('_', ' ')}"
                yield MeasuredTransfer("A hop between NICs", what, measured * 1e-6, ours, None)
