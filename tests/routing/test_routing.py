"""How tokens spread over experts: laws of every member, and cases counted by hand."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from twin.routing import Balanced, Routing, load, rank_loads
from twin.routing.base import taken
from twin.routing.chance import copies, fullest
from twin.routing.histogram import Histogram
from twin.routing.random import Random as Drawn
from twin.routing.zipf import Zipf
from twin.spec.axis import members

GRIDS = st.sampled_from([(8, 1), (8, 2), (8, 8), (60, 12), (384, 16)])


def routings(experts: int) -> st.SearchStrategy[Routing]:
    loads = st.lists(st.floats(0.01, 100), min_size=experts, max_size=experts)
    return st.one_of(
        st.just(Balanced()),
        st.just(Drawn(kind="random")),
        st.builds(Zipf, kind=st.just("zipf"), s=st.floats(0, 4)),
        st.builds(Histogram, kind=st.just("histogram"), loads=loads.map(tuple)),
    )


def zipf(s: float) -> Zipf:
    return Zipf(kind="zipf", s=s)


def test_every_member_of_the_axis_is_in_these_laws():
    assert set(members("twin.routing", Routing)) == {
        "balanced",
        "random",
        "zipf",
        "histogram",
        "by_layer",
    }


@given(GRIDS.flatmap(lambda grid: st.tuples(st.just(grid), routings(grid[0]))))
def test_all_tokens_go_somewhere_and_the_fullest_rank_has_at_least_the_mean(
    case: tuple[tuple[int, int], Routing],
):
    (experts, ranks), routing = case
    assert sum(routing.shares(experts)) == pytest.approx(1)
    loads = rank_loads(routing, experts, ranks)
    assert len(loads) == ranks
    assert min(loads) > 0
    assert sum(loads) == pytest.approx(ranks)
    assert load(routing, experts, ranks) == pytest.approx(max(loads))
    assert load(routing, experts, ranks) >= 1
    assert load(routing, experts, 1) == 1


@given(GRIDS)
def test_zipf_with_no_exponent_and_an_even_histogram_are_balanced(grid: tuple[int, int]):
    even = Histogram(kind="histogram", loads=(7.0,) * grid[0])
    for same in (zipf(0), even):
        assert same.shares(grid[0]) == pytest.approx(Balanced().shares(grid[0]))
        assert load(same, *grid) == pytest.approx(load(Balanced(), *grid))
    assert load(Balanced(), *grid) == 1


def test_zipf_falls_with_the_power_of_the_place():
    shares = sorted(zipf(0.5).shares(4), reverse=True)
    assert [share / shares[0] for share in shares] == pytest.approx([1, 2**-0.5, 3**-0.5, 0.5])


@given(GRIDS, st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.9]))
def test_much_steeper_popularity_fills_the_fullest_rank_more(grid: tuple[int, int], s: float):
    experts, ranks = grid
    less, steeper = (load(zipf(e), experts, ranks) for e in (s, 2 * s + 0.1))
    assert steeper > less or ranks == 1


@pytest.mark.parametrize("ranks", [8, 16, 32, 64, 128])
@pytest.mark.parametrize("s", [0.05, 0.2, 0.5, 1.0])
def test_the_loads_of_zipf_are_those_of_an_average_random_order(s: float, ranks: int):
    """Kimi K2's 384 experts, drawn again with another generator."""
    draw, shares = Random("another"), zipf(s).shares(384)
    total = 0.0
    for _ in range(200):
        placed = draw.sample(shares, 384)
        total += max(ranks * sum(placed[rank::ranks]) for rank in range(ranks))
    assert load(zipf(s), 384, ranks) == pytest.approx(total / 200, rel=0.075)


def test_experts_are_not_numbered_by_popularity():
    """Which would fill the first of 16 ranks 1.70 times."""
    ordered = sorted(zipf(0.2).shares(384), reverse=True)
    assert 16 * sum(ordered[:24]) == pytest.approx(1.70, abs=0.01)
    assert load(zipf(0.2), 384, 16) == pytest.approx(1.09, abs=0.01)


def test_one_expert_per_rank_leaves_nothing_to_chance():
    assert load(zipf(1), 4, 4) == pytest.approx(4 * max(zipf(1).shares(4))) == pytest.approx(1.92)


