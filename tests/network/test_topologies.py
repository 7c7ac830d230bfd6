"""The graph of every kind of network: degrees, hops and bisection follow their formulas."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.network.clusters import cluster
from twin.network.topology import kinds, member

KINDS = pytest.mark.parametrize("kind", kinds())
LEAVES_PER_POD = {"rail_fat_tree": 4, "clos": 1}
"""With four GPUs per node."""


def with_role(graph: nx.Graph[str], role: str) -> list[str]:
    return [vertex for vertex, found in graph.nodes(data="role") if found == role]


def switches_between(graph: nx.Graph[str], source: str, target: str) -> int:
    path = nx.shortest_path(graph, source, target)
    return sum(graph.nodes[vertex]["role"] in ("leaf", "spine") for vertex in path)


@KINDS
@given(nodes=st.integers(1, 9), nodes_per_leaf=st.integers(1, 4), spines=st.integers(1, 4))
def test_degrees_follow_the_wiring_rules(
    kind: str, nodes: int, nodes_per_leaf: int, spines: int
) -> None:
    spec = cluster(nodes, kind=kind, nodes_per_leaf=nodes_per_leaf, spines=spines)
    graph = member(kind).graph(spec)
    pods, per_pod = -(-nodes // nodes_per_leaf), LEAVES_PER_POD[kind]
    assert nx.is_connected(graph)
    assert len(with_role(graph, "leaf")) == per_pod * pods
    assert {graph.degree[spine] for spine in with_role(graph, "spine")} == {per_pod * pods}
    for leaf in with_role(graph, "leaf"):
        pod = int(leaf.split("/")[1])
        below = min(nodes_per_leaf, nodes - pod * nodes_per_leaf)
        assert graph.degree[leaf] == below * 4 // per_pod + spines


@KINDS
@given(nodes=st.integers(2, 9), nodes_per_leaf=st.integers(1, 4))
def test_the_rule_for_switches_equals_the_longest_shortest_path_on_a_rail(
    kind: str, nodes: int, nodes_per_leaf: int
) -> None:
    spec = cluster(nodes, kind=kind, nodes_per_leaf=nodes_per_leaf)
    graph = member(kind).graph(spec)
    farthest = max(switches_between(graph, "nic/0/1", f"nic/{n}/1") for n in range(1, nodes))
    assert member(kind).switches(spec.fabric, nodes) == farthest


@KINDS
def test_one_node_crosses_no_switch_of_the_fabric(kind: str) -> None:
    assert member(kind).switches(cluster(1).fabric, 1) == 0


def test_other_rails_are_reached_through_nvlink_or_a_spine_where_there_are_rails() -> None:
    rails = member("rail_fat_tree").graph(cluster(4))
    assert nx.shortest_path_length(rails, "gpu/0/0", "gpu/0/3") == 2
    assert switches_between(rails, "nic/0/0", "nic/1/1") == 3
    racks = member("clos").graph(cluster(4, kind="clos"))
    assert switches_between(racks, "nic/0/0", "nic/1/1") == 1


@KINDS
@pytest.mark.parametrize("oversubscription", [1.0, 2.0, 4.0])
def test_the_bisection_is_half_the_nics_over_the_oversubscription(
    kind: str, oversubscription: float
) -> None:
    """Four nodes of four 10 GB/s NICs in two pods: between the pods flows at most what one pod's 8
    NICs send."""
    graph = member(kind).graph(cluster(4, kind=kind, oversubscription=oversubscription))
    for source, pod in (("left", 0), ("right", 1)):
        for node in (2 * pod, 2 * pod + 1):
            for rail in range(4):
                graph.add_edge(source, f"nic/{node}/{rail}", capacity=float("inf"))
    graph.remove_nodes_from([v for v in graph if v.startswith(("gpu/", "nvswitch/"))])
    flow, _ = nx.maximum_flow(graph, "left", "right")
    assert flow == pytest.approx(80e9 / oversubscription)
