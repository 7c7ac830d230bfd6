"""What experts of the fullest rank get, and what a dispatcher that merges copies moves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.arch.models import TINY, catalog
from twin.arch.ops import Exchange, Item, Layer, Op, Shape
from twin.arch.stack import layers

K2 = catalog("kimi-k2")


def moe_layer(shape: Shape) -> Layer:
    return layers(K2, shape)[5]


LOCAL = {"dispatch_permute", "dispatch_sort", "combine_sort", "combine_unpermute"}


def moved(item: Item) -> float:
    return item.forward.bytes if isinstance(item, Op) else item.payload()


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
        [item.payload() for item in layer.items if isinstance(item, Exchange) and not item.asks]
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
    merged = moe_layer(Shape(1, 4096, expert=16, arriving=6.49))
    names = [item.name for item in merged.items]
    assert "dispatch_sort" not in names
    assert names.index("dispatch") < names.index("dispatch_permute") < names.index("experts_up")
    assert names.index("experts_down") < names.index("combine_unpermute") < names.index("combine")
    rows = 4096 * 7168 * 2
    for name in ("dispatch_permute", "combine_unpermute"):
        assert op(merged, name).forward.bytes == pytest.approx(rows * (6.49 + 8))
    assert op(merged, "dispatch_permute").saved == rows * 8


def test_a_merging_dispatcher_moves_less_memory_and_says_the_same_rows():
    """In a plain all-to-all each row brings the 4 bytes of its routing weight."""
    plain, merged = (moe_layer(Shape(1, 4096, expert=16, arriving=n)) for n in (None, 6.49))
    local, sent = (
        [[moved(item) for item in of.items if item.name in names] for of in (plain, merged)]
        for names in (LOCAL, {"dispatch", "combine"})
    )
    assert sum(local[1]) < sum(local[0])
    dispatch, combine = sent[1]
    assert sent[0] == [dispatch + 4 * 4096 * 8, combine]


def test_ranks_say_how_many_rows_will_come_before_a_plain_dispatch_only():
    """A number of 8 bytes for each of 384 experts, forward alone, which the host waits for."""
    plain, merged = (moe_layer(Shape(1, 4096, expert=16, arriving=n)) for n in (None, 6.49))
    first = next(item for item in plain.items if isinstance(item, Exchange))
    assert (first.name, first.bytes, first.asks) == ("expert_counts", 8 * 384, True)
    assert (first.forward, first.backward) == ("all_to_all", None)
    names = [item.name for item in plain.items]
    assert names.index("router_scores") < names.index("expert_counts") < names.index("dispatch")
    assert not any(isinstance(item, Exchange) and item.asks for item in merged.items)


def test_who_orders_tokens_by_expert_decides_how_fast_that_is_and_nothing_else():
    """HybridEP's kernels against Transformer Engine's: other kinds, the same bytes."""
    own, other = (
        moe_layer(Shape(1, 4096, expert=16, arriving=6.49, ordering=kind))
        for kind in ("permute", "gather")
    )
    kinds = [
        [item.kind for item in of.items if isinstance(item, Op) and item.name in LOCAL]
        for of in (own, other)
    ]
    assert kinds == [["permute"] * 2, ["gather"] * 2]
    assert [moved(item) for item in own.items] == [moved(item) for item in other.items]


def test_routing_weights_may_travel_by_themselves_behind_the_rows_they_belong_to():
    """4 bytes for each of 8 copies of 4,096 tokens, as much as they add to the rows elsewhere."""
    along, apart = (
        moe_layer(Shape(1, 4096, expert=16, weights_apart=separate)) for separate in (False, True)
    )
    sent = [
        {item.name: item.payload() for item in of.items if isinstance(item, Exchange)}
        for of in (along, apart)
    ]
    assert list(sent[1]) == ["expert_counts", "dispatch", "dispatch_weights", "combine"]
    assert sent[1]["dispatch_weights"] == 4 * 8 * 4096
    assert sum(sent[0].values()) == sum(sent[1].values())
    merged = moe_layer(Shape(1, 4096, expert=16, arriving=6.49, weights_apart=True))
    assert "dispatch_weights" not in [item.name for item in merged.items]