def test_a_histogram_fills_the_ranks_that_hold_its_experts():
    measured = Histogram(kind="histogram", loads=(1.0, 3.0, 1.0, 1.0, 2.0, 4.0))
    assert rank_loads(measured, 6, 3) == pytest.approx((1.0, 0.5, 1.5))
    assert load(measured, 6, 3) == pytest.approx(1.5)


@pytest.mark.parametrize("loads", [(), (1.0, 0.0), (1.0, -1.0), (1.0, float("nan"))])
def test_loads_are_positive_numbers(loads: tuple[float, ...]):
    with pytest.raises(ValidationError):
        Histogram(kind="histogram", loads=loads)


@given(GRIDS.flatmap(lambda grid: st.tuples(st.just(grid), routings(grid[0]))), st.integers(1, 8))
def test_no_expert_gets_a_token_twice(case: tuple[tuple[int, int], Routing], top_k: int) -> None:
    (experts, ranks), routing = case
    shares = routing.shares(experts)
    found = taken(shares, top_k)
    assert sum(found) == pytest.approx(1)
    assert max(found) <= 1 / top_k + 1e-9
    assert all(
        one >= share - 1e-9
        for one, share in zip(found, shares, strict=True)
        if one * top_k < 1 - 1e-9
    )
    assert load(routing, experts, ranks, top_k) <= max(1, ranks / top_k) * experts / ranks + 1e-9


def test_what_a_popular_expert_cannot_take_goes_to_the_others_as_they_are_popular():
    """Two of four chosen: the first takes half, not 0.7, and the others share 0.5 as 2:1:0."""
    assert taken((0.7, 0.2, 0.1, 0.0), 2) == pytest.approx((0.5, 1 / 3, 1 / 6, 0))
    assert taken((0.4, 0.3, 0.2, 0.1), 2) == (0.4, 0.3, 0.2, 0.1)
    assert taken((0.9, 0.09, 0.005, 0.005), 2) == pytest.approx((0.5, 0.45, 0.025, 0.025))


@pytest.mark.parametrize(
    ("experts", "top_k", "ranks", "tokens", "limit", "within"),
    [
        (256, 8, 32, 4096, None, 0.005),
        (256, 8, 32, 4096, (8, 4), 0.005),
        (8, 2, 8, 2048, None, 0.005),
        (8, 2, 2, 512, None, 0.005),
        (64, 6, 64, 640, None, 0.02),
        (128, 1, 128, 4096, None, 0.04),  # 32 rows per rank: larger than normals say
    ],
)
def test_the_fullest_rank_by_chance_is_that_of_routers_that_are_played(
    experts: int,
    top_k: int,
    ranks: int,
    tokens: int,
    limit: tuple[int, int] | None,
    within: float,
) -> None:
    draws = np.random.default_rng(1)
    found: list[float] = []
    for _ in range(60):
        scores = draws.random((tokens, experts))
        if limit is not None:
            by_group = np.sort(scores.reshape(tokens, limit[0], -1), -1)[..., -2:].sum(-1)
            out = np.argsort(-by_group, axis=1)[:, limit[1] :]
            closed = np.zeros((tokens, limit[0]), bool)
            np.put_along_axis(closed, out, values=True, axis=1)
            scores = np.where(np.repeat(closed, experts // limit[0], axis=1), -1.0, scores)
        chosen = np.argpartition(-scores, top_k, axis=1)[:, :top_k]
        rows = np.bincount((chosen // (experts // ranks)).ravel(), minlength=ranks)
        found.append(rows.max() / rows.mean())
    variance = copies(experts, top_k, ranks, limit)
    ours = fullest(ranks, tokens, top_k / ranks, variance)
    assert ours == pytest.approx(np.mean(found), rel=within)


def test_chance_matters_less_the_more_tokens_choose_and_over_many_layers() -> None:
    """Four times the tokens halve what the fullest rank has too much of, as 4 layers do."""
    drawn = Drawn(kind="random")
    few, many = (load(drawn, 256, 32, 8, tokens) for tokens in (16_384.0, 65_536.0))
    assert few - 1 == pytest.approx(2 * (many - 1))
    assert drawn.over_layers(few, 4) == pytest.approx(many)
    assert load(drawn, 256, 1, 8, 100.0) == 1.0
