"""Speed of the links of each class and who shares them, and what oversubscribed spines do to groups
in and across pods."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.network.clusters import cluster
from twin.network import topology
from twin.network.links import LinkClass, capacity, crossing, far_share, latency, sharers
from twin.network.placement import Placement
from twin.spec.cluster import ClusterSpec


def test_an_nvlink_port_carries_its_line_rate_times_its_efficiency() -> None:
    assert capacity(cluster(2), "nvlink") == pytest.approx(50e9)


def test_a_nic_carries_line_rate_times_its_own_and_the_fabrics_efficiency() -> None:
    assert capacity(cluster(2), "nic") == pytest.approx(10e9 * 0.8 * 0.5)


def test_a_gpus_pcie_link_and_a_sockets_memory_carry_their_line_rate_times_efficiency() -> None:
    assert capacity(cluster(1), "pcie") == pytest.approx(50e9 * 0.5)
    assert capacity(cluster(1), "dram") == pytest.approx(200e9)
    assert sharers(cluster(1), "dram") == 2


@pytest.mark.parametrize(
    ("host", "link", "gpus"),
    [
        ({"sockets": 3}, "dram", 2),
        ({"sockets": 9}, "dram", 1),
        ({"gpus_per_pcie_switch": 3}, "pcie_uplink", 3),
        ({"gpus_per_pcie_switch": 9}, "pcie_uplink", 4),
    ],
)
def test_gpus_that_do_not_share_evenly_are_priced_on_the_fullest_link(
    host: dict[str, int], link: LinkClass, gpus: int
) -> None:
    plain = cluster(1)
    node = plain.node.model_copy(update={"host": plain.node.host.model_copy(update=host)})
    assert sharers(plain.model_copy(update={"node": node}), link) == gpus


@pytest.mark.parametrize(("kind", "nics"), [("rail_fat_tree", 2), ("clos", 8)])
def test_a_leafs_uplinks_carry_what_its_nics_send_over_the_oversubscription(
    kind: str, nics: int
) -> None:
    """Two nodes of four GPUs per leaf: one NIC of each in a rail's leaf, all eight in a rack's."""
    spec = cluster(4, kind=kind, oversubscription=4.0)
    assert sharers(spec, "leaf") == nics
    assert capacity(spec, "leaf") == pytest.approx(nics * 4e9 / 4)


def crowding(spec: ClusterSpec, kind, placed: Placement) -> float:
    """How many times longer the NICs' bytes of a group take when all groups of its kind exchange
    at once: a leaf's uplinks carry 1 / oversubscription of what its NICs send."""
    return max(1.0, spec.fabric.oversubscription * crossing(spec, kind, placed))


def test_a_leaf_that_holds_nothing_up_is_no_link() -> None:
    assert capacity(cluster(4), "leaf") is None
    assert capacity(cluster(2, oversubscription=4.0), "leaf") is None
    assert capacity(cluster(4), "pcie_uplink") is None


@pytest.mark.parametrize("kind", ["all_reduce", "all_to_all", "message"])
def test_sharing_the_uplinks_evenly_costs_what_crowding_says(kind: str) -> None:
    spec = cluster(4, oversubscription=4.0)
    placed = Placement(16, 4, per_pod=8)
    far = far_share(kind, placed)  # type: ignore[arg-type]
    shared = far * sharers(spec, "leaf") / (capacity(spec, "leaf") or 0.0)
    slower = max(1.0, shared * capacity(spec, "nic"))
    assert slower == pytest.approx(crowding(spec, kind, placed))  # type: ignore[arg-type]


def test_oversubscription_leaves_a_nic_its_rate_and_crowds_what_crosses() -> None:
    spec = cluster(4, oversubscription=4.0)
    assert capacity(spec, "nic") == pytest.approx(4e9)
    assert crowding(spec, "message", Placement(2, 1, per_pod=2)) == 1
    assert crowding(spec, "message", Placement(2, 1, per_pod=1)) == 4


@pytest.mark.parametrize(
    ("kind", "per_pod", "times"),
    [
        # 16 ranks on 4 nodes of 4. A ring leaves each pod once: with both pods' two nodes in one
        # ring, one of two nodes sends up, so 1/2 of 4.
        ("all_reduce", 16, 1.0),
        ("all_reduce", 8, 2.0),
        ("all_gather", 4, 4.0),
        # Of 12 peers on other nodes, 8 are in the other pod: 2/3 of 4.
        ("all_to_all", 16, 1.0),
        ("all_to_all", 8, 4.0 * 8 / 12),
        ("all_to_all", 4, 4.0),
    ],
)
def test_a_group_is_crowded_by_the_share_of_its_bytes_that_crosses(
    kind: str, per_pod: int, times: float
) -> None:
    spec = cluster(4, oversubscription=4.0)
    placed = Placement(16, 4, per_pod=per_pod)
    assert crowding(spec, kind, placed) == pytest.approx(times)  # type: ignore[arg-type]


@given(
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "message"]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 4, 8]),
    st.floats(1, 16),
)
def test_crowding_lies_between_one_and_the_oversubscription(
    kind: str, local: int, nodes: int, oversubscription: float
) -> None:
    spec = cluster(16, oversubscription=oversubscription)
    for near in range(1, nodes + 1):
        placed = Placement(2 * nodes * local, local, per_pod=near * local)
        assert 1 <= crowding(spec, kind, placed) <= oversubscription  # type: ignore[arg-type]


def test_at_full_bisection_nothing_crowds() -> None:
    assert crowding(cluster(4), "all_to_all", Placement(16, 4, per_pod=4)) == 1


def test_a_placement_that_nobody_looked_at_counts_as_spread() -> None:
    assert not Placement(8, 4).in_one_pod
    assert Placement(4, 4).in_one_pod
    assert crowding(cluster(4, oversubscription=3.0), "all_gather", Placement(8, 4)) == 3


FLAT = (("rail_fat_tree", 1, 3.0), ("rail_fat_tree", 2, 4.0), ("rail_fat_tree", 3, 6.0))
SITES = (("sites", 1, 3.0), ("sites", 2, 6.0), ("sites", 3, 8.0))  # three switches in a site


@pytest.mark.parametrize(
    ("kind", "nodes", "microseconds"), [*FLAT, *(("clos", *case[1:]) for case in FLAT), *SITES]
)
def test_a_nic_hop_costs_the_nic_and_every_switch_on_the_way(
    kind: str, nodes: int, microseconds: float
) -> None:
    assert latency(cluster(nodes, kind=kind), "nic") == pytest.approx(microseconds * 1e-6)


def test_a_group_inside_one_pod_crosses_its_leaf_only() -> None:
    spec = cluster(8)
    assert latency(spec, "nic", Placement(8, 4, per_pod=8)) == pytest.approx(4e-6)
    assert latency(spec, "nic", Placement(8, 4, per_pod=4)) == pytest.approx(6e-6)


def test_an_nvlink_hop_costs_what_the_node_says() -> None:
    assert latency(cluster(3), "nvlink") == pytest.approx(2e-6)


def test_an_unknown_topology_is_refused_by_name() -> None:
    with pytest.raises(KeyError, match="torus"):
        topology.member("torus")
    assert set(topology.kinds()) >= {"clos", "rail_fat_tree"}
