"""Ranks, groups and nodes: small grids drawn by hand, and laws over all grids."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import permutations
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twin.network.placement import Placement
from twin.planning.mesh import (
    GROUPS,
    _essential,
    divisors,
    group_numbers,
    members_per_node,
    nearest_even,
    neighbours_share,
    placements,
    stages_agree,
)
from twin.planning.mesh import degrees as axis_degrees
from twin.planning.types import Mesh

AXES = ("tensor", "context", "expert", "data", "pipeline")


def mesh(
    tensor: int = 1,
    expert: int = 1,
    data: int = 1,
    pipeline: int = 1,
    order: tuple[str, ...] = AXES,
    gpus_per_node: int = 8,
    *,
    context: int = 1,
    expert_tensor: int = 1,
) -> Mesh:
    return Mesh(tensor, expert, data, pipeline, gpus_per_node, order, context, expert_tensor)


def test_two_nodes_share_one_set_of_experts_in_kimi_k2_on_256_gpus() -> None:
    """16 stages of 16 ranks: each stage fills two nodes, its experts are spread over both, and
    nothing replicates them."""
    assert placements(mesh(expert=16, data=16, pipeline=16)) == {
        "tensor": Placement(1, 1),
        "context": Placement(1, 1),
        "expert_tensor": Placement(1, 1),
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


def group_of(grid: Mesh, group: str, rank: int) -> tuple[int, ...]:
    """What all members of a rank's group have in common: its coordinates on the other axes."""
    kind, axes = GROUPS[group]
    sizes, place = axis_degrees(grid, kind), {}
    for axis in grid.order:
        rank, place[axis] = divmod(rank, sizes[axis])
    return tuple(place[axis] for axis in AXES if axis not in axes)


