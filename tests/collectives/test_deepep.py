"""How far the experts of a token spread, against routers that are played, and what one copy per
node then costs."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twin.collectives.base import START_HOPS, Traffic
from twin.collectives.deepep import arriving, deepep, sm_lag
from twin.collectives.spread import Spread, spread
from twin.collectives.traffic import traffic
from twin.loading import load_part
from twin.network.placement import Placement
from twin.spec.cluster import ClusterSpec

TOKENS = 20_000


@cache
def routed(
    experts: int,
    top_k: int,
    limit: tuple[int, int] = (1, 1),
    shares: tuple[float, ...] | None = None,
    best: int = 1,
) -> np.ndarray:
    """The experts that played tokens choose: the highest of random scores, in the `limit[1]` of
    `limit[0]` groups whose `best` highest scores add up to most."""
    draws = np.random.default_rng(7)
    popular = np.log(shares) if shares is not None else 0.0
    scores = popular + draws.gumbel(size=(TOKENS, experts))
    groups, kept = limit
    if kept < groups:
        by_group = 1 / (1 + np.exp(-scores.reshape(TOKENS, groups, -1)))
        worth = np.sort(by_group, axis=-1)[..., -best:].sum(-1)
        out = np.argsort(worth, axis=1)[:, : groups - kept]
        closed = np.zeros((TOKENS, groups), bool)
        np.put_along_axis(closed, out, values=True, axis=1)
        scores = np.where(np.repeat(closed, experts // groups, axis=1), -np.inf, scores)
    return np.argpartition(-scores, top_k, axis=1)[:, :top_k]


def reached(chosen: np.ndarray, experts: int, places: int) -> tuple[float, float]:
    """Distinct places per token, and how many times the mean the fullest is reached."""
    hit = np.zeros((len(chosen), places), bool)
    np.put_along_axis(hit, chosen // (experts // places), values=True, axis=1)
    per_place = hit.mean(axis=0)
    return float(hit.sum(axis=1).mean()), float(per_place.max() / per_place.mean())


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize(("experts", "top_k"), [(4, 3), (16, 16), (64, 1), (256, 8), (1024, 512)])
def test_however_steep_popularity_is_places_are_reached_as_often_as_can_be(
    experts: int, top_k: int, exponent: float
) -> None:
    """Popular experts first: at exponent 1 the first of 256 has more than a token can give it."""
    weights = [(i + 1) ** -exponent for i in range(experts)]
    shares = tuple(one / sum(weights) for one in weights)
    found = spread(experts, top_k, Placement(4, 2), probabilities=shares)
    assert 1 - 1e-9 <= found.nodes <= 2 + 1e-9
    assert found.nodes - 1e-9 <= found.ranks <= min(4, top_k) + 1e-9
    assert 1 - 1e-9 <= found.fullest_node <= 2 / found.nodes + 1e-9
    assert 1 - 1e-9 <= found.fullest_rank <= 4 / found.ranks + 1e-9


@pytest.mark.parametrize(
    ("ranks", "remote"), [(8, 0.0), (16, 1.00), (32, 2.71), (64, 4.62), (128, 6.09)]
)
def test_kimi_k2_sends_so_many_copies_to_other_nodes(ranks: int, remote: float) -> None:
    placed = Placement(ranks, 8)
    nodes = spread(384, 8, placed).nodes
    assert nodes * (1 - 1 / placed.nodes) == pytest.approx(remote, abs=0.005)


@pytest.mark.parametrize("ranks", [8, 16, 64])
@pytest.mark.parametrize(
    ("experts", "limit"), [(384, (1, 1)), (256, (8, 4)), (256, (8, 2)), (64, (4, 3))]
)
def test_uniform_routing_spreads_as_when_played(
    ranks: int, experts: int, limit: tuple[int, int]
) -> None:
    placed = Placement(ranks, 8)
    chosen = routed(experts, 6, limit)
    found = spread(experts, 6, placed, *limit)
    assert found.ranks == pytest.approx(reached(chosen, experts, ranks)[0], rel=0.006)
    assert found.nodes == pytest.approx(reached(chosen, experts, placed.nodes)[0], rel=0.006)


@pytest.mark.parametrize("ranks", [16, 64, 128])
def test_ranking_groups_by_their_two_best_experts_differs_by_under_two_percent(ranks: int) -> None:
    placed = Placement(ranks, 8)
    chosen = routed(256, 8, (8, 4), best=2)
    found = spread(256, 8, placed, 8, 4)
    assert found.ranks == pytest.approx(reached(chosen, 256, ranks)[0], rel=0.02)
    assert found.nodes == pytest.approx(reached(chosen, 256, placed.nodes)[0], rel=0.02)


@pytest.mark.parametrize(
    ("exponent", "limit", "within"), [(0.5, (1, 1), 0.01), (1.0, (1, 1), 0.01), (0.7, (8, 4), 0.05)]
)
def test_unequal_experts_spread_as_when_played(
    exponent: float, limit: tuple[int, int], within: float
) -> None:
    experts, placed = 256, Placement(64, 8)
    popular = np.random.default_rng(3).permutation(np.arange(1, experts + 1) ** -exponent)
    chosen = routed(experts, 8, limit, tuple(popular / popular.sum()))
    shares = np.bincount(chosen.ravel(), minlength=experts) / chosen.size
    found = spread(experts, 8, placed, *limit, tuple(shares))
    ranks, fullest_rank = reached(chosen, experts, 64)
    nodes, fullest_node = reached(chosen, experts, 8)
    assert found.ranks == pytest.approx(ranks, rel=within)
    assert found.nodes == pytest.approx(nodes, rel=within)
    assert found.fullest_rank == pytest.approx(fullest_rank, rel=within)
    assert found.fullest_node == pytest.approx(fullest_node, rel=within)


def test_equal_shares_are_uniform_routing() -> None:
    placed = Placement(32, 8)
    equal, uniform = spread(64, 4, placed, probabilities=(1 / 64,) * 64), spread(64, 4, placed)
    assert equal.nodes == pytest.approx(uniform.nodes)
    assert equal.ranks == pytest.approx(uniform.ranks)
    assert (equal.fullest_node, equal.fullest_rank) == pytest.approx((1, 1))


@pytest.mark.parametrize("dead", [0, 1, 56])
def test_experts_that_nobody_chooses_are_no_trouble(dead: int) -> None:
    """Eight of 64 experts chosen, and as few as eight alive: then a token visits all of those."""
    shares = (0.0,) * dead + (1 / (64 - dead),) * (64 - dead)
    found = spread(64, 8, Placement(8, 8), probabilities=shares)
    assert 1 - 1e-2 <= found.ranks <= 8
    if dead == 56:
        assert found.ranks == pytest.approx(1, rel=0.02)
        assert found.fullest_rank == pytest.approx(8, rel=0.02)


@given(
    st.sampled_from([1, 2, 3, 4, 6, 8]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([(1, 1), (4, 2), (8, 4), (16, 8)]),
    st.integers(1, 8),
)
def test_a_token_reaches_no_more_places_than_it_has_experts(
    nodes: int, local: int, limit: tuple[int, int], top_k: int
) -> None:
    found = spread(384, top_k, Placement(nodes * local, local), *limit)
    assert 1 - 1e-9 <= found.nodes <= found.ranks + 1e-9
    assert found.nodes <= min(nodes, top_k) + 1e-9
    assert found.ranks <= min(nodes * local, top_k) + 1e-9


@given(st.sampled_from([(8, 1), (8, 2), (8, 4), (8, 7)]))
def test_fewer_groups_never_spread_a_token_wider(limit: tuple[int, int]) -> None:
    placed = Placement(64, 8)
    narrow, wide = spread(256, 8, placed, *limit), spread(256, 8, placed)
    assert narrow.nodes <= min(limit[1], wide.nodes) + 1e-9
    assert narrow.ranks <= wide.ranks + 1e-9


def test_groups_too_small_for_the_choice_are_refused() -> None:
    with pytest.raises(ValueError, match="1 groups of 4 experts have fewer than 8"):
        spread(64, 8, Placement(16, 8), 16, 1)


def test_one_copy_goes_to_each_other_node_and_one_to_each_rank_by_nvlink() -> None:
    """By hand: 8 copies of 1 byte, 2 nodes and 4 ranks reached, on 4 nodes of 8. A quarter of the
    nodes is one's own, and an eighth of the ranks is where the NIC's copy already is."""
    cost = deepep(8.0, Spread(8, nodes=2.0, ranks=4.0), Placement(32, 8, per_pod=32))
    assert cost == Traffic(4 * 7 / 8, 2 * 3 / 4, 1 + START_HOPS, 1, own_bytes=4 / 8)


def test_a_node_of_its_own_sends_nothing_over_the_nic() -> None:
    placed = Placement(8, 8)
    cost = deepep(1.0, spread(384, 8, placed), placed)
    assert (cost.nic_bytes, cost.nic_hops, cost.far_bytes) == (0, 0, 0)
    assert deepep(1.0, spread(384, 8, Placement(1, 1)), Placement(1, 1)) == Traffic()


@given(st.sampled_from([1, 2, 4, 8, 16]), st.sampled_from([2, 4, 8]), st.integers(1, 16))
def test_one_copy_per_node_never_sends_more_over_the_nic_than_one_per_expert(
    nodes: int, local: int, top_k: int
) -> None:
    placed = Placement(nodes * local, local)
    merged = deepep(1.0, spread(384, top_k, placed), placed)
    plain = traffic("all_to_all", 1.0, placed)
    assert merged.nic_bytes <= plain.nic_bytes + 1e-9
    assert merged.nvlink_bytes <= 1.0


def test_the_fullest_rank_and_node_set_the_bytes() -> None:
    placed = Placement(32, 8)
    even = Spread(8, 3.0, 6.0)
    skewed = Spread(8, 3.0, 6.0, fullest_node=1.5, fullest_rank=2.0)
    one, other = deepep(8.0, even, placed), deepep(8.0, skewed, placed)
    assert other.nic_bytes == pytest.approx(1.5 * one.nic_bytes)
    assert other.nvlink_bytes == pytest.approx(2.0 * one.nvlink_bytes)


def test_few_sms_make_an_exchange_longer_by_what_they_lack_to_the_links() -> None:
    """8 ranks of B200, 64 experts: 5.43 of 8 ranks reached, 319 MB arrive. NVLink carries 7/8 of
    it in 413 us; 16 SMs of 18 GB/s need 1,107 us, 694 us more, 48 of them nothing."""
    node, fabric = load_part("nodes", "b200-8gpu").spec, load_part("fabrics", "clos-400g").spec
    where, group = ClusterSpec(node=node, nodes=1, fabric=fabric), Placement(8, 8)
    reached = spread(64, 8, group)
    payload = 8.0 * 4096 * 7168 * 2
    flow, rows = deepep(payload, reached, group), arriving(payload, reached)
    assert rows == pytest.approx(319e6, rel=0.01)
    assert sm_lag(rows, 16 * 18e9, flow, where) == pytest.approx(694e-6, rel=0.01)
    assert sm_lag(rows, 48 * 18e9, flow, where) == 0.0
    assert sm_lag(rows, None, flow, where) == 0.0
    assert sm_lag(0.0, 1e9, Traffic(), where) == 0.0
