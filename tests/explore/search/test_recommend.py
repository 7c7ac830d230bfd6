"""What is recommended is the best of the space."""

from dataclasses import replace

import pytest

import twin
from twin.answers.executors import PoolChoice
from twin.answers.nearest import document, replaced
from twin.engine import lower, plan, simulate
from twin.errors import ScenarioError, UsageError
from twin.explore.search.judge import Judge
from twin.explore.search.recommend import TIE, recommend
from twin.explore.search.recommendation import NEAR, SearchRequest
from twin.explore.search.space import DAY, Goal, layout_of, narrowed, nodes_of, only, space

HERE = PoolChoice(jobs=1)


@pytest.fixture(scope="module")
def narrow(small):
    """A space of a few dozen layouts."""
    axes = {
        "parallel.pipeline": [1, 2, 4],
        "parallel.tensor": [1],
        "parallel.expert": [4, 8],
        "parallel.virtual": [1, 2],
        "parallel.micro_batch": [1],
    }
    found = narrowed(space(small, (1, 2)), axes)
    return replace(found, memory=found.memory[:3])


def exhaustive(found):
    """Step by events of every layout that fits."""
    for grid in found.grids():
        for turn in found.turns(grid.pipeline):
            for zero in found.zeros(grid.pipeline):
                for memory in found.memory:
                    layout = found.layout(grid, turn, zero, memory)
                    try:
                        planned = plan(layout.applied(found.scenario))
                    except ScenarioError:
                        continue
                    if planned.memory.fits:
                        yield layout, simulate(lower(planned)).step_ns


