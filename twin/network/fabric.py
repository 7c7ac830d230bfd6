"""The cluster as a graph of links: what is wired to what, how much each link carries, and the way
from one GPU to another or to host memory.

A vertex is named by what and where it is, and has the attribute `role`:

    gpu/NODE/RAIL  nvswitch/NODE  pcie/NODE/SWITCH  nic/NODE/RAIL  leaf/POD  leaf/POD/RAIL
    socket/NODE/SOCKET  dram/NODE/SOCKET  spine/NUMBER

Edges are directed, one for each direction of a cable, with `capacity` (usable bytes per second),
`link` (its class) and `latency` (seconds beside bytes). The classes are those of
`twin.network.links`, and `slot`: a NIC's own PCIe slot, as wide as a GPU's. Half the latency of a
hop is at each of its ends. Memory reads and writes share one capacity, which a directed graph
cannot say: both edges of a memory carry all of it.

A spine has its part of each leaf's uplinks. Switches themselves do not block, and one is left out:
the link between sockets, which a route never takes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, TypeAlias

from twin.network import topology
from twin.network.links import LinkClass, capacity, sharers
from twin.spec.cluster import ClusterSpec

if TYPE_CHECKING:
    import networkx as nx

EdgeClass: TypeAlias = LinkClass | Literal["slot"]
Wire: TypeAlias = tuple[str, str]
"""Two vertices, in the direction of the bytes."""


@dataclass(frozen=True, slots=True)
class Cable:
    """Both directions of one link between two vertices."""

    ends: Wire
    link: EdgeClass
    capacity: float
    latency: float = 0.0


def fabric(cluster: ClusterSpec, nodes: Collection[int] | None = None) -> nx.DiGraph[str]:
    """The graph of the cluster, or of some of its nodes with the switches that these reach."""
    import networkx as nx  # noqa: PLC0415  what does not ask for the graph must not pay for networkx

    chosen = sorted(range(cluster.nodes) if nodes is None else nodes)
    graph: nx.DiGraph[str] = nx.DiGraph()
    for cable in _cables(cluster, chosen):
        for end in cable.ends:
            graph.add_node(end, role=end.partition("/")[0])
        for one, other in (cable.ends, cable.ends[::-1]):
            graph.add_edge(
                one, other, capacity=cable.capacity, link=cable.link, latency=cable.latency
            )
    return graph


def route(cluster: ClusterSpec, source: str, target: str) -> tuple[Wire, ...]:
    """The edges that bytes cross from one GPU to another GPU or to the memory of its node, or from
    there to a GPU.

    On one node that is NVLink; to another node the source's own NIC, or where NICs have rails the
    target's rail, which NVLink reaches first (NCCL's PXN). Of several spines, a NIC's bytes always
    take the same one, as hashed flows do.

    Raises:
        ValueError: the memory is that of another node or socket than the GPU's.
    """
    if source.startswith("dram/"):
        return tuple((b, a) for a, b in reversed(route(cluster, target, source)))
    role, *place = target.split("/")
    node, rail = (int(part) for part in source.split("/")[1:])
    there, seat = (int(part) for part in place)
    if role == "dram":
        own = f"{node}/{socket(cluster, rail)}"
        if target != f"dram/{own}":
            raise ValueError(f"{source} copies to dram/{own}, not to {target}")
        return _wires([source, _switch(cluster, node, rail), f"socket/{own}", target])
    if there == node:
        between = [] if seat == rail else [f"nvswitch/{node}", target]
        return _wires([source, *between])
    kind = topology.member(cluster.fabric.kind)
    leaves_by = seat if kind.rails else rail
    start = [source] if leaves_by == rail else [source, f"nvswitch/{node}", f"gpu/{node}/{seat}"]
    near = kind.leaf(cluster.fabric, node, leaves_by)
    far = kind.leaf(cluster.fabric, there, seat)
    spine = (node * cluster.node.gpus + leaves_by) % cluster.fabric.spines
    return _wires(
        [
            *start,
            _switch(cluster, node, leaves_by),
            f"nic/{node}/{leaves_by}",
            near,
            *([] if near == far else [f"spine/{spine}", far]),
            f"nic/{there}/{seat}",
            _switch(cluster, there, seat),
            target,
        ]
    )


def socket(cluster: ClusterSpec, rail: int) -> int:
    """The socket that a GPU's PCIe switch hangs on: neighbours share one."""
    return rail * min(cluster.node.host.sockets, cluster.node.gpus) // cluster.node.gpus


def _wires(stops: list[str]) -> tuple[Wire, ...]:
    return tuple(pairwise(stops))


def _switch(cluster: ClusterSpec, node: int, rail: int) -> str:
    return f"pcie/{node}/{rail // cluster.node.host.gpus_per_pcie_switch}"


def _cables(cluster: ClusterSpec, nodes: list[int]) -> Iterator[Cable]:
    for node in nodes:
        yield from _inside(cluster, node)
    yield from _uplinks(cluster, nodes)


def _inside(cluster: ClusterSpec, node: int) -> Iterator[Cable]:
    """One server: each GPU to the NVSwitch, to its PCIe switch and through it to its NIC and the
    memory of its socket; each NIC to its leaf."""
    spec = cluster.node
    kind = topology.member(cluster.fabric.kind)
    pcie, nic = capacity(cluster, "pcie"), capacity(cluster, "nic")
    for rail in range(spec.gpus):
        gpu, port, switch = f"gpu/{node}/{rail}", f"nic/{node}/{rail}", _switch(cluster, node, rail)
        nvlink = capacity(cluster, "nvlink")
        yield Cable((gpu, f"nvswitch/{node}"), "nvlink", nvlink, spec.nvlink.latency / 2)
        yield Cable((gpu, switch), "pcie", pcie)
        yield Cable((switch, port), "slot", pcie)
        leaf = kind.leaf(cluster.fabric, node, rail)
        yield Cable((port, leaf), "nic", nic, spec.nic.latency / 2 + cluster.fabric.hop_latency / 2)
    yield from _memory(cluster, node)


def _memory(cluster: ClusterSpec, node: int) -> Iterator[Cable]:
    """PCIe switches to their socket, and its memory."""
    behind: dict[str, list[int]] = {}
    for rail in range(cluster.node.gpus):
        behind.setdefault(_switch(cluster, node, rail), []).append(rail)
    dram = capacity(cluster, "dram")
    for switch, rails in behind.items():
        up = capacity(cluster, "pcie_uplink") or len(rails) * capacity(cluster, "pcie")
        place = f"{node}/{socket(cluster, rails[0])}"
        start = cluster.node.host.pcie.latency
        yield Cable((switch, f"socket/{place}"), "pcie_uplink", up, start)
        yield Cable((f"socket/{place}", f"dram/{place}"), "dram", dram)


def _uplinks(cluster: ClusterSpec, nodes: list[int]) -> Iterator[Cable]:
    """Leaves to spines; the leaves of a whole cluster's pods, full or not."""
    wiring = cluster.fabric
    kind = topology.member(wiring.kind)
    pods = sorted({node // wiring.nodes_per_leaf for node in nodes})
    nics = sharers(cluster, "leaf")
    rate = nics * capacity(cluster, "nic") / wiring.oversubscription / wiring.spines
    for pod in pods:
        first = pod * wiring.nodes_per_leaf
        leaves = {kind.leaf(wiring, first, rail) for rail in range(cluster.node.gpus)}
        for leaf in sorted(leaves):
            for spine in range(wiring.spines):
                yield Cable((leaf, f"spine/{spine}"), "leaf", rate, wiring.hop_latency)
