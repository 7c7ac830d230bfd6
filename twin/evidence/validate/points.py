"""Measured times of bytes over links, and the cluster that each is priced on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from math import ceil
from types import MappingProxyType
from typing import Final

from twin.errors import UsageError
from twin.evidence.validate.row import Row, Unreadable
from twin.loading import catalog_parts, load_part
from twin.network import Placement
from twin.spec.cluster import ClusterSpec

GPUS: Final = MappingProxyType(
    {
        "H100/H200": "H100",
        "H800/H100 (SM90)": "H100",
        "B200 (SM100)": "B200",
        "A100": "A100-80GB",
    }
)
"""GPUs in the words of sources. SM90 is taken for H100: between two nodes DeepEP V2's 90 GB/s are
more than H800's NVLink carries. Collectives of 40 and of 80 GB A100 cross the same NVLink."""
EFA: Final = "Amazon's EFA instead of InfiniBand or RoCE (no part of the catalog)"
"""A family that is priced as if its 3,200 Gb/s per node were the NICs of the GPU's node."""
DOMAIN: Final = 8
"""GPUs that share NVLink, on all nodes of rows of collectives."""


@dataclass(frozen=True, slots=True)
class Nvlink:
    """What a fit says of a GPU's NVLink."""

    efficiency: float
    latency: float
    own_share: float


@dataclass(frozen=True, slots=True)
class Point:
    """One measured time (seconds) and ours. `bytes` are those whose rate the source reports, over
    that time; None where it reports the time of a message without size."""

    family: str
    what: str
    measured: float
    ours: float
    bytes: float | None

    @property
    def error(self) -> float:
        """How much longer ours is, as a part of the measured time."""
        return self.ours / self.measured - 1


def placed(ranks: int) -> Placement:
    """A group that fills its nodes."""
    return Placement(ranks, min(DOMAIN, ranks))


def cluster_for(
    row: Row, nodes: int = 1, gpu: str | None = None, nvlink: Nvlink | None = None
) -> ClusterSpec:
    """Nodes of the row's GPU (or of another), under a fabric as fast as their NICs; `nvlink` in
    place of the catalog's numbers. Raises `Unreadable` where the catalog has none."""
    name = gpu or row.gpu
    found = _cluster(GPUS.get(name, name), nodes)
    if nvlink is None:
        return found
    numbers = asdict(nvlink)
    link = found.node.nvlink.model_copy(update=numbers)
    return found.model_copy(update={"node": found.node.model_copy(update={"nvlink": link})})


@cache
def _cluster(gpu: str, nodes: int) -> ClusterSpec:
    """Of nodes with the GPU those with the fastest NICs."""
    try:
        name = load_part("gpus", gpu).spec.name
    except UsageError:
        raise Unreadable(f"the catalog has no GPU {gpu}") from None
    specs = [load_part("nodes", part).spec for part in catalog_parts("nodes")]
    having = [spec for spec in specs if spec.gpu.name == name]
    if not having:
        raise Unreadable(f"the catalog has no node of {gpu}")
    node = max(having, key=lambda spec: spec.nic.bandwidth)
    rate = ceil(node.nic.bandwidth * 8e-9)
    fabric = load_part("fabrics", f"rail-fat-tree-{rate}g").spec
    return ClusterSpec(node=node, nodes=nodes, fabric=fabric)


def on_efa(row: Row) -> bool:
    """Whether nodes are connected by Amazon's EFA."""
    return "EFA" in str(row.system.get("network", ""))


def assumed(row: Row) -> tuple[str, ...]:
    """What a price of the row's links takes for granted."""
    found: list[str] = []
    if on_efa(row):
        found.append("EFA's 3,200 Gb/s per node as if they were InfiniBand NICs")
    if row.gpu in GPUS:
        found.append(f"{row.gpu} taken for {GPUS[row.gpu]}")
    return tuple(found)
