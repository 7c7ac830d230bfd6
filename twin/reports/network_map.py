"""A few nodes of the cluster as a drawing: GPUs, switches and links by level, and where the groups
of the first rank sit.

A cluster of hundreds of nodes repeats itself, so that only nodes are drawn which show something:
the first, and the next one that each of its groups reaches.

How each class of link is used: bytes, capacity, and the time in which something is under way.

A transfer over several links at once is taken to be done with each as early as it would be alone,
in proportion. Everything that a NIC moves crosses the GPU's PCIe link too, and so do copies to and
from host memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from twin.loading.files import table
from twin.network.fabric import fabric
from twin.planning.mesh import GROUPS, Grid, degrees
from twin.planning.types import Mesh, Plan
from twin.spec.cluster import ClusterSpec

if TYPE_CHECKING:
    import networkx as nx
from dataclasses import field, replace

import numpy as np
from numpy.typing import NDArray

from twin.collectives.traffic import Traffic
from twin.engine.program import FROM_HOST, SEND_BACKWARD, SEND_FORWARD, TO_HOST, Program, Step
from twin.engine.trace import Trace
from twin.network.links import capacity

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


LABELS: Final = table(__name__, "LABELS")
"""Classes of links in the order of the path, in words; others are called by their key."""
_COPIES: Final = (TO_HOST, FROM_HOST)
"""Streams of host copies."""
_HOST_LINKS: Final = ("pcie", "dram")
"""What they cross."""
_UNSIMULATED: Final = {"leaf": ", per NIC"}
"""What is added to the name of a link that the trace does not know."""


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """One class of link; means over its links, and over the directions of those that have two."""

    key: str
    label: str
    capacity: float
    """Usable bytes per second of one link; of host memory read and written together."""
    bytes: float
    """Bytes that one link carries per step."""
    use: float
    """Share of its capacity that the step uses, 0 to 1."""
    busy: float = 0.0
    """Share of the step in which something is under way on it, 0 to 1."""
    rate: float | None = None
    """Bytes per second while something is; None where nothing ever is."""
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
    """Of `bytes`: NIC traffic and host copies, where both may be."""

    @property
    def spoken(self) -> str:
        """The label within a sentence; abbreviations keep their capitals."""
        first, second = self.label[:1], self.label[1:2]
        return (first.lower() if second.islower() else first) + self.label[1:]

    def to_json(self) -> dict[str, Any]:
        """The link in plain data."""
        return {
            "link": self.key,
            "label": self.label,
            "capacity_bytes_per_second": self.capacity,
            "bytes": self.bytes,
            "use": self.use,
            "busy_share": self.busy,
            "busy_bytes_per_second": self.rate,
            "parts": dict(self.parts),
        }


def link_use(
    plan: Plan, program: Program, trace: Trace, uplink_bytes: float
) -> tuple[LinkLoad, ...]:
    """Every class of link that the trace knows, and those that carry the NICs' bytes unsimulated,
    because they are no slower: a GPU's PCIe link, and the uplinks of a leaf."""
    step, busy = trace.step_ns / 1e9, _busy(program, trace)
    carried = dict(trace.link_bytes)
    rates = {key: _capacity(program, key) for key in carried}
    if "pcie" not in carried and carried.get("nic"):
        carried["pcie"], rates["pcie"] = carried["nic"], capacity(plan.scenario.cluster, "pcie")
    if "dram" not in carried:
        # Nothing is copied to the host.
        carried["dram"] = 0.0
        rates["dram"] = capacity(plan.scenario.cluster, "dram")
    cluster = plan.scenario.cluster
    if "leaf" not in carried and cluster.nodes > cluster.fabric.nodes_per_leaf:
        carried["leaf"] = uplink_bytes
        rates["leaf"] = rates["nic"] / cluster.fabric.oversubscription
    order = [*LABELS, *(key for key in carried if key not in LABELS)]
    return tuple(
        LinkLoad(
            key,
            LABELS.get(key, key) + ("" if key in trace.link_bytes else _UNSIMULATED.get(key, "")),
            rates[key],
            carried[key],
            carried[key] / (rates[key] * step),
            busy.get(key, 0.0) / trace.step_ns,
            1e9 * carried[key] / busy[key] if busy.get(key) else None,
            _parts(key, carried),
        )
        for key in order
        if key in carried
    )