def brute_force(grid: Mesh, group: str) -> set[int]:
    """Members per node, counted rank by rank from coordinates."""
    counts: Counter[tuple[object, int]] = Counter()
    for rank in range(grid.ranks):
        counts[group_of(grid, group, rank), rank // grid.gpus_per_node] += 1
    return set(counts.values())


@given(degrees, degrees, degrees, degrees, orders, st.sampled_from(sorted(GROUPS)))
def test_members_per_node_equal_a_count_rank_by_rank(
    tensor: int, expert: int, replicas: int, pipeline: int, order: tuple[str, ...], group: str
) -> None:
    grid = mesh(tensor, expert, expert * replicas, pipeline, order)
    assert set(members_per_node(grid, group)) == brute_force(grid, group)


many = st.sampled_from([1, 2, 3, 5, 8, 13, 30])


@given(
    st.tuples(degrees, many, many, degrees),
    orders,
    st.sampled_from(sorted(GROUPS)),
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
        strides[axis], apart = apart, apart * axis_degrees(grid, "dense")[axis]
    stride = strides["pipeline"]
    expected = [True] * pipeline
    for rank in range(grid.ranks):
        stage = rank // stride % pipeline
        ahead = rank + ((stage + 1) % pipeline - stage) * stride
        expected[stage] &= rank // gpus_per_node == ahead // gpus_per_node
    assert list(neighbours_share(grid)) == expected


def test_a_million_ranks_are_not_drawn() -> None:
    large = mesh(tensor=8, expert=5, data=25_000, pipeline=5)
    assert prod(_essential(large, "dense").values()) < 10_000
    assert prod(_essential(large, "experts").values()) < 10_000


@given(degrees, degrees, degrees, degrees, orders)
def test_group_sizes_multiply_to_the_ranks(
    tensor: int, expert: int, replicas: int, pipeline: int, order: tuple[str, ...]
) -> None:
    grid = mesh(tensor, expert, expert * replicas, pipeline, order)
    found = placements(grid)
    assert prod((found["tensor"].size, found["data"].size, pipeline)) == grid.ranks
    assert found["expert"].size * found["expert_data"].size == tensor * found["data"].size


@pytest.mark.parametrize("group", sorted(GROUPS))
def test_a_group_on_one_node_has_all_its_members_there(group: str) -> None:
    found = placements(mesh(tensor=2, expert=2, data=4))[group]
    assert found.size == found.per_node
    assert found.nodes == 1


def test_expert_ranks_are_neighbours_across_tensor_and_context_ranks() -> None:
    """128 GPUs, tensor 8, expert 32 ("parallel folding"): 16 data ranks could not hold 32 expert
    ranks, but the 128 ranks of the stage hold four sets of experts, each on four nodes."""
    folded = mesh(tensor=8, expert=32, data=16)
    found = placements(folded)
    assert (folded.dense_replicas, folded.expert_data) == (16, 4)
    assert (found["tensor"], found["data"]) == (Placement(8, 8), Placement(16, 1))
    assert (found["expert"], found["expert_data"]) == (Placement(32, 8), Placement(4, 1))


def test_context_ranks_are_replicas_of_dense_weights() -> None:
    """Llama 3 on 2 x 16 nodes of 8: tensor 8 fills a node, context 4 spans four, and 4 x 8 ranks
    reduce each gradient."""
    found = placements(mesh(tensor=8, context=4, data=8))
    assert (found["context"], found["data"]) == (Placement(4, 1), Placement(32, 1))


def test_expert_tensor_ranks_are_the_fastest_of_the_experts_grid() -> None:
    found = placements(mesh(tensor=4, expert_tensor=2, expert=8, data=8))
    assert (found["expert_tensor"], found["expert"]) == (Placement(2, 2), Placement(8, 4))
    assert found["expert_data"] == Placement(2, 1)


CUTS = st.tuples(degrees, degrees, degrees, degrees, degrees, degrees)


def folded_mesh(cut: tuple[int, ...], order: tuple[str, ...], gpus_per_node: int = 8) -> Mesh:
    """A mesh in which both grids divide: data makes up for what expert ranks need."""
    tensor, context, expert, expert_tensor, replicas, pipeline = cut
    data = expert * expert_tensor * replicas
    return mesh(
        tensor,
        expert,
        data,
        pipeline,
        order,
        gpus_per_node,
        context=context,
        expert_tensor=expert_tensor,
    )


@given(CUTS, orders)
def test_both_grids_have_all_ranks_of_a_stage(cut: tuple[int, ...], order: tuple[str, ...]) -> None:
    grid = folded_mesh(cut, order)
    found = placements(grid)
    dense, experts = (prod(axis_degrees(grid, kind).values()) for kind in ("dense", "experts"))
    assert dense == experts == grid.ranks
    assert found["tensor"].size * found["data"].size == grid.stage_ranks
    cut_experts = found["expert_tensor"].size * found["expert"].size
    assert cut_experts * found["expert_data"].size == grid.stage_ranks


@given(CUTS, orders, st.sampled_from(sorted(GROUPS)), st.integers(1, 6))
def test_members_per_node_are_counted_in_both_grids(
    cut: tuple[int, ...], order: tuple[str, ...], group: str, gpus_per_node: int
) -> None:
    grid = folded_mesh(tuple(min(one, 3) for one in cut), order, gpus_per_node)
    assert set(members_per_node(grid, group)) == brute_force(grid, group)


@given(CUTS, orders)
def test_ranks_with_one_group_number_are_those_with_the_same_coordinates(
    cut: tuple[int, ...], order: tuple[str, ...]
) -> None:
    grid = folded_mesh(tuple(min(one, 2) for one in cut), order)
    if not stages_agree(grid):
        return
    stage_of = [group_of_stage(grid, rank) for rank in range(grid.ranks)]
    for group, numbers in group_numbers(grid).items():
        by_number: dict[int, set[int]] = {}
        by_place: dict[tuple[int, ...], set[int]] = {}
        for stage, row in enumerate(numbers):
            own = [rank for rank in range(grid.ranks) if stage_of[rank] == stage]
            for rank, number in zip(own, row, strict=True):
                by_number.setdefault(int(number), set()).add(rank)
                by_place.setdefault(group_of(grid, group, rank), set()).add(rank)
        assert sorted(map(sorted, by_number.values())) == sorted(map(sorted, by_place.values()))


def group_of_stage(grid: Mesh, rank: int) -> int:
    """The stage of a rank, by its dense coordinates."""
    for axis in grid.order:
        rank, place = divmod(rank, axis_degrees(grid, "dense")[axis])
        if axis == "pipeline":
            return place
    raise AssertionError


def test_a_rank_may_be_on_two_stages_when_pipeline_is_not_last() -> None:
    """Tensor ranks hold whole experts: the next stage is two ranks on for dense weights, and one
    rank on for experts."""
    odd = ("tensor", "pipeline", "context", "expert", "data")
    assert not stages_agree(mesh(tensor=2, data=4, pipeline=2, order=odd))
    assert stages_agree(mesh(tensor=2, expert_tensor=2, data=4, pipeline=2, order=odd))
    assert stages_agree(mesh(tensor=2, data=4, pipeline=2))


@pytest.mark.parametrize(
    ("nodes_per_pod", "expert", "data", "pipeline"),
    # 256 GPUs, 16 stages of 2 nodes: expert groups fill a stage. A pod of one node splits them, of
    # two nodes holds them and no two stages, of 32 nodes everything.
    [(1, 8, 8, 1), (2, 16, 16, 1), (32, 16, 16, 2)],
)
def test_groups_know_how_many_of_their_members_share_a_pod(
    nodes_per_pod: int, expert: int, data: int, pipeline: int
) -> None:
    found = placements(mesh(expert=16, data=16, pipeline=16), nodes_per_pod)
    assert [found[name].per_pod for name in ("expert", "data", "pipeline")] == [
        expert,
        data,
        pipeline,
    ]
    assert found["expert"].in_one_pod == (nodes_per_pod > 1)


@pytest.mark.parametrize("gpus_per_node", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("pipeline", [2, 4, 6])
def test_the_replicas_of_mirrored_stages_lie_where_their_ranks_do(
    pipeline: int, gpus_per_node: int
) -> None:
    """Ranks drawn one by one, in every order: 2 tensor x 4 data ranks on each stage."""
    for order in permutations(("tensor", "data", "pipeline")):
        layout = mesh(2, 1, 4, pipeline, (*order, "context", "expert"), gpus_per_node)
        sizes = {"tensor": 2, "data": 4, "pipeline": pipeline}
        alone = Counter[tuple[int, ...]]()
        both = Counter[tuple[int, ...]]()
        for rank in range(layout.ranks):
            at, rest = dict[str, int](), rank
            for axis in order:
                rest, at[axis] = divmod(rest, sizes[axis])
            stage, node = at["pipeline"], rank // gpus_per_node
            alone[at["tensor"], stage, node] += 1
            both[at["tensor"], min(stage, pipeline - 1 - stage), node] += 1
        if len(set(alone.values())) > 1:
            continue  # no layout that can run
        found = placements(replace(layout, copies=2))["data"]
        expected = both if len(set(both.values())) == 1 else alone
        assert found == Placement(size=8, per_node=min(expected.values())), order


def test_replicas_on_an_odd_number_of_nodes_sit_as_on_the_node_with_fewest() -> None:
    """24 GPUs in two stages: 12 replicas, 8 on one node and 4 on another."""
    grid = mesh(data=12, pipeline=2)
    assert members_per_node(grid, "data") == (4, 8)
    assert placements(grid)["data"] == Placement(12, 4)
