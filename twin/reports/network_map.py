"""A few nodes of the cluster as a drawing: GPUs, switches and links by level, and where the groups
of the first rank sit.

A cluster of hundreds of nodes repeats itself, so that only nodes are drawn which show something:
the first, and the next one that each of its groups reaches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from twin.network.fabric import fabric
from twin.planning.mesh import GROUPS, Grid, degrees
from twin.planning.types import Mesh, Plan
from twin.spec.cluster import ClusterSpec

if TYPE_CHECKING:
    import networkx as nx

MOST_NODES: Final = 4
"""Nodes that one drawing shows."""
MOST_GPUS: Final = 8
"""GPUs per node that one drawing shows."""
MOST_SPINES: Final = 8
"""Switches per level above the leaves that one drawing shows."""
REACH: Final = 2_048
"""Nodes among which the drawn ones are looked for."""
_PIPELINE: Final = ("pipeline",)
LEVELS: Final = ("nvswitch", "gpu", "pcie", "dram", "nic", "leaf", "spine")
"""What is drawn, from the bottom up. Sockets stand for their memory."""
_INSIDE: Final = LEVELS[:5]
"""Parts of a node."""


@dataclass(frozen=True, slots=True)
class Vertex:
    """Something drawn: its name in the topology, what it is, and its place (columns across, levels
    up)."""

    name: str
    role: str
    x: float
    level: int
    node: int | None
    """Index of the node that it is part of; None for switches of the fabric."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A link between two vertices, by their positions in the map."""

    a: int
    b: int
    link: str
    """Class of the link: `nvlink`, `pcie`, `nic` or `leaf`."""


@dataclass(frozen=True, slots=True)
class NetworkMap:
    """The drawn part of a cluster."""

    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    nodes: tuple[int, ...]
    """Indices of the drawn nodes."""
    of_nodes: int
    gpus: int
    """GPUs drawn per node."""
    of_gpus: int
    spines: int
    """Switches drawn above the leaves."""
    of_spines: int
    groups: Mapping[str, frozenset[int]]
    """Vertices of the GPUs that the first rank's group of each kind has in the drawing."""
    sizes: Mapping[str, int]
    """Ranks of those groups, drawn or not; groups of one are left out."""


def network_map(plan: Plan) -> NetworkMap:
    """The drawing of a plan's cluster."""
    cluster, mesh = plan.scenario.cluster, plan.mesh
    groups = first_groups(mesh)
    if plan.scenario.model.moe is None:
        groups = {name: ranks for name, ranks in groups.items() if "expert" not in name}
    nodes = _shown_nodes(cluster, mesh, groups.values())
    graph = _without_sockets(fabric(cluster, nodes).to_undirected())
    names = _shown(graph, nodes)
    vertices = _placed(graph, names, nodes)
    index = {vertex.name: at for at, vertex in enumerate(vertices)}
    edges = tuple(
        Edge(index[a], index[b], _link(str(graph.edges[a, b]["link"])))
        for a, b in graph.edges
        if a in index and b in index
    )
    return NetworkMap(
        vertices=vertices,
        edges=edges,
        nodes=nodes,
        of_nodes=cluster.nodes,
        gpus=min(cluster.node.gpus, MOST_GPUS),
        of_gpus=cluster.node.gpus,
        spines=sum(vertex.role == "spine" for vertex in vertices),
        of_spines=cluster.fabric.spines,
        groups={
            name: frozenset(index[gpu] for rank in ranks if (gpu := _gpu(rank, mesh)) in index)
            for name, ranks in groups.items()
        },
        sizes={name: len(ranks) for name, ranks in groups.items()},
    )


def _link(link: str) -> str:
    """A NIC's slot is drawn as the NIC that fills it."""
    return "nic" if link == "slot" else link


def _without_sockets(graph: nx.Graph[str]) -> nx.Graph[str]:
    """The graph with PCIe switches wired to the memory of their socket."""
    for place in [name for name in graph if name.startswith("socket/")]:
        memory = place.replace("socket/", "dram/")
        switches = [name for name in graph[place] if name != memory]
        graph.remove_node(place)
        graph.add_edges_from(((switch, memory) for switch in switches), link="dram")
    return graph


