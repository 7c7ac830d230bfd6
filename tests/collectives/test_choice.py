"""A run's choice of algorithm, and seconds on idle links."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import twin
from tests.network.clusters import cluster
from twin.collectives.base import Traffic
from twin.collectives.traffic import alone, chosen, traffic, ways
from twin.errors import TwinError
from twin.network.placement import Placement
from twin.spec.cluster import ClusterSpec

SCENARIOS = "scenarios/kimi-k2-256xh800.yaml", "scenarios/gpt-175b-64xa100-full.yaml"


def switched(nodes: int) -> ClusterSpec:
    """The small cluster with switches that add up, inside nodes and between them."""
    spec = cluster(nodes, reduces=True)
    return spec.model_copy(update={"node": spec.node.model_copy(update={"nvlink_sharp": True})})


@pytest.mark.parametrize(
    ("flow", "seconds"),
    [
        (Traffic(nvlink_bytes=50e9, nic_bytes=2e9), 1.0),
        (Traffic(nvlink_bytes=5e9, nic_bytes=4e9), 1.0),
        (Traffic(nvlink_bytes=5e9, nic_bytes=4e9, nvlink_hops=50_000), 1.1),
        (Traffic(nic_bytes=4e9, nic_hops=100_000), 1.6),
        # Uplinks of 2 x 4 / 4 GB/s for two NICs.
        (Traffic(nic_bytes=4e9, far_bytes=2e9), 2.0),
    ],
)
def test_alone_takes_the_fullest_link_and_the_hops(flow: Traffic, seconds: float) -> None:
    spec = cluster(4, oversubscription=4.0)
    assert alone(flow, spec, Placement(16, 4)) == pytest.approx(seconds)


@given(
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"]),
    st.sampled_from([(2, 2), (4, 4), (8, 4), (16, 4), (4, 1)]),
    st.floats(1e3, 1e11),
)
def test_auto_is_as_fast_as_the_fastest(kind: str, placed: tuple[int, int], payload: float) -> None:
    spec, placement = switched(4), Placement(*placed)
    best = alone(chosen(spec, "auto", kind, payload, placement), spec, placement)  # type: ignore[arg-type]
    times = [
        alone(traffic(kind, payload, placement, way), spec, placement)  # type: ignore[arg-type]
        for way in ways(kind, placement)  # type: ignore[arg-type]
    ]
    assert best <= min(times)
    if placement.nodes > 1 or payload > 2**28:
        # Smaller ones go with flags inside a node.
        assert best == min(times)


def test_auto_uses_switches_only_where_they_add_up() -> None:
    eight = Placement(4, 4)
    helped = chosen(switched(1), "auto", "all_reduce", 1e9, eight)
    assert helped == traffic("all_reduce", 1e9, eight, "nvls")
    assert chosen(cluster(1), "auto", "all_reduce", 1e9, eight) == traffic("all_reduce", 1e9, eight)


def test_auto_takes_trees_for_small_payloads_over_many_nodes_and_rings_for_large() -> None:
    spec, across = cluster(64), Placement(64, 1)
    small, large = (chosen(spec, "auto", "all_reduce", size, across) for size in (1e4, 1e10))
    assert small == traffic("all_reduce", 1e4, across, "tree")
    assert large == traffic("all_reduce", 1e10, across, "ring")


def test_a_written_choice_is_taken() -> None:
    four = Placement(16, 4)
    for way in ("ring", "tree", "hierarchical"):
        asked = chosen(cluster(4), way, "all_reduce", 1e6, four)  # type: ignore[arg-type]
        assert asked == traffic("all_reduce", 1e6, four, way)  # type: ignore[arg-type]


def test_switches_that_do_not_add_up_are_told() -> None:
    scenario = twin.load(SCENARIOS[1], ["parallel.collectives=nvls"])
    with pytest.raises(TwinError, match="TW130 nvls on a100-80gb-8gpu-8x200g"):
        twin.plan(scenario)
    assert twin.plan(twin.load(SCENARIOS[0], ["parallel.collectives=nvls"]))


def test_rings_are_what_a_scenario_has_unless_it_says_otherwise() -> None:
    assert twin.load(SCENARIOS[0]).parallel.collectives == "ring"
