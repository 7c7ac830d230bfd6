"""Rows of NCCL's collectives: series of payloads in milliseconds, sweeps of bus bandwidth, and the
bandwidth at one payload.

Bus bandwidth is NCCL's: payload over time, times 2 (N - 1)/N for all-reduce and (N - 1)/N for the
others, so that it compares with a link whatever the group (nccl-tests, doc/PERFORMANCE.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, get_args

from twin.arch.ops import CollectiveKind
from twin.collectives import alone, chosen, traffic
from twin.evidence.validate.points import EFA, Nvlink, Point, cluster_for, on_efa, placed
from twin.evidence.validate.row import Row, Unreadable, number
from twin.network import capacity

SMALLEST: Final = 4 * 2**20
"""Bytes; NCCL sends smaller payloads by other protocols, which the twin does not price."""
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
class Run:
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


def points(row: Row, nvlink: Nvlink | None = None) -> Iterator[Point]:
    """Every collective of a row from the smallest payload up."""
    for run, seconds in runs(row):
        yield _point(row, run, seconds, nvlink)
    nic = number(row.metrics, "per_nic_GBps")
    if nic is not None:
        rate = capacity(cluster_for(row, 2), "nic")
        yield Point("A NIC", "one NIC", 1 / (nic * 1e9), 1 / rate, 1.0)


def runs(row: Row) -> Iterator[tuple[Run, float]]:
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
        run = Run(name, payload, row.gpus or 8, gpu and gpu.upper(), ring is not None)
        if payload >= SMALLEST:
            yield run, run.bus_bytes / (rate * 1e9)


def small(row: Row) -> tuple[float, ...]:
    """Payloads of a row's series that are too small to be priced."""
    return tuple(size for size, _ in _payloads(row) if size < SMALLEST)


def _series(row: Row) -> Iterator[tuple[Run, float]]:
    for payload, entry in _payloads(row):
        if payload < SMALLEST:
            continue
        run = Run(KINDS[str(row.metrics.get("op"))], payload, row.gpus or 1)
        timed = "ms" in entry
        yield run, entry["ms"] * 1e-3 if timed else run.bus_bytes / (entry["busbw_GBps"] * 1e9)


def _payloads(row: Row) -> Iterator[tuple[float, dict[str, float]]]:
    """Entries of a series with the bytes of their payloads."""
    columns = row.metrics.get("columns", ())
    for values in row.metrics.get("series", ()):
        entry = dict(zip(columns, values, strict=True))
        if not {"bytes", "MiB"} & set(entry) or not {"ms", "busbw_GBps"} & set(entry):
            raise Unreadable("a series without payloads and times")
        yield entry.get("bytes") or entry["MiB"] * 2**20, entry


def _point(row: Row, run: Run, measured: float, nvlink: Nvlink | None) -> Point:
    group = placed(run.ranks)
    where = cluster_for(row, group.nodes, run.gpu, nvlink)
    flow = chosen(where, "auto", run.kind, run.payload, group)
    if run.ring:
        flow = traffic(run.kind, run.payload, group)
    ours = alone(flow, where, group)
    what = f"{run.kind.replace('_', '-')} {run.payload / 2**20:,.0f} MiB"
    if run.ring:
        what = f"{what}, ring"
    if run.gpu:
        what = f"{what}, {run.gpu}"
    return Point(_family(row), what, measured, ours, run.bus_bytes)


def _family(row: Row) -> str:
    if on_efa(row):
        return EFA
    if "ms" in row.metrics.get("columns", ()):
        return f"NCCL in a node, {row.gpu.partition('-')[0]}"
    return "NCCL in a node, best of a sweep"
