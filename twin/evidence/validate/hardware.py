"""Cluster of a published row: the catalog's node of its GPU, cut down or repeated, and a fabric as
fast as its NICs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from math import ceil
from typing import Any, Final

from twin.errors import UsageError
from twin.evidence.validate.row import Row, Unreadable
from twin.loading import catalog_parts, load_part
from twin.spec.cluster import NodeSpec

_RATE: Final = re.compile(r"(\d+) ?x ?(\d+) ?G\b", re.IGNORECASE)
"""NICs per node and their rate, as in `8x400G`."""
_BLOCKED: Final = re.compile(r"1:(\d+) oversubscribed.*?(\d+)-GPU pods", re.IGNORECASE)
"""What is left of the rate between pods, and the GPUs of one."""


@dataclass(frozen=True, slots=True)
class Place:
    """The section `cluster` of a scenario, and what is changed in the parts that it names."""

    section: dict[str, Any]
    over: dict[str, Any]


def cluster_of(row: Row) -> Place:
    """Where a row ran. Raises `Unreadable` for a GPU that the catalog does not know, or a count of
    GPUs that fills no nodes."""
    gpus = row.gpus
    if gpus is None:
        raise Unreadable("the row does not say on how many GPUs")
    name = _node(row)
    node = load_part("nodes", name).spec
    each = _per_node(gpus, node.gpus)
    section = {"node": name, "nodes": gpus // each, "fabric": _fabric(row, node)}
    over: dict[str, Any] = {} if each == node.gpus else {"node": {"gpus": each}}
    blocked = _BLOCKED.search(str(row.system.get("network", "")))
    if blocked is not None:
        pod = max(1, int(blocked[2]) // each)
        over["fabric"] = {"oversubscription": float(blocked[1]), "nodes_per_leaf": pod}
    return Place(section, over)


def gpu_of(row: Row) -> str:
    """The GPU's name in the catalog."""
    try:
        return load_part("gpus", row.gpu).spec.name
    except UsageError:
        raise Unreadable(f"the catalog has no GPU {row.gpu}") from None


@cache
def _nodes_with(gpu: str) -> dict[str, NodeSpec]:
    specs = {name: load_part("nodes", name).spec for name in catalog_parts("nodes")}
    return {name: spec for name, spec in specs.items() if spec.gpu.name == gpu}


def _node(row: Row) -> str:
    """Of the nodes with the GPU the one whose NICs come closest to what the row says; where it says
    nothing, the fastest."""
    gpu = gpu_of(row)
    having = _nodes_with(gpu)
    if not having:
        raise Unreadable(f"the catalog has no node of {gpu}")
    words = _RATE.search(str(row.system.get("network", "")))
    if words is None:
        return max(having, key=lambda name: having[name].nic.bandwidth)
    rate = int(words[1]) * int(words[2]) * 1e9 / 8
    return min(having, key=lambda n: abs(having[n].nic.bandwidth * having[n].gpus - rate))


def _per_node(gpus: int, most: int) -> int:
    """GPUs of each of equal nodes: as many as divide the whole."""
    nodes = ceil(gpus / most)
    while gpus % nodes:
        nodes += 1
    return gpus // nodes


def _fabric(row: Row, node: NodeSpec) -> str:
    """The catalog's fat tree that is as fast as the node's NICs."""
    domain = row.system.get("gpus_per_nvlink_domain")
    rate = round(node.nic.bandwidth * 8e-9)
    names = [name for name in catalog_parts("fabrics") if name.startswith("rail-fat-tree")]
    wide = [name for name in names if "nvl" in name]
    if isinstance(domain, int) and domain > node.gpus >= 8 and wide:
        return wide[0]
    name = f"rail-fat-tree-{max(rate, 200)}g"
    if name not in names:
        raise Unreadable(f"the catalog has no fabric of {rate} Gb/s per NIC")
    return name
