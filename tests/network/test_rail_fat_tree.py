"""The graph of a rail-optimised fat tree: degrees, hops and bisection follow their formulas."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.network.clusters import cluster
from twin.network.topology import member

TREE = member("rail_fat_tree")


def with_role(graph: nx.Graph[str], role: str) -> list[str]:
    return [vertex for vertex, found in graph.nodes(data="role") if found == role]


def switches_between(graph: nx.Graph[str], source: str, target: str) -> int:
    path = nx.shortest_path(graph, source, target)
    return sum(graph.nodes[vertex]["role"] in ("leaf", "spine") for vertex in path)


@given(nodes=st.integers(1, 9), nodes_per_leaf=st.integers(1, 4), spines=st.integers(1, 4))
def test_degrees_follow_the_wiring_rules(nodes: int, nodes_per_leaf: int, spines: int) -> None:
    graph = TREE.graph(cluster(nodes, nodes_per_leaf=nodes_per_leaf, spines=spines))
    pods = -(-nodes // nodes_per_leaf)
    assert nx.is_connected(graph)
    assert len(with_role(graph, "leaf")) == 4 * pods
    assert {graph.degree[spine] for spine in with_role(graph, "spine")} == {4 * pods}
    for leaf in with_role(graph, "leaf"):
        pod = int(leaf.split("/")[1])
        below = min(nodes_per_leaf, nodes - pod * nodes_per_leaf)
        assert graph.degree[leaf] == below + spines


@given(nodes=st.integers(2, 9), nodes_per_leaf=st.integers(1, 4))
def test_the_rule_for_switches_equals_the_longest_shortest_path_on_a_rail(
    nodes: int, nodes_per_leaf: int
) -> None:
    spec = cluster(nodes, nodes_per_leaf=nodes_per_leaf)
    graph = TREE.graph(spec)
    farthest = max(switches_between(graph, "nic/0/1", f"nic/{n}/1") for n in range(1, nodes))
    assert TREE.switches(spec.fabric, nodes) == farthest


def test_one_node_crosses_no_switch_of_the_fabric() -> None:
    assert TREE.switches(cluster(1).fabric, 1) == 0


def test_other_rails_are_reached_through_nvlink_or_a_spine() -> None:
    graph = TREE.graph(cluster(4))
    assert nx.shortest_path_length(graph, "gpu/0/0", "gpu/0/3") == 2
    assert switches_between(graph, "nic/0/0", "nic/1/1") == 3


@pytest.mark.parametrize("oversubscription", [1.0, 2.0, 4.0])
def test_the_bisection_is_half_the_nics_over_the_oversubscription(oversubscription: float) -> None:
    """Four nodes of four 10 GB/s NICs in two pods: between the pods flows at most what one pod's 8
    NICs send."""
    graph = TREE.graph(cluster(4, oversubscription=oversubscription))
    for source, pod in (("left", 0), ("right", 1)):
        for node in (2 * pod, 2 * pod + 1):
            for rail in range(4):
                graph.add_edge(source, f"nic/{node}/{rail}", capacity=float("inf"))
    graph.remove_nodes_from([v for v in graph if v.startswith(("gpu/", "nvswitch/"))])
    flow, _ = nx.maximum_flow(graph, "left", "right")
    assert flow == pytest.approx(80e9 / oversubscription)
