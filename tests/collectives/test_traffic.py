"""Collectives move the right data, and their closed forms equal what a step-by-step run counts."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.collectives import play
from twin.arch.ops import CollectiveKind
from twin.collectives.base import START_HOPS, Traffic
from twin.collectives.traffic import alone, serial, traffic, ways
from twin.loading import load_part
from twin.network.links import far_share
from twin.network.placement import Placement
from twin.spec.cluster import ClusterSpec

KINDS: tuple[CollectiveKind, ...] = get_args(CollectiveKind)
PLACEMENTS = [
    Placement(local * nodes, local)
    for local in (1, 2, 3, 4)
    for nodes in (1, 2, 3)
    if local * nodes > 1
]
SIZES = st.builds(
    lambda nodes, local: Placement(nodes * local, local), st.integers(1, 64), st.integers(1, 8)
)


def played(kind: CollectiveKind, placement: Placement) -> play.Meter:
    """The ports' meter after playing a collective, having checked that every rank ended with the
    right data."""
    size, local = placement.size, placement.per_node
    meter = play.Meter(local)
    if kind in ("reduce_scatter", "all_reduce"):
        sums = play.reduce_scatter(size, local, meter)
        assert len(sums) == size * local
        assert all(summed == set(range(size)) for summed in sums.values())
    if kind in ("all_gather", "all_reduce"):
        everything = {(channel, share) for channel in range(local) for share in range(size)}
        held = play.all_gather(size, local, meter)
        assert [held[rank] for rank in range(size)] == [everything] * size
    if kind == "broadcast":
        assert play.broadcast(size, local, meter) == [set(range(local))] * size
    if kind == "all_to_all":
        heard = play.all_to_all(size, meter)
        assert [heard[rank] for rank in range(size)] == [set(range(size))] * size
    return meter


@pytest.mark.parametrize("placement", PLACEMENTS, ids=str)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "broadcast"])
def test_the_closed_form_equals_the_bytes_of_a_step_by_step_run_on_every_rank(
    kind: CollectiveKind, placement: Placement
) -> None:
    meter = played(kind, placement)
    cost = traffic(kind, 1.0, placement)
    for rank in range(placement.size):
        for counted in (meter.sent, meter.received):
            assert cost.nvlink_bytes == pytest.approx(float(counted[rank, "nvlink"]))
            assert cost.nic_bytes == pytest.approx(float(counted[rank, "nic"]))


def busiest(meter: play.Meter, link: str) -> float:
    """Bytes through the fullest port of this kind."""
    ports = [meter.sent, meter.received]
    return max(float(amount) for port in ports for (_, of), amount in port.items() if of == link)


@pytest.mark.parametrize("placement", PLACEMENTS, ids=str)
def test_a_broadcast_costs_what_its_busiest_rank_sends(placement: Placement) -> None:
    meter = played("broadcast", placement)
    cost = traffic("broadcast", 1.0, placement)
    for link, ours in (("nvlink", cost.nvlink_bytes), ("nic", cost.nic_bytes)):
        meter.sent[0, link] += 0
        assert ours == pytest.approx(busiest(meter, link))


@pytest.mark.parametrize("placement", [Placement(n * k, n) for n in (1, 2, 3) for k in range(2, 9)])
def test_trees_cost_what_their_busiest_rank_sends(placement: Placement) -> None:
    size, local = placement.size, placement.per_node
    reduced, sent = play.Meter(local), play.Meter(local)
    everything = set(product(range(local), range(2), range(size)))
    assert play.tree_all_reduce(size, local, reduced) == [everything] * size
    assert play.tree_broadcast(size, local, sent) == [set(product(range(local), range(2)))] * size
    for kind, meter in (("all_reduce", reduced), ("broadcast", sent)):
        cost = traffic(kind, 1.0, placement, "tree")  # type: ignore[arg-type]
        meter.sent[0, "nvlink"] += 0
        assert cost.nic_bytes == pytest.approx(busiest(meter, "nic"))
        assert cost.nvlink_bytes == pytest.approx(busiest(meter, "nvlink"))


def test_a_tree_halves_what_a_ring_sends_between_two_nodes() -> None:
    pair = Placement(2, 1)
    assert traffic("all_reduce", 1.0, pair, "tree").nic_bytes == 1.0
    assert traffic("all_reduce", 1.0, pair, "ring").nic_bytes == 1.0
    two = Placement(16, 8)
    assert traffic("all_reduce", 1.0, two, "tree").nic_bytes == pytest.approx(1 / 8)
    assert traffic("all_reduce", 1.0, two, "ring").nic_bytes == pytest.approx(2 * 15 / 16 / 8)


@pytest.mark.parametrize("nodes", [2, 4, 64, 1024])
def test_hops_of_trees_grow_with_the_logarithm_of_the_nodes(nodes: int) -> None:
    cost = traffic("all_reduce", 1.0, Placement(8 * nodes, 8), "tree")
    assert cost.nic_hops == 2 * (nodes - 1).bit_length()
    assert cost.nvlink_hops == START_HOPS + 2 * 7


def test_a_hierarchical_all_reduce_is_a_ring_inside_and_one_of_its_shares_across() -> None:
    """Four nodes of 8: 2 x 7/8 inside, 2 x 3/4 of an eighth across."""
    cost = traffic("all_reduce", 1.0, Placement(32, 8), "hierarchical")
    assert cost.nvlink_bytes == pytest.approx(2 * 7 / 8)
    assert cost.nic_bytes == pytest.approx(2 * 3 / 4 / 8)
    assert (cost.nvlink_hops, cost.nic_hops) == (START_HOPS + 14, 6)


@pytest.mark.parametrize("ranks", [2, 4, 8, 72])
def test_switches_that_add_up_take_each_ranks_part_once(ranks: int) -> None:
    meter = play.Meter(ranks)
    play.switch_all_reduce(ranks, meter)
    placed = Placement(ranks, ranks)
    assert traffic("all_reduce", 1.0, placed, "nvls").nvlink_bytes == busiest(meter, "nvlink")
    for kind in ("all_gather", "reduce_scatter"):
        assert traffic(kind, 1.0, placed, "nvls").nvlink_bytes == 1.0  # type: ignore[arg-type]


def test_many_gpus_under_one_switch_send_half_of_what_a_ring_does() -> None:
    rack = Placement(72, 72)
    halved = traffic("all_reduce", 1.0, rack, "nvls").nvlink_bytes
    assert halved / traffic("all_reduce", 1.0, rack).nvlink_bytes == pytest.approx(0.5, abs=0.02)


@given(SIZES.filter(lambda p: p.size > 1), st.sampled_from(KINDS))
def test_no_algorithm_sends_less_than_the_lower_bounds(
    placement: Placement, kind: CollectiveKind
) -> None:
    """Across nodes each node must get and give what the others have: of an all-reduce at least
    (k - 1)/k payloads out of the node even where switches and trees add up on the way."""
    nodes = placement.nodes
    for algorithm in ways(kind, placement):
        cost = traffic(kind, 1.0, placement, algorithm)
        across = cost.nic_bytes * placement.per_node
        if kind in ("all_reduce", "broadcast", "all_gather"):
            assert across >= (nodes - 1) / nodes - 1e-12


def test_a_collective_that_an_algorithm_does_not_have_goes_by_rings() -> None:
    apart, split = Placement(16, 8), Placement(8, 1)
    for kind, placement, algorithm in (
        ("all_gather", apart, "tree"),
        ("all_gather", apart, "nvls"),
        ("all_to_all", apart, "nvls"),
        ("all_reduce", split, "nvls"),
    ):
        asked = traffic(kind, 1.0, placement, algorithm)  # type: ignore[arg-type]
        assert asked == traffic(kind, 1.0, placement)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_that_leave_the_leaf_are_the_crossing_share_of_the_nics(
    kind: CollectiveKind,
) -> None:
    placed = Placement(64, 8, per_pod=16)
    cost = traffic(kind, 1.0, placed)
    assert cost.far_bytes == pytest.approx(cost.nic_bytes * far_share(kind, placed))
    assert traffic(kind, 1.0, Placement(64, 8, per_pod=64)).far_bytes == 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_all_ranks_send_is_what_all_ranks_receive(kind: CollectiveKind) -> None:
    meter = played(kind, Placement(6, 3))
    for link in ("nvlink", "nic"):
        sent = sum(amount for (_, port), amount in meter.sent.items() if port == link)
        received = sum(amount for (_, port), amount in meter.received.items() if port == link)
        assert sent == received


@given(SIZES)
def test_rings_move_exactly_the_lower_bound(placement: Placement) -> None:
    """(N - 1)/N of the payload leaves every rank, and twice that for all-reduce (Patarasuk and Yuan
    2009)."""
    bound = (placement.size - 1) / placement.size
    passes: dict[CollectiveKind, int] = {"all_gather": 1, "reduce_scatter": 1, "all_reduce": 2}
    for kind, trips in passes.items():
        cost = traffic(kind, 1.0, placement)
        assert cost.nvlink_bytes + cost.nic_bytes == pytest.approx(trips * bound)


@given(SIZES)
def test_rings_put_on_the_nics_no_more_than_one_entry_per_node_needs(placement: Placement) -> None:
    """A node must send its share once around: (N - 1)/N x S per node, over all its n NICs."""
    cost = traffic("all_gather", 1.0, placement)
    expected = (placement.size - 1) / placement.size if placement.nodes > 1 else 0.0
    assert cost.nic_bytes * placement.per_node == pytest.approx(expected)


@given(SIZES)
def test_an_all_to_all_sends_to_each_peer_its_share_over_the_link_they_have(
    placement: Placement,
) -> None:
    cost = traffic("all_to_all", float(placement.size), placement)
    assert cost.nvlink_bytes == pytest.approx(placement.per_node - 1)
    assert cost.nic_bytes == pytest.approx(placement.size - placement.per_node)


@given(SIZES, st.floats(1.0, 1e12), st.sampled_from(KINDS))
def test_bytes_grow_in_proportion_and_hops_do_not(
    placement: Placement, payload: float, kind: CollectiveKind
) -> None:
    one, many = traffic(kind, 1.0, placement), traffic(kind, payload, placement)
    assert many.nvlink_bytes == pytest.approx(payload * one.nvlink_bytes)
    assert many.nic_bytes == pytest.approx(payload * one.nic_bytes)
    assert (many.nvlink_hops, many.nic_hops) == (one.nvlink_hops, one.nic_hops)


@given(SIZES.filter(lambda p: p.size > 1))
def test_a_share_crosses_every_rank_but_one_and_every_node(placement: Placement) -> None:
    cost = traffic("all_gather", 1.0, placement)
    assert cost.nvlink_hops - START_HOPS + cost.nic_hops == placement.size - 1
    crossings = placement.nodes if placement.nodes > 1 else 0
    assert cost.nic_hops == min(crossings, placement.size - 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_of_one_costs_nothing(kind: CollectiveKind) -> None:
    assert traffic(kind, 1e9, Placement(1, 1)) == Traffic()


def test_kimi_k2s_dispatch_keeps_a_sixteenth_and_sends_half_over_the_nic() -> None:
    """4,096 tokens x 8 copies x 7,168 x 2 bytes over 16 ranks on two nodes: 29.4 MB per rank."""
    share = 4096 * 8 * 7168 * 2 / 16
    cost = traffic("all_to_all", 16 * share, Placement(16, 8, per_pod=16))
    assert share == pytest.approx(29.36e6, rel=1e-3)
    assert cost == Traffic(7 * share, 8 * share, 1 + START_HOPS, 1, own_bytes=share, peers=8)


def test_an_all_to_all_over_efa_takes_a_start_and_a_time_per_peer() -> None:
    """32 B300 on 4 nodes, 64 MiB: 24 peers of 1.1 us behind 125 us, beside 0.66 ms of bytes."""
    node, fabric = (
        load_part("nodes", "aws-p6-b300").spec,
        load_part("fabrics", "efa").spec,
    )
    where, group = ClusterSpec(node=node, nodes=4, fabric=fabric), Placement(32, 8)
    flow = traffic("all_to_all", 2.0**26, group)
    beside = serial(flow, where, group) - serial(replace(flow, peers=0), where, group)
    assert beside == pytest.approx(125e-6 + 24 * 1.1e-6)
    assert alone(flow, where, group) == pytest.approx(0.69e-3, rel=0.1)  # measured


def test_only_what_goes_to_each_peer_by_itself_counts_peers() -> None:
    for kind in KINDS:
        inside, over = traffic(kind, 1e9, Placement(8, 8)), traffic(kind, 1e9, Placement(64, 8))
        assert inside.peers == 0
        assert over.peers == (56 if kind == "all_to_all" else 0)
