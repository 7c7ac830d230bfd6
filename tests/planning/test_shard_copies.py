"""Copies of what is sharded: where they sit, what they hold and what they send."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.scenarios import dense, moe
from twin.collectives.traffic import phases
from twin.engine import plan
from twin.engine.cost_model import CostModel
from twin.errors import TwinError
from twin.network.placement import Placement


@given(
    st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 3, 4, 6]), st.sampled_from([1, 2, 4, 8])
)
def test_parts_sit_as_ranks_counted_one_by_one(per_node: int, nodes: int, count: int) -> None:
    """Where parts fill nodes evenly; where not, they count as on more nodes, never on fewer."""
    size = per_node * nodes
    if size % count:
        return
    part, across = Placement(size, per_node).split(count)
    ranks = [list(range(at, at + size // count)) for at in range(0, size, size // count)]
    held = {max(sum(r // per_node == n for r in one) for n in range(nodes)) for one in ranks}
    apart = {len({one[0] // per_node for one in ranks})}
    assert (part.size, across.size) == (size // count, count)
    assert all(part.per_node <= most for most in held)
    assert all(across.nodes >= least for least in apart)
    if per_node % part.size == 0 or part.size % per_node == 0:
        assert {part.per_node} == held
        assert {across.nodes} == apart


def test_a_reduction_is_inside_copies_and_then_over_them() -> None:
    inside, across = Placement(8, 8), Placement(4, 1)
    whole = Placement(32, 8)
    assert phases("reduce_scatter", 64.0, whole, 4) == (
        ("reduce_scatter", 64.0, inside),
        ("all_reduce", 8.0, across),
    )
    assert phases("all_gather", 64.0, whole, 4) == (("all_gather", 64.0, inside),)
    assert phases("all_reduce", 64.0, whole, 4) == (("all_reduce", 64.0, whole),)
    assert phases("all_gather", 64.0, whole, 1) == (("all_gather", 64.0, whole),)


def test_bytes_over_nics_by_hand() -> None:
    """Four nodes of 8: a ring over all sends (31/32) / 8 of a payload through a NIC, for which
    copies in nodes send nothing, and then 2 (3/4) of an eighth."""
    ways = (), ("parallel.shard_copies=4",)
    costs = [CostModel.of(plan(dense(4, 1, 1, 1, "parallel.zero=3", *one))) for one in ways]
    plain, copied = (one.collective("reduce_scatter", 8e9, "data")[0] for one in costs)
    assert plain.nic_bytes == pytest.approx(1e9 * 31 / 32)
    assert copied.nic_bytes == pytest.approx(1e9 * 2 * 3 / 4)
    assert costs[1].collective("all_gather", 8e9, "data")[0].nic_bytes == 0


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_states_grow_with_copies(zero: int) -> None:
    def held(copies: int) -> dict[str, float]:
        layout = f"parallel.zero={zero}", f"parallel.shard_copies={copies}"
        return plan(dense(2, 1, 1, 1, *layout)).memory.stages[0].categories

    one, four = held(1), held(4)
    names = ("optimizer_dense", "gradients", "parameters")
    grown = [four[name] == pytest.approx(4 * one[name]) for name in names]
    assert grown == [True, zero >= 2, zero == 3]


def test_every_copy_has_all_experts() -> None:
    with pytest.raises(TwinError) as refused:
        plan(moe(4, 1, 1, 16, "parallel.zero=1", "parallel.shard_copies=4"))
    assert [one.code for one in refused.value.problems] == ["TW131"]
    made = plan(moe(4, 1, 1, 16, "parallel.zero=1", "parallel.shard_copies=2"))
    one = plan(moe(4, 1, 1, 16, "parallel.zero=1"))
    sizes = [p.memory.stages[0].categories["optimizer_expert"] for p in (made, one)]
    assert sizes[0] == pytest.approx(2 * sizes[1])


def test_nothing_sharded_has_no_copies() -> None:
    with pytest.raises(TwinError) as refused:
        plan(dense(1, 1, 1, 1, "parallel.zero=0", "parallel.shard_copies=2"))
    assert [one.code for one in refused.value.problems] == ["TW131"]
