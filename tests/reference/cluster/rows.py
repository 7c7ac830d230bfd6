"""The committed rows of `reference.cluster.timing`, and what the twin says of them."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
from scipy.optimize import least_squares

from reference.cluster.namespaces import LocalCluster
from twin import units
from twin.arch.ops import CollectiveKind
from twin.collectives.base import START_HOPS, Traffic
from twin.collectives.traffic import traffic
from twin.network.placement import Placement
from twin.spec.cluster import ClusterSpec

FOLDER = Path(__file__).parents[3] / "scenarios" / "measured" / "epyc-zen4-1core-torch2.13"
AS_THE_TWIN: Mapping[str, CollectiveKind | None] = MappingProxyType(
    {
        "message": None,
        "receive_first": None,
        "all_reduce": "all_reduce",
        "all_to_all_posted": "all_to_all",
        "reduce_scatter_posted": "reduce_scatter",
        "all_gather_posted": "all_gather",
    }
)
"""Patterns that the twin has a law for, unchanged; None: a message."""


@dataclass(frozen=True)
class Row:
    """One pattern of one size: seconds, and bytes of the card that carried most."""

    pattern: str
    nodes: int
    rate: float
    bytes: int
    least: float
    median: float
    sent: int

    @property
    def share(self) -> float:
        """Bytes through a card over those of the payload."""
        return self.sent / self.bytes

    @property
    def traffic(self) -> Traffic:
        """What the twin says that it puts on links."""
        kind = AS_THE_TWIN[self.pattern]
        if kind is None:
            return Traffic(nic_bytes=self.bytes, nic_hops=1)
        return traffic(kind, self.bytes, Placement(self.nodes, 1, self.nodes))


def shaped() -> list[Row]:
    """All rows over links of a declared rate."""
    with (FOLDER / "gloo.csv").open() as file:
        return [
            Row(
                row["pattern"],
                int(row["nodes"]),
                units.parse(row["rate"], "bytes_per_s"),
                int(row["bytes"]),
                float(row["least"]),
                float(row["median"]),
                int(row["sent"]),
            )
            for row in csv.DictReader(file)
            if row["rate"]
        ]


def quiet() -> list[Row]:
    """Rows whose link, and not the busy machine, sets the time: 256 KiB and more, over 1 Gbps and
    less between two ranks, over 100 Mbps between four."""
    most = {2: 1.25e8, 4: 1.25e7}
    return [
        row
        for row in shaped()
        if row.pattern in AS_THE_TWIN and row.rate <= most[row.nodes] and row.bytes >= 2**18
    ]


@dataclass(frozen=True)
class Fit:
    """Share of the line rate, seconds of a hop over the network, of a hop of a start."""

    efficiency: float
    hop: float
    start_hop: float


def seconds(rows: list[Row], fit: Fit) -> np.ndarray:
    """What the twin's law says: bytes / rate + hops x latency."""
    flows = [row.traffic for row in rows]
    line = np.array([flow.nic_bytes / row.rate for flow, row in zip(flows, rows, strict=True)])
    hops = np.array([[flow.nic_hops, flow.nvlink_hops] for flow in flows])
    assert set(hops[:, 1]) <= {0, START_HOPS}
    return line / fit.efficiency + hops @ [fit.hop, fit.start_hop]


def fitted(rows: list[Row]) -> Fit:
    """Least squares on logarithms; what the busy machine made much longer counts linearly."""
    least = np.array([row.least for row in rows])

    def residuals(at: np.ndarray) -> np.ndarray:
        return np.log(seconds(rows, Fit(*np.exp(at))) / least)

    start = np.log([0.97, 2e-4, 2e-5])
    return Fit(*np.exp(least_squares(residuals, start, loss="soft_l1", f_scale=0.02).x))


def of_scenario(cluster: ClusterSpec) -> LocalCluster:
    """The cluster of a scenario: its GPUs are ranks, its network cards have their line rate."""
    return LocalCluster(cluster.nodes, cluster.node.gpus, cluster.node.nic.bandwidth)
