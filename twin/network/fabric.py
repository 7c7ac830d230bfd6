"""The cluster as a graph of links: what is wired to what, and how much each link carries.

A vertex is named by what and where it is, and has the attribute `role`:

    gpu/NODE/RAIL  nvswitch/NODE  pcie/NODE/SWITCH  nic/NODE/RAIL  leaf/POD  leaf/POD/RAIL
    socket/NODE/SOCKET  dram/NODE/SOCKET  spine/NUMBER

Edges are directed, one for each direction of a cable, with `capacity` (usable bytes per second),
`link` (its class) and `latency` (seconds beside bytes). The classes are those of
`twin.network.links`, and `slot`: a NIC's own PCIe slot, as wide as a GPU's. Half the latency of a
hop is at each of its ends. Memory reads and writes share one capacity, which a directed graph
cannot say: both edges of a memory carry all of it.

A spine has its part of each leaf's uplinks. Switches themselves do not block, and one is left out:
the link between sockets, which no transfer takes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
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


def socket(cluster: ClusterSpec, rail: int) -> int:
    """The socket that a GPU's PCIe switch hangs on: neighbours share one."""
    return rail * min(cluster.node.host.sockets, cluster.node.gpus) // cluster.node.gpus


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
