"""Ranks, groups and nodes: small grids drawn by hand, and laws over all grids."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twin.network.placement import Placement
from twin.plan.mesh import (
    GROUP_AXES,
    _essential,
    divisors,
    members_per_node,
    nearest_even,
    neighbours_share,
    placements,
)
from twin.plan.mesh import degrees as axis_degrees
from twin.plan.types import Mesh

AXES = ("tensor", "context", "expert", "data", "pipeline")


def mesh(
    tensor: int = 1,
    expert: int = 1,
    data: int = 1,
    pipeline: int = 1,
    order: tuple[str, ...] = AXES,
    gpus_per_node: int = 8,
) -> Mesh:
    return Mesh(tensor, expert, data, pipeline, gpus_per_node, order)


def test_two_nodes_share_one_set_of_experts_in_kimi_k2_on_256_gpus() -> None:
    """16 stages of 16 ranks: each stage fills two nodes, its experts are spread over both, and
    nothing replicates them."""
    assert placements(mesh(expert=16, data=16, pipeline=16)) == {
        "tensor": Placement(1, 1),
        "expert": Placement(16, 8),
        "data": Placement(16, 8),
        "expert_data": Placement(1, 1),
        "pipeline": Placement(2, 1),
    }


def test_replicas_of_an_expert_lie_on_different_nodes_in_kimi_k2_on_2048_gpus() -> None:
    """128 data ranks per stage are 8 sets of experts, each on two nodes, so an expert's replicas
    share no node."""
    found = placements(mesh(expert=16, data=128, pipeline=16))
    assert found["data"] == Placement(128, 8)
    assert found["expert_data"] == Placement(8, 1)


def test_tensor_ranks_of_gpt_175b_fill_a_node() -> None:
    assert placements(mesh(tensor=8, pipeline=8))["tensor"] == Placement(8, 8)


def test_the_order_of_axes_decides_which_groups_stay_inside_a_node() -> None:
    """Two nodes, tensor 2, data 8. Tensor first puts 4 data ranks on a node, data first all 8 of
    them."""
    fast_tensor = placements(mesh(tensor=2, data=8))
    fast_data = placements(
        mesh(tensor=2, data=8, order=("expert", "data", "tensor", "context", "pipeline"))
    )
    assert (fast_tensor["tensor"], fast_tensor["data"]) == (Placement(2, 2), Placement(8, 4))
    assert (fast_data["tensor"], fast_data["data"]) == (Placement(2, 1), Placement(8, 8))


def test_replicas_come_before_experts_when_the_order_says_so() -> None:
    """Two nodes, 4 expert ranks, 4 replicas: with data faster than expert, a node holds 2 experts'
    4 replicas each."""
    swapped = placements(
        mesh(expert=4, data=16, order=("tensor", "context", "data", "expert", "pipeline"))
    )
    assert (swapped["expert"], swapped["expert_data"]) == (Placement(4, 2), Placement(4, 4))


def test_groups_that_straddle_nodes_are_seen() -> None:
    """48 ranks, 12 per stage: the first stage has 4 data ranks on one node and 2 on the next."""
    assert members_per_node(mesh(tensor=2, data=6, pipeline=4), "data") == (2, 4)


def test_the_nearest_even_degrees_do_place_groups_evenly() -> None:
    """48 ranks at tensor 2: 24 data ranks in one stage, 12 in two, 8 in three, 4 in six stages sit
    evenly; 6 in four do not."""
    straddling = mesh(tensor=2, data=6, pipeline=4)
    assert nearest_even(straddling, "pipeline", "data") == (3, 6)


def test_neighbouring_stages_share_a_node_only_where_they_do() -> None:
    """16 stages of one rank on two nodes: the boundaries after stages 7 and 15 (back to 0)
    cross."""
    shared = neighbours_share(mesh(pipeline=16))
    assert [stage for stage, same in enumerate(shared) if not same] == [7, 15]
    assert placements(mesh(pipeline=16))["pipeline"] == Placement(2, 1)
    assert placements(mesh(pipeline=8))["pipeline"] == Placement(2, 2)


def test_one_stage_has_no_neighbour() -> None:
    assert placements(mesh(data=8))["pipeline"] == Placement(1, 1)


def test_the_nearest_even_degree_of_a_large_cluster_is_found() -> None:
    """A million ranks: 5 do not fill nodes of 8; the next divisors of 500,000 that do are 4 and
    8."""
    straddling = mesh(tensor=5, data=100_000, pipeline=2)
    assert members_per_node(straddling, "tensor") == (1, 2, 3, 4, 5)
    assert nearest_even(straddling, "tensor", "tensor") == (4, 8)


def test_divisors_are_all_there_in_order() -> None:
    assert divisors(1) == [1]
    assert divisors(36) == [1, 2, 3, 4, 6, 9, 12, 18, 36]
    assert divisors(999_999_937) == [1, 999_999_937]


degrees = st.sampled_from([1, 2, 3, 4])
orders = st.sampled_from(sorted(permutations(AXES)))


def brute_force(grid: Mesh, group: str) -> set[int]:
    """Members per node, counted rank by rank from coordinates."""
    sizes = axis_degrees(grid)
    counts: Counter[tuple[object, int]] = Counter()
    for rank in range(grid.ranks):
        rest, place = rank, {}
        for axis in grid.order:
            rest, place[axis] = divmod(rest, sizes[axis])
        fixed = tuple(place[axis] for axis in AXES if axis not in GROUP_AXES[group])
        counts[fixed, rank // grid.gpus_per_node] += 1
    return set(counts.values())


@given(degrees, degrees, degrees, degrees, orders, st.sampled_from(sorted(GROUP_AXES)))
def test_members_per_node_equal_a_count_rank_by_rank(
    tensor: int, expert: int, replicas: int, pipeline: int, order: tuple[str, ...], group: str
) -> None:
    grid = mesh(tensor, expert, expert * replicas, pipeline, order)
    assert set(members_per_node(grid, group)) == brute_force(grid, group)


many = st.sampled_from([1, 2, 3, 5, 8, 13, 30])


@given(
    st.tuples(degrees, many, many, degrees),
    orders,
    st.sampled_from(sorted(GROUP_AXES)),
    st.integers(1, 6),
)
def test_members_per_node_of_large_groups_are_counted_without_all_ranks(
    cut: tuple[int, int, int, int], order: tuple[str, ...], group: str, gpus_per_node: int
) -> None:
    tensor, expert, replicas, pipeline = cut
    grid = mesh(tensor, expert, expert * replicas, pipeline, order, gpus_per_node)
    assert set(members_per_node(grid, group)) == brute_force(grid, group)


@given(st.tuples(many, degrees, degrees, many), orders, st.integers(1, 6))
def test_neighbours_share_a_node_where_their_ranks_do(
    cut: tuple[int, int, int, int], order: tuple[str, ...], gpus_per_node: int
) -> None:
    tensor, expert, replicas, pipeline = cut
    grid = mesh(tensor, expert, expert * replicas, pipeline, order, gpus_per_node)
    strides, apart = {}, 1
    for axis in order:
        strides[axis], apart = apart, apart * (axis_degrees(grid)[axis])
    stride = strides["pipeline"]
    expected = [True] * pipeline
    for rank in range(grid.ranks):
        stage = rank // stride % pipeline
        ahead = rank + ((stage + 1) % pipeline - stage) * stride
        expected[stage] &= rank // gpus_per_node == ahead // gpus_per_node
    assert list(neighbours_share(grid)) == expected


def test_a_million_ranks_are_not_drawn() -> None:
    drawn = _essential(mesh(tensor=8, expert=5, data=25_000, pipeline=5))
    assert prod(drawn.values()) < 10_000


@given(degrees, degrees, degrees, degrees, orders)
def test_group_sizes_multiply_to_the_ranks(
    tensor: int, expert: int, replicas: int, pipeline: int, order: tuple[str, ...]
) -> None:
    grid = mesh(tensor, expert, expert * replicas, pipeline, order)
    found = placements(grid)
    assert prod((found["tensor"].size, found["data"].size, pipeline)) == grid.ranks
    assert found["expert"].size * found["expert_data"].size == tensor * found["data"].size


@pytest.mark.parametrize("group", sorted(GROUP_AXES))
def test_a_group_on_one_node_has_all_its_members_there(group: str) -> None:
    found = placements(mesh(tensor=2, expert=2, data=4))[group]
    assert found.size == found.per_node
    assert found.nodes == 1