@pytest.fixture(scope="module")
def steps(narrow):
    """Steps of all layouts that fit."""
    return dict(exhaustive(narrow))


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder of answers: each layout is played once for all searches."""
    return tmp_path_factory.mktemp("points")


def test_the_optimum_of_a_small_space_is_that_of_trying_all(narrow, steps, kept):
    found = recommend(SearchRequest(narrow, Goal(), HERE, kept, most=10_000))
    assert found.examined == narrow.size > len(steps) > 10
    for size in found.sizes:
        own = {layout: step for layout, step in steps.items() if layout.nodes == size.nodes}
        answered = {one.layout: one.step_ns for one in size.fitting}
        assert answered.items() <= own.items()
        assert size.leader is not None
        assert size.leader.step_ns == min(own.values())
        near = {one for one, step in own.items() if step <= (1 + NEAR) * min(own.values())}
        assert near <= answered.keys()
    assert found.open == 0
    assert found.pick is not None
    assert found.pick.step_ns == min(steps.values())


SPACES = {
    "kimi-k2-256xh800": ((32, 64), {"pipeline": [8, 16], "expert": [8, 16, 32]}),
    "deepseek-v3-2048xh800": ((128, 256), {"pipeline": [8, 16], "expert": [16, 32, 64]}),
    "gpt-175b-64xa100-full": ((8, 16), {"pipeline": [4, 8, 16], "tensor": [4, 8]}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SPACES)
def test_of_shipped_plans_the_best_of_every_size_is_that_of_trying_all(name):
    """Hundreds of layouts each, with the search as people ask for it."""
    nodes, axes = SPACES[name]
    axes = {"tensor": [1], "virtual": [1, 2], "micro_batch": [1, 2], **axes}
    wide = narrowed(space(twin.load(name), nodes, any_stack=True), axes)
    wide = replace(wide, memory=wide.memory[:3])
    steps = dict(exhaustive(wide))
    found = recommend(SearchRequest(wide, Goal(), HERE))
    assert found.pick is not None
    assert found.pick.step_ns == min(steps.values())
    for size in found.sizes:
        assert size.leader is not None
        best = min(step for layout, step in steps.items() if layout.nodes == size.nodes)
        assert size.leader.step_ns <= (1 + NEAR) * best


def test_a_deadline_takes_the_cheapest_in_time_and_a_budget_the_fastest_within_it(narrow, kept):
    fastest = recommend(SearchRequest(narrow, Goal(), HERE, kept))
    leaders = {size.nodes: size.leader for size in fastest.sizes}
    days, cost = (
        {n: one.answer.kpis[key] or 0.0 for n, one in leaders.items() if one}
        for key in ("days", "cost_usd")
    )
    assert days[2] < days[1]
    assert cost[1] < cost[2]
    slow = recommend(SearchRequest(narrow, Goal(days=days[1] * 1.01), HERE, kept)).pick
    assert slow is not None
    assert slow.layout.nodes == 1
    quick = recommend(SearchRequest(narrow, Goal(days=days[2] * 1.01), HERE, kept)).pick
    assert quick is not None
    assert quick.layout.nodes == 2
    poor = recommend(SearchRequest(narrow, Goal(usd=cost[1] * 1.01), HERE, kept)).pick
    assert poor is not None
    assert poor.layout.nodes == 1


def test_a_search_that_begins_with_one_answer_per_size_closes_what_is_open(narrow, steps, kept):
    found = recommend(SearchRequest(narrow, Goal(), HERE, kept, most=1))
    assert found.open == 0
    assert found.pick is not None
    assert found.pick.step_ns <= (1 + TIE) * min(steps.values())
    assert found.simulated > len(found.sizes)


def test_without_time_what_is_open_is_counted_and_the_pick_is_simulated_all_the_same(
    narrow, steps, tmp_path
):
    found = recommend(SearchRequest(narrow, Goal(), HERE, tmp_path, most=1, seconds=0))
    assert found.pick is not None
    assert found.open > 0
    assert min(steps.values()) >= (1 - found.at_most_better) * found.pick.step_ns
    assert not found.to_json()["proven"]


def test_where_nothing_is_in_time_the_nearest_is_simulated_and_a_larger_cluster_found(
    narrow, steps, kept
):
    best = min(steps.values())
    days = best / 1e9 * narrow.scenario.train.tokens / narrow.scenario.train.global_batch / DAY
    found = recommend(SearchRequest(narrow, Goal(days=0.6 * days), HERE, kept))
    assert found.pick is None
    assert found.open == 0, "bounds prove it"
    assert found.nearest is not None
    assert found.nearest.step_ns <= (1 + TIE) * best
    assert found.enough is not None
    assert found.enough.layout.nodes in (4, 8)
    assert found.enough.answer.kpis["days"] <= 0.6 * days
    never = recommend(SearchRequest(narrow, Goal(days=days / 1e4), HERE, kept))
    assert never.pick is never.enough is None
    assert never.nearest is not None


def test_a_recommendation_says_what_became_of_every_layout(narrow, kept):
    said = recommend(SearchRequest(narrow, Goal(), HERE, kept)).to_json()
    left = sum(size["not_evaluated"] for size in said["sizes"])
    assert said["examined"] == sum(said["pruned"].values()) + said["evaluated"] + left
    assert set(said["pruned"]) == set(said["pruned_because"])
    assert said["frontier"]
    assert all(one["fidelity"] == "events" for one in said["frontier"])
    assert said["recommended"]["step_seconds"] >= said["recommended"]["least_step_seconds"]


def test_overrides_of_a_layout_give_that_layout(narrow, small):
    for candidate in Judge(narrow).all().candidates[::5]:
        overrides = candidate.layout.overrides(small)
        again = replaced(document(small), overrides)
        assert layout_of(again) == candidate.layout
        assert again == candidate.layout.applied(small)


def test_a_fixed_layout_is_a_space_of_one_layout_per_size(small):
    assert only(space(small, (1, 2, 3))).size == 3


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("16", (2,)),
        ("16:64", (2, 4, 6, 8)),
        ("16:64:24", (2, 5, 8)),
        ("64,16", (2, 8)),
    ],
)
def test_sizes_are_lists_and_ranges_in_steps_of_their_lower_end(small, text, nodes):
    assert nodes_of(small, text) == nodes


@pytest.mark.parametrize(
    "text", ["", "12", "64:16", "a:b", "16:64:8:1", "0", "8:80000", "8:99999999999999", "9" * 5000]
)
def test_sizes_that_are_none_are_refused(small, text):
    with pytest.raises(UsageError):
        nodes_of(small, text)


def test_an_axis_that_is_none_is_refused_with_the_nearest(small):
    with pytest.raises(UsageError, match=r"parallel\.tensor"):
        narrowed(space(small, (1,)), {"parallel.tensr": [1]})


def test_an_axis_takes_schedules_by_name_and_numbers_only(small):
    found = narrowed(space(small, (1,)), {"parallel.schedule": ["zb_h1"], "parallel.tensor": [2]})
    assert [one.kind for one in found.schedule] == ["zb_h1"]
    for axes in ({"parallel.schedule": ["zbh1"]}, {"parallel.tensor": ["two"]}):
        with pytest.raises(UsageError):
            narrowed(space(small, (1,)), axes)