def first_groups(mesh: Mesh) -> dict[str, tuple[int, ...]]:
    """Ranks of the first rank's group of each kind, ascending; groups of one are left out."""
    axes: dict[str, tuple[Grid, tuple[str, ...]]] = {**GROUPS, "pipeline": ("dense", _PIPELINE)}
    found: dict[str, tuple[int, ...]] = {}
    for name, (grid, differ) in axes.items():
        sizes = degrees(mesh, grid)
        ranks, apart = [0], 1
        for axis in mesh.order:
            if axis in differ:
                ranks = [rank + apart * at for at in range(sizes[axis]) for rank in ranks]
            apart *= sizes[axis]
        if len(ranks) > 1:
            found[name] = tuple(sorted(ranks))
    return found


def _gpu(rank: int, mesh: Mesh) -> str:
    """The vertex of the GPU that a rank runs on: ranks fill nodes in order."""
    node, place = divmod(rank, mesh.gpus_per_node)
    return f"gpu/{node}/{place}"


def _shown_nodes(
    cluster: ClusterSpec, mesh: Mesh, groups: Iterable[tuple[int, ...]]
) -> tuple[int, ...]:
    """The first node, the next one of each group, and neighbours while there is room."""
    chosen = {0}
    for ranks in groups:
        others = (rank // mesh.gpus_per_node for rank in ranks)
        chosen |= {next((node for node in others if node not in chosen and node < REACH), 0)}
    shown = sorted(chosen)[:MOST_NODES]
    for node in range(cluster.nodes):
        if len(shown) >= min(MOST_NODES, cluster.nodes):
            break
        shown += [node] if node not in shown else []
    return tuple(sorted(shown))


def _shown(graph: nx.Graph[str], nodes: tuple[int, ...]) -> list[str]:
    """Names of what is drawn: parts of the chosen nodes, the switches that these reach, and a few
    of the switches above."""
    prefixes = {f"{role}/{node}" for role in _INSIDE for node in nodes}
    names: list[str] = []
    for name in graph:
        role, node, *place = name.split("/")
        serves = [int(place[0])] if role in ("gpu", "nic") else _rails(graph, name)
        if f"{role}/{node}" in prefixes and min(serves) < MOST_GPUS:
            names.append(name)
    below = set(names)
    while above := [
        name
        for name in dict.fromkeys(other for one in below for other in sorted(graph[one]))
        if name not in names and graph.nodes[name]["role"] not in _INSIDE
    ]:
        leaves = all(graph.nodes[name]["role"] == "leaf" for name in above)
        above = sorted(above, key=_order)
        above = above if leaves else above[:MOST_SPINES]
        names += above
        below = set(above) if leaves else set[str]()
    return names


def _order(name: str) -> tuple[str, list[int]]:
    role, *numbers = name.split("/")
    return role, [int(number) for number in numbers]


def _placed(graph: nx.Graph[str], names: list[str], nodes: tuple[int, ...]) -> tuple[Vertex, ...]:
    """Vertices in rows by level: parts of a node side by side, switches spread over the width."""
    width = max((int(n.split("/")[2]) for n in names if n.startswith("gpu/")), default=0) + 1
    pitch = width + 1.5
    span = len(nodes) * pitch - 1.5
    rows: dict[str, list[str]] = {}
    for name in names:
        rows.setdefault(str(graph.nodes[name]["role"]), []).append(name)
    placed: list[Vertex] = []
    for role in sorted(rows, key=_level):
        row = sorted(rows[role], key=_order)
        for at, name in enumerate(row):
            _, first, *place = name.split("/")
            if role in _INSIDE:
                node = int(first)
                rails = _rails(graph, name)
                offset = float(place[0]) if role in ("gpu", "nic") else _middle(rails, width)
                x = nodes.index(node) * pitch + offset
            else:
                node, x = None, (at + 0.5) * span / len(row) - 0.5
            placed.append(Vertex(name, role, x, _level(role), node))
    return tuple(placed)


def _level(role: str) -> int:
    return LEVELS.index(role)


def _rails(graph: nx.Graph[str], name: str) -> list[int]:
    """Numbers of the GPUs that a part of a node serves."""
    near = list(graph[name])
    if name.startswith("dram/"):
        near = [gpu for switch in near for gpu in graph[switch]]
    return [int(one.split("/")[2]) for one in near if one.startswith("gpu/")]


def _middle(rails: list[int], width: int) -> float:
    """Over the middle of the drawn ones of some GPUs."""
    drawn = [rail for rail in rails if rail < width]
    return (min(drawn) + max(drawn)) / 2
