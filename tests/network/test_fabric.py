"""The graph of every kind of network: degrees, hops, latencies and bisection follow their
formulas."""

from __future__ import annotations

from itertools import pairwise, product

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.network.clusters import cluster
from twin.network.fabric import fabric
from twin.network.links import capacity, latency, sharers
from twin.network.topology import kinds, member

KINDS = pytest.mark.parametrize("kind", kinds())
LEAVES_PER_POD = {"rail_fat_tree": 4, "clos": 1}
"""With four GPUs per node."""
DRAWN = pytest.mark.parametrize("kind", LEAVES_PER_POD)
"""Every switch is in their graph; of a site one gateway stands for its whole network."""


def with_role(graph: nx.DiGraph[str], role: str) -> list[str]:
    return [vertex for vertex, found in graph.nodes(data="role") if found == role]


def switches_between(graph: nx.DiGraph[str], source: str, target: str) -> int:
    path = nx.shortest_path(graph, source, target)
    return sum(graph.nodes[vertex]["role"] in ("leaf", "spine") for vertex in path)


@DRAWN
@settings(max_examples=20)
@given(nodes=st.integers(1, 9), nodes_per_leaf=st.integers(1, 4), spines=st.integers(1, 4))
def test_degrees_follow_the_wiring_rules(
    kind: str, nodes: int, nodes_per_leaf: int, spines: int
) -> None:
    spec = cluster(nodes, kind=kind, nodes_per_leaf=nodes_per_leaf, spines=spines)
    graph = fabric(spec)
    pods, per_pod = -(-nodes // nodes_per_leaf), LEAVES_PER_POD[kind]
    assert nx.is_strongly_connected(graph)
    assert len(with_role(graph, "leaf")) == per_pod * pods
    assert {graph.out_degree[spine] for spine in with_role(graph, "spine")} == {per_pod * pods}
    for leaf in with_role(graph, "leaf"):
        pod = int(leaf.split("/")[1])
        below = min(nodes_per_leaf, nodes - pod * nodes_per_leaf)
        assert graph.out_degree[leaf] == below * 4 // per_pod + spines


@KINDS
def test_every_cable_carries_the_same_in_both_directions(kind: str) -> None:
    graph = fabric(cluster(4, kind=kind))
    assert all(graph.edges[a, b] == graph.edges[b, a] for a, b in graph.edges)


@KINDS
def test_edges_carry_what_the_flat_view_says(kind: str) -> None:
    spec = cluster(4, kind=kind, oversubscription=2.0)
    graph = fabric(spec)
    found: dict[str, set[float]] = {}
    for _, _, edge in graph.edges(data=True):
        found.setdefault(edge["link"], set()).add(edge["capacity"])
    for link in ("nvlink", "pcie", "nic", "dram"):
        assert found[link] == {capacity(spec, link)}
    assert found["slot"] == found["pcie"]
    uplinks = [e["capacity"] for _, _, e in graph.out_edges("leaf/0/0", data=True)]
    if kind == "rail_fat_tree":
        nics = 2 * capacity(spec, "nic")
        assert sum(uplinks) - nics == pytest.approx(capacity(spec, "leaf"))


@DRAWN
@settings(max_examples=20)
@given(nodes=st.integers(2, 9), nodes_per_leaf=st.integers(1, 4))
def test_the_rule_for_switches_equals_the_longest_shortest_path_on_a_rail(
    kind: str, nodes: int, nodes_per_leaf: int
) -> None:
    spec = cluster(nodes, kind=kind, nodes_per_leaf=nodes_per_leaf)
    graph = fabric(spec)
    farthest = max(switches_between(graph, "nic/0/1", f"nic/{n}/1") for n in range(1, nodes))
    assert member(kind).switches(spec.fabric, nodes) == farthest


@KINDS
def test_one_node_crosses_no_switch_of_the_fabric(kind: str) -> None:
    assert member(kind).switches(cluster(1).fabric, 1) == 0


@DRAWN
def test_a_route_costs_the_latency_of_a_hop(kind: str) -> None:
    spec = cluster(4, kind=kind)
    graph = fabric(spec)

    def seconds(source: str, target: str) -> float:
        path = nx.shortest_path(graph, source, target)
        return sum(graph.edges[wire]["latency"] for wire in pairwise(path))

    assert seconds("gpu/0/1", "gpu/0/3") == pytest.approx(latency(spec, "nvlink"))
    assert seconds("gpu/0/1", "gpu/3/1") == pytest.approx(latency(spec, "nic"))
    assert seconds("gpu/0/1", "gpu/1/1") == pytest.approx(latency(spec, "nic") - 2e-6)
    assert seconds("gpu/0/1", "dram/0/0") == pytest.approx(latency(spec, "pcie"))


def test_gpus_behind_one_pcie_switch_share_its_way_up() -> None:
    """Two GPUs of 25 GB/s each behind an uplink of 50 GB/s x 0.5 get 25 GB/s together."""
    plain = cluster(1)
    host = plain.node.host.model_copy(update={"gpus_per_pcie_switch": 2, "pcie_uplink": 50e9})
    spec = plain.model_copy(update={"node": plain.node.model_copy(update={"host": host})})
    graph = fabric(spec)
    graph.add_edges_from((f"gpu/0/{rail}", "all") for rail in (0, 1))
    for edge in graph.in_edges("all"):
        graph.edges[edge]["capacity"] = float("inf")
    assert nx.maximum_flow_value(graph, "dram/0/0", "all") == pytest.approx(25e9)
    assert capacity(spec, "pcie_uplink") == pytest.approx(25e9)
    assert sharers(spec, "pcie_uplink") == 2


@DRAWN
@pytest.mark.parametrize("oversubscription", [1.0, 2.0, 4.0])
def test_the_bisection_is_half_the_nics_over_the_oversubscription(
    kind: str, oversubscription: float
) -> None:
    """Four nodes of four NICs of 4 GB/s in two pods: between the pods flows at most what one pod's
    8 NICs send."""
    spec = cluster(4, kind=kind, oversubscription=oversubscription)
    graph = fabric(spec)
    for node, rail in product(range(4), range(4)):
        ends = ("left", f"nic/{node}/{rail}") if node < 2 else (f"nic/{node}/{rail}", "right")
        graph.add_edge(*ends, capacity=float("inf"))
    graph.remove_nodes_from([v for v in graph if v.startswith(("gpu/", "pcie/"))])
    flow = nx.maximum_flow_value(graph, "left", "right")
    assert flow == pytest.approx(8 * capacity(spec, "nic") / oversubscription)
    leaf = capacity(spec, "leaf")
    if leaf is None:
        assert oversubscription == 1
    else:
        assert flow == pytest.approx(LEAVES_PER_POD[kind] * leaf)


def test_some_nodes_come_with_the_switches_that_they_reach() -> None:
    part = fabric(cluster(64), nodes=[0, 7])
    assert {v.split("/")[1] for v in with_role(part, "gpu")} == {"0", "7"}
    assert {v.split("/")[1] for v in with_role(part, "leaf")} == {"0", "3"}
    assert nx.is_strongly_connected(part)