def _parts(key: str, carried: Mapping[str, float]) -> dict[str, float]:
    """What crosses a PCIe link: the NIC's bytes, and the rest, which are host copies."""
    if key != "pcie":
        return {}
    nic = min(carried["nic"], carried[key])
    return {"NIC traffic": nic, "host copies": carried[key] - nic}


def _capacity(program: Program, key: str) -> float:
    """Bytes per second of one link of a class."""
    wiring = program.wiring
    own = [rate for kind, rate in zip(wiring.classes, wiring.capacity, strict=True) if kind == key]
    return 1e9 * sum(own) / len(own)


def _busy(program: Program, trace: Trace) -> dict[str, float]:
    """Nanoseconds of the whole step in which something is under way on each class of link, mean of
    the roles."""
    spans, found = trace.spans, dict[str, float]()
    lengths = spans.end - spans.start
    for key, share in _crossing(program, trace).items():
        end = spans.start + np.rint(share * lengths).astype(np.int64)
        total = 0.0
        for role in range(len(trace.roles)):
            rows = (share > 0) & (spans.role == role)
            total += _covered(spans.start[rows], end[rows], trace)
        found[key] = total / len(trace.roles)
    return found


def _crossing(program: Program, trace: Trace) -> dict[str, NDArray[np.float64]]:
    """The share of each span's time for which it is on each class of link."""
    spans, message = trace.spans, program.message
    shares = {key: np.zeros(len(spans.start)) for key in LABELS}
    for (stream, name), steps in steps_by_name(program).items():
        if name not in trace.names:
            continue
        own = (spans.stream == stream) & (spans.name == trace.names.index(name))
        for key in LABELS:
            # Of steps of one name, whose spans the trace does not tell apart, the longest.
            shares[key][own] = max(_share(step, key, program) for step in steps)
    for key in ("nvlink",) if message.link == "nvlink" else _nic_path(far=message.far):
        shares[key][np.isin(spans.stream, (SEND_FORWARD, SEND_BACKWARD))] = 1.0
    for key in _HOST_LINKS:
        shares[key][np.isin(spans.stream, _COPIES)] = 1.0
    return shares


def _share(step: Step, key: str, program: Program) -> float:
    """Of a step's time alone: how much passes until its bytes are through a class of link."""
    flow = step.traffic or Traffic()
    if key not in _crossed(flow):
        return 0.0
    if key != "nvlink":
        own = replace(flow, nvlink_bytes=0.0)
    else:
        own = Traffic(nvlink_bytes=flow.nvlink_bytes)
    whole = step.alone_ns(program.capacity)
    return replace(step, traffic=own).alone_ns(program.capacity) / whole if whole else 0.0


def _crossed(flow: Traffic) -> tuple[str, ...]:
    """Classes of links that a transfer crosses."""
    nvlink = ("nvlink",) if flow.nvlink_bytes else ()
    nic = _nic_path(far=flow.far_bytes > 0) if flow.nic_bytes else ()
    host = _HOST_LINKS if flow.to_host_bytes or flow.from_host_bytes else ()
    return (*nvlink, *nic, *host)


def _nic_path(*, far: bool) -> tuple[str, ...]:
    return ("pcie", "nic", "leaf") if far else ("pcie", "nic")


def _covered(start: NDArray[np.int64], end: NDArray[np.int64], trace: Trace) -> float:
    """Nanoseconds of the whole step that some of these spans cover; a window that repeats counts as
    often as it does."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    if not len(start):
        return 0.0
    reached = np.maximum.accumulate(end)
    begins = np.maximum(start, np.concatenate([[0], reached[:-1]]))
    ends = np.maximum(end, begins)
    whole = float((ends - begins).sum())
    if trace.repeats == 1:
        return whole
    first, last = trace.window_start, trace.window_end
    window = np.clip(ends, first, last) - np.clip(begins, first, last)
    return whole + (trace.repeats - 1) * float(window.sum())


def steps_by_name(program: Program) -> dict[tuple[int, str], tuple[Step, ...]]:
    """The program's steps that communicate, by stream and name."""
    templates = [
        *program.passes.values(),
        program.receive,
        *map(program.once, range(program.stages)),
    ]
    found: dict[tuple[int, str], list[Step]] = {}
    for step in (step for template in templates for step in template if step.traffic):
        found.setdefault((step.stream, step.name), []).append(step)
    return {key: tuple(steps) for key, steps in found.items()}
