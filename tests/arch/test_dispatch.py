"""What experts of the fullest rank get, and what a dispatcher that merges copies moves."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.arch.models import TINY, catalog
from twin.arch import Exchange, Layer, Op, Shape, layers
from twin.arch.reached import reached
from twin.spec.model import Moe

K2 = catalog("kimi-k2")


def experts(name: str) -> Moe:
    moe = catalog(name).moe
    assert moe is not None
    return moe


K2_MOE, V3_MOE = experts("kimi-k2"), experts("deepseek-v3")


def moe_layer(shape: Shape) -> Layer:
    return layers(K2, shape)[5]


def op(layer: Layer, name: str) -> Op:
    return next(item for item in layer.items if isinstance(item, Op) and item.name == name)


def test_the_fullest_rank_computes_receives_and_keeps_more_and_brings_no_more_tokens():
    even, full = (moe_layer(Shape(1, 4096, expert=16, expert_load=f)) for f in (1.0, 1.25))
    for name in ("experts_up", "experts_down", "experts_swiglu", "dispatch_sort", "combine_sort"):
        before, after = op(even, name), op(full, name)
        assert after.saved == 1.25 * before.saved
        assert after.output == 1.25 * before.output
        assert after.forward.flop == 1.25 * before.forward.flop
    sent = [
        [item.payload() for item in layer.items if isinstance(item, Exchange)]
        for layer in (even, full)
    ]
    assert sent[1] == [1.25 * size for size in sent[0]]
    for name in ("q_up", "router", "shared_up", "dispatch_permute", "combine_unpermute"):
        assert op(even, name) == op(full, name)


@given(st.floats(1, 8), st.sampled_from([2, 4, 8]))
def test_rows_follow_the_load_of_the_rank(factor: float, expert: int):
    layer = layers(TINY["tiny-moe"], Shape(2, 16, expert=expert, expert_load=factor))[2]
    product = op(layer, "experts_up").forward.product
    assert product is not None
    assert product.rows == pytest.approx(64 * factor, abs=0.5)


def test_shared_experts_stand_behind_the_dispatch_and_wait_for_nothing_of_it():
    names = [item.name for item in moe_layer(Shape(1, 4096, expert=16)).items]
    places = [names.index(name) for name in ("dispatch", "shared_up", "shared_down", "experts_up")]
    assert places == sorted(places)
    aside = [i.name for i in moe_layer(Shape(1, 64, expert=16)).items if getattr(i, "aside", False)]
    assert aside == ["shared_up", "shared_swiglu", "shared_down"]
    alone = moe_layer(Shape(1, 64)).items
    assert not any(getattr(item, "aside", False) for item in alone)


def test_merged_copies_are_unfolded_where_they_arrive_and_summed_before_they_leave():
    """6.49 of 16 ranks hold experts of a Kimi K2 token, on average: so many rows arrive, 8 leave
    for experts; nothing is copied or sorted before."""
    merged = moe_layer(Shape(1, 4096, expert=16, dispatcher="deepep"))
    names = [item.name for item in merged.items]
    assert "dispatch_sort" not in names
    assert names.index("dispatch") < names.index("dispatch_permute") < names.index("experts_up")
    assert names.index("experts_down") < names.index("combine_unpermute") < names.index("combine")
    rows = 4096 * 7168 * 2
    arriving = reached(K2_MOE, 16)
    for name in ("dispatch_permute", "combine_unpermute"):
        assert op(merged, name).forward.bytes == pytest.approx(rows * (arriving + 8))
    assert op(merged, "dispatch_permute").saved == rows * 8


def test_a_merging_dispatcher_moves_less_memory_and_says_the_same_payload():
    plain, merged = (
        moe_layer(Shape(1, 4096, expert=16, dispatcher=d)) for d in ("alltoall", "deepep")
    )
    local = [
        sum(
            i.forward.bytes
            for i in of.items
            if isinstance(i, Op) and i.name.startswith(("dis", "com"))
        )
        for of in (plain, merged)
    ]
    assert local[1] < local[0]
    sent = [[i for i in of.items if isinstance(i, Exchange)] for of in (plain, merged)]
    assert [i.payload() for i in sent[0]] == [i.payload() for i in sent[1]]


def test_ranks_that_share_no_experts_need_no_dispatcher():
    assert moe_layer(Shape(1, 64, dispatcher="deepep")) == moe_layer(Shape(1, 64))


def drawn(moe: Moe, parts: int, times: int = 20_000) -> float:
    """Mean of parts reached, by drawing groups and experts."""
    draw, size, own = Random(1), moe.experts // moe.groups, moe.experts // parts
    total = 0
    for _ in range(times):
        groups = draw.sample(range(moe.groups), moe.top_groups)
        allowed = [group * size + i for group in groups for i in range(size)]
        total += len({expert // own for expert in draw.sample(allowed, moe.top_k)})
    return total / times


@pytest.mark.parametrize(
    ("moe", "parts"),
    [
        (K2_MOE, 2),
        (K2_MOE, 16),
        (K2_MOE, 384),
        (V3_MOE, 2),
        (V3_MOE, 8),
        (V3_MOE, 64),
        (Moe(experts=24, top_k=4, width=8, groups=6, top_groups=2), 3),
    ],
)
def test_the_parts_reached_are_those_that_draws_reach(moe: Moe, parts: int):
    assert reached(moe, parts) == pytest.approx(drawn(moe, parts), rel=0.01)


def test_tokens_of_kimi_k2_reach_the_remote_nodes_of_an_independent_count():
    """0, 1.00, 2.71, 4.62, 6.09 remote copies for 8 to 128 ranks on 8-GPU nodes: nodes reached
    beside the own one, which is one of them as often as any."""
    remote = [reached(K2_MOE, ranks // 8) * (1 - 8 / ranks) for ranks in (8, 16, 32, 64, 128)]
    assert remote == pytest.approx([0, 1.00, 2.71, 4.62, 6.09], abs=0.01)


def test_limited_groups_bound_the_nodes_of_a_token():
    """DeepSeek-V3 on 64 ranks, a group per node: at most 4 of 8 nodes, of 16 as ungrouped 5.3."""
    assert reached(V3_MOE, 8) <= 4
    free = V3_MOE.model_copy(update={"groups": 1, "top_groups": 1})
    assert reached(free, 8) == pytest.approx(5.30, abs=0.02)
    assert reached(V3_MOE, 1) == pytest.approx(1)


@given(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24]), st.sampled_from([(1, 1), (4, 2), (6, 3)]))
def test_a_token_reaches_at_least_one_part_and_at_most_as_many_as_its_experts(
    parts: int, groups: tuple[int, int]
):
    moe = Moe(experts=24, top_k=4, width=8, groups=groups[0], top_groups=groups[1])
    assert 1 - 1e-9 <= reached(moe, parts) <= min(4, parts) + 1e-9
