"""Speed and latency of a GPU's two links."""

from __future__ import annotations

import pytest

from tests.network.clusters import cluster
from twin.network import topology
from twin.network.links import capacity, latency


def test_an_nvlink_port_carries_its_line_rate_times_its_efficiency() -> None:
    assert capacity(cluster(2), "nvlink") == pytest.approx(50e9)


def test_a_nic_carries_line_rate_times_its_own_and_the_fabrics_efficiency() -> None:
    assert capacity(cluster(2), "nic") == pytest.approx(10e9 * 0.8 * 0.5)


def test_oversubscription_slows_nics_once_the_cluster_needs_spines() -> None:
    assert capacity(cluster(2, oversubscription=2.0), "nic") == pytest.approx(4e9)
    assert capacity(cluster(3, oversubscription=2.0), "nic") == pytest.approx(2e9)


@pytest.mark.parametrize(("nodes", "microseconds"), [(1, 3.0), (2, 4.0), (3, 6.0)])
def test_a_nic_hop_costs_the_nic_and_every_switch_on_the_way(
    nodes: int, microseconds: float
) -> None:
    assert latency(cluster(nodes), "nic") == pytest.approx(microseconds * 1e-6)


def test_an_nvlink_hop_costs_what_the_node_says() -> None:
    assert latency(cluster(3), "nvlink") == pytest.approx(2e-6)


def test_an_unknown_topology_is_refused_by_name() -> None:
    with pytest.raises(KeyError, match="torus"):
        topology.member("torus")
    assert topology.kinds() == ("rail_fat_tree",)
