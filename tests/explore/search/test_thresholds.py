"""What must be true: at a threshold the decision flips, and just there."""

# What is None, or another kind of lever, fails the test that reads it.
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false, reportOptionalCall=false
# pyright: reportOptionalOperand=false, reportArgumentType=false, reportAttributeAccessIssue=false
# pyright: reportOperatorIssue=false, reportCallIssue=false

import json
from dataclasses import replace

import pytest

import twin
from twin.answers.executors import PoolChoice
from twin.answers.nearest import StepAnswers, document, replaced, value_at
from twin.cli.main import main
from twin.cli.search_tables import threshold_tables, threshold_words
from twin.engine import plan
from twin.explore.search.candidates import (
    MOST,
    TIE,
    Contender,
    Decision,
    Standing,
    contest,
    fixed_contest,
)
from twin.explore.search.levers import Lever, NoLever, levers
from twin.explore.search.recommend import recommend
from twin.explore.search.recommendation import SearchRequest
from twin.explore.search.scale import Sizes, scale
from twin.explore.search.space import Goal, narrowed, space
from twin.explore.search.thresholds import BreakEven, find_flips, tornado
from twin.explore.sweep.points import failed

HERE = PoolChoice(jobs=1)


@pytest.fixture(scope="module")
def fastest(small):
    """The fastest of a few layouts on one and two nodes."""
    axes = {
        "parallel.pipeline": [1, 2],
        "parallel.tensor": [1],
        "parallel.expert": [4, 8],
        "parallel.virtual": [1],
        "parallel.micro_batch": [1],
    }
    found = narrowed(space(small, (1, 2)), axes)
    return recommend(SearchRequest(replace(found, memory=found.memory[:1]), Goal(), HERE))


def asked_again(found, goal):
    """The contest of the same answers for another goal, as the search would pick among them."""
    leaders = [size.leader for size in found.sizes if size.leader]
    meeting = [one for one in leaders if goal.met(one.answer.kpis)]
    pick = min(meeting, key=lambda one: goal.worth(one.answer.kpis), default=None)
    return contest(replace(found, asked=replace(found.asked, goal=goal), pick=pick))


def leader(found, nodes):
    """Key figures of the fastest on so many nodes."""
    return next(size.leader for size in found.sizes if size.nodes == nodes).answer.kpis


def lever(contest, name):
    """One lever by its name."""
    return next(one for one in levers(contest) if one.name == name)


def flips_of(contest, name):
    """The flips of one lever."""
    ((found,), _) = find_flips(contest, [lever(contest, name)])
    return found.flips


def hand_made(scenario, goal, *figures, has_pick=True):
    """A contest of nodes, days and cost."""
    made = [
        Contender(
            nodes=nodes,
            gpus=8 * nodes,
            words=f"layout {n} 1f1b",
            schedule="1f1b",
            overrides={"cluster.nodes": nodes},
            now=Standing(
                {"days": days, "cost_usd": cost, "gpu_hours": cost / 2, "step_seconds": 1.0}
            ),
            headroom_bytes=1e9 * (n + 1),
        )
        for n, (nodes, days, cost) in enumerate(figures)
    ]
    return Decision(scenario, goal, tuple(made), has_pick, HERE)


def straight(**changes):
    """A lever from 0 to 10, at 5, of which answers are worked out."""
    usual = Lever("x", "x", "", 5.0, 0.0, 10.0, 5.0, "", "slower", closed=lambda one, _: one.now)
    return replace(usual, **changes)


def test_the_price_that_meets_a_budget_is_the_budget_over_gpu_hours(fastest):
    kpis = leader(fastest, 2)
    budget = 1.3 * kpis["cost_usd"]
    found = flips_of(asked_again(fastest, Goal(usd=budget)), "GPU-hour price")
    above = [one for one in found if one.side == "above"]
    assert above[0].reason == "goal"
    assert above[0].value == pytest.approx(budget / kpis["gpu_hours"], rel=1e-9)


def test_a_lower_price_lets_a_budget_buy_the_quicker_size(fastest):
    small, large = (leader(fastest, nodes) for nodes in (1, 2))
    assert small["cost_usd"] < large["cost_usd"]
    budget = (small["cost_usd"] + large["cost_usd"]) / 2
    (flip, *_) = flips_of(asked_again(fastest, Goal(usd=budget)), "GPU-hour price")
    assert (flip.side, flip.reason) == ("below", "better")
    assert flip.wins.nodes == 2
    assert flip.value == pytest.approx(budget / large["gpu_hours"], rel=1e-9)


def test_the_memory_margin_is_what_the_plan_has_left(fastest):
    found = contest(fastest)
    flips = flips_of(found, "memory margin")
    chosen = replaced(document(found.scenario), found.pick.overrides)
    memory, split = plan(chosen).memory, [*plan(chosen).layers_per_part]
    assert flips[0].value == memory.budget - memory.peak.peak_bytes
    assert flips[0].reason == "does not fit"
    for extra, fits in ((flips[0].value, True), (flips[0].value + 1, False)):
        reserve = value_at(document(chosen), "cluster.node.gpu.reserve")
        grown = [*reserve, {"name": "more", "bytes": f"{extra:.0f}B"}]
        # With a split of its own it would make room.
        kept = {"cluster.node.gpu.reserve": grown, "parallel.layers": split}
        again = replaced(document(chosen), kept)
        assert plan(again).memory.fits is fits


def test_llama_3_may_lose_16_7_minutes_per_interruption_where_90_percent_are_kept():
    # 466 interruptions in 54 days (Grattafiori et al. 2024, arXiv:2407.21783, section 3.3.4).
    scenario = twin.load("llama-3-405b-16384xh100")
    found = hand_made(scenario, Goal(days=100.0), (2048, 90.0, 1.0))
    (flip,) = flips_of(found, "loss per interruption")
    assert flip.value == pytest.approx(0.1 * 54 * 86400 / 466, rel=1e-6)
    assert flip.wins is None
    now = lever(found, "loss per interruption").now
    assert 10 * 60 < now < 20 * 60


def test_without_a_section_losses_are_those_of_the_catalog_and_unknown_now(fastest):
    found = lever(contest(fastest), "loss per interruption")
    assert found.now is None
    assert "h800-as-llama3" in found.note
    assert "section `goodput`" in found.note


def chosen_at(contest, contenders, overrides):
    """Who wins by answers that nobody kept."""
    base = document(contest.scenario)
    worth = {}
    for place, one in enumerate(contenders):
        answer = StepAnswers("events").of(replaced(base, {**one.overrides, **overrides}))
        if answer.headroom < 0:
            continue
        days = answer.days
        cost = days * 24 * one.gpus * contest.scenario.cost.gpu_hour
        kpis = {"days": days, "cost_usd": cost, "gpu_hours": 24 * days * one.gpus}
        if contest.goal.met(kpis):
            worth[place] = contest.goal.worth(kpis)
    best = min(worth, key=worth.get, default=None)
    if 0 in worth and worth[0][0] <= (1 + TIE) * worth[best][0]:
        return 0
    return best


@pytest.mark.parametrize(("goal", "name"), [("deadline", "NIC rate"), ("fastest", "NVLink rate")])
def test_a_direct_evaluation_beside_a_threshold_shows_the_flip(fastest, goal, name):
    asked = Goal(days=1.1 * leader(fastest, 2)["days"]) if goal == "deadline" else Goal()
    whole = asked_again(fastest, asked)
    found = replace(whole, contenders=whole.near[:4])
    moved, flips = lever(found, name), flips_of(found, name)
    assert flips
    for flip in flips:
        good, bad = (1.02, 0.98) if flip.side == "below" else (0.98, 1.02)
        assert chosen_at(found, found.near, moved.overrides(good * flip.value)) == 0
        there = chosen_at(found, found.near, moved.overrides(bad * flip.value))
        assert there != 0
        assert (None if there is None else found.near[there]) == flip.wins
        assert flip.beyond == pytest.approx(flip.value, rel=0.0101)


def test_a_slower_nic_makes_a_deadline_fail_at_one_value_only(fastest):
    kpis = leader(fastest, 2)
    whole = asked_again(fastest, Goal(days=1.05 * kpis["days"]))
    found = replace(whole, contenders=whole.contenders[:1])
    flips = flips_of(found, "NIC rate")
    assert [(one.side, one.reason, one.wins) for one in flips] == [("below", "goal", None)]


def test_at_what_it_is_now_every_lever_gives_the_answer_that_is_known(fastest):
    found = contest(fastest)
    for one in levers(found):
        if isinstance(one, Lever) and one.overrides and one.now:
            base = document(found.scenario)
            answer = StepAnswers("events").of(
                replaced(base, {**found.pick.overrides, **one.overrides(one.now)})
            )
            assert answer.days == pytest.approx(found.pick.now.kpis["days"])


def test_every_flip_of_a_lever_that_is_not_monotone_is_found(small):
    def closed(one, value):
        return Standing(
            {**one.now.kpis, "days": 10.0 + abs(value - 5.0) * (value > 5 or value < 2)}
        )

    found = hand_made(small, Goal(days=12.5), (1, 10.0, 5.0), (2, 9.0, 50.0))
    ((threshold,), points) = find_flips(found, [straight(closed=closed)])
    assert [one.side for one in threshold.flips] == ["below", "above"]
    assert [one.value for one in threshold.flips] == pytest.approx([2.0, 7.5])
    assert "not monotone" in threshold.odd
    assert points == 0


@pytest.mark.slow
def test_who_wins_at_a_flip_is_the_best_of_all_that_were_asked(fastest, monkeypatch):
    monkeypatch.setattr("twin.explore.search.thresholds.LEADERS", 0)
    whole = contest(fastest)
    (flip, *_) = flips_of(whole, "NVLink rate")
    moved = lever(whole, "NVLink rate")
    assert chosen_at(whole, whole.near, moved.overrides(flip.value)) == 0
    assert flip.wins is whole.near[chosen_at(whole, whole.near, moved.overrides(flip.beyond))]


def test_a_flip_at_the_end_of_a_range_is_found_and_beyond_it_is_not(small):
    def closed(one, value):
        return Standing({**one.now.kpis, "days": 10.0 + value})

    for most, flips in ((19.9, 1), (20.1, 0)):
        found = hand_made(small, Goal(days=most), (1, 10.0, 5.0))
        ((threshold,), _) = find_flips(found, [straight(closed=closed)])
        assert len(threshold.flips) == flips
        assert bool(threshold.none) is not bool(flips)


def test_an_answer_that_failed_is_no_flip(fastest, monkeypatch):
    monkeypatch.setattr(
        "twin.explore.search.thresholds.answer_points",
        lambda points, **_: enumerate(failed("the worker died") for _ in points),
    )
    whole = contest(fastest)
    ((threshold,), _) = find_flips(whole, [lever(whole, "NIC rate")])
    assert threshold.flips == ()
    assert threshold.none == "not answered"
    found = BreakEven(whole, (threshold,), (), (), 0)
    assert "4 values were not answered (the worker died)" in "\n".join(threshold_words(found))


def test_what_moves_nothing_is_said_to_have_no_influence(small):
    found = hand_made(small, Goal(days=12.0), (1, 10.0, 5.0))
    ((threshold,), _) = find_flips(found, [straight()])
    assert "no influence" in threshold.none
    longer = straight(closed=lambda one, x: Standing({**one.now.kpis, "days": 10.0 + 1e-3 * x}))
    ((threshold,), _) = find_flips(found, [longer])
    assert "decision holds" in threshold.none


def test_a_layout_that_is_less_than_a_tie_better_does_not_take_the_decision(small):
    for factor, chosen in ((1 - 0.5 * TIE, 0), (1 - 2 * TIE, 1)):
        found = hand_made(small, Goal(), (1, 10.0, 5.0), (2, 10.0 * factor, 9.0))
        assert found.decide([one.now for one in found.contenders]) == chosen


def test_where_nothing_meets_the_goal_thresholds_say_what_would(fastest):
    kpis = leader(fastest, 1)
    budget = 0.5 * kpis["cost_usd"]
    found = asked_again(fastest, Goal(usd=budget))
    assert found.pick is None
    (flip, *_) = flips_of(found, "GPU-hour price")
    assert (flip.side, flip.reason, flip.wins.nodes) == ("below", "meets the goal", 1)
    assert flip.beyond == pytest.approx(budget / kpis["gpu_hours"], rel=1e-9)
    assert tornado(found) == ()


def test_who_is_asked_is_near_but_never_without_one_who_is_safe(small):
    near = [(1, 10.0 + 0.01 * n, 5.0) for n in range(20)]
    found = hand_made(small, Goal(days=11.0), *near, (2, 10.5, 6.0), (4, 5.0, 50.0), (8, 50.0, 1.0))
    assert len(found.near) == MOST
    assert found.near[0] is found.pick
    assert {one.nodes for one in found.near} == {1, 2, 4}


def test_a_memory_policy_tells_layouts_of_one_name_apart(small):
    made = hand_made(small, Goal(), (1, 10.0, 5.0), (1, 11.0, 5.0))
    pick, other = made.contenders
    again = {**pick.overrides, "memory.recompute": ["full"]}
    full = replace(other, words=pick.words, overrides=again)
    assert made.name(full) == "layout 0 with memory.recompute=[full]"
    turned = replace(made, contenders=(full, pick))
    own = ", ".join(small.memory.recompute)
    assert turned.name(pick) == f"layout 0 with memory.recompute=[{own}]"
    assert made.name(pick) == "layout 0 1f1b"
    assert made.name(replace(other, words="layout 1 zb_h1", schedule="zb_h1")) == "layout 1 zb_h1"
    assert made.name(other) == "layout 1"


def test_expert_levers_are_absent_where_there_are_no_experts():
    scenario = twin.load("gpt-175b-64xa100-full")
    found = hand_made(scenario, Goal(), (8, 10.0, 5.0))
    assert isinstance(lever(found, "expert imbalance"), NoLever)
    assert isinstance(lever(found, "GPU-hour price"), NoLever)
    assert not isinstance(lever(found, "NIC rate"), NoLever)


def test_imbalance_is_said_as_the_load_of_the_fullest_rank_too(fastest):
    found = lever(contest(fastest), "expert imbalance")
    assert found.now == 0.0
    assert found.load(0.0) == pytest.approx(1.0)
    assert 1.0 < found.load(0.2) < found.load(1.0)


def test_ends_of_the_tornado_flip_where_the_deadline_is_passed_or_the_memory_is_full(fastest):
    whole = asked_again(fastest, Goal(days=1.02 * leader(fastest, 2)["days"]))
    full = replace(whole.pick, headroom_bytes=1e8)
    whole = replace(whole, contenders=(full, *whole.contenders[1:]))
    bars = tornado(whole)
    usual, room = whole.pick.now.kpis["days"], whole.pick.headroom_bytes
    ends = [
        (flips, usual + days > whole.goal.days or room + more < 0)
        for bar in bars
        for flips, days, more in zip(bar.flips, bar.days, bar.found.headroom_bytes, strict=True)
    ]
    assert all(flips == wanted for flips, wanted in ends)
    assert {flips for flips, _ in ends} == {True, False}
    assert any(bar.flips[1] for bar in bars if "reserve" in bar.found.path)
    paid = whole.pick.now.kpis["cost_usd"]
    assert all(bar.cost_usd[0] / paid == pytest.approx(bar.days[0] / usual) for bar in bars)


def test_words_and_json_say_each_flip_in_the_unit_of_its_lever(fastest):
    whole = asked_again(fastest, Goal(usd=1.3 * leader(fastest, 2)["cost_usd"]))
    free = [one for one in levers(whole) if isinstance(one, Lever) and one.closed]
    thresholds, points = find_flips(whole, free)
    found = BreakEven(whole, thresholds, (NoLever("none", "", "of a reason"),), (), points)
    said = json.loads(json.dumps(found.to_json()))
    by_name = {one["lever"]: one for one in said["thresholds"]}
    margin = by_name["memory margin"]
    assert margin["unit"] == "GB"
    assert margin["flips"][0]["value"] == pytest.approx(whole.pick.headroom_bytes / 1e9)
    assert by_name["none"] == {
        "lever": "none",
        "path": "",
        "unit": "",
        "now": None,
        "flips": [],
        "none": "of a reason",
    }
    words = "\n".join(threshold_words(found))
    assert "- GPU-hour price at most 2.60 USD (2.00 now): above, " in words
    assert "- memory margin " in words
    assert threshold_tables(found) == ()


def test_sizes_of_a_fixed_layout_are_a_contest_too(small):
    found = scale(small, Sizes((2, 4), Goal()), pool=HERE, folder=None)
    made = fixed_contest(found, pool=HERE)
    assert [one.nodes for one in made.contenders] == [4, 2]
    assert made.pick.overrides == {"cluster.nodes": 4}
    for one in made.contenders:
        answer = StepAnswers("events").of(replaced(document(small), one.overrides))
        assert answer.days == pytest.approx(one.now.kpis["days"])


def test_the_verb_says_what_must_be_true(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = "schema: 1\nextends: kimi-k2-256xh800\nname: small\ncluster: {nodes: 2}\n"
    text += "model: {layers: 4, hidden: 1024, vocab: 32768, attention: {heads: 8}, "
    text += "moe: {experts: 16, first_dense_layers: 1}}\n"
    text += "parallel: {pipeline: 1, virtual: 1, expert: 8, schedule: 1f1b}\n"
    text += "train: {global_batch: 64seq, tokens: 10G}\n"
    (tmp_path / "small.yaml").write_text(text)
    words = ["recommend", "small.yaml", "--fixed-layout", "--jobs", "1", "--thresholds", "--json"]
    assert main([*words, "-q"]) == 0
    said = json.loads(capsys.readouterr().out)
    by_name = {one["lever"]: one for one in said["thresholds"]}
    assert by_name["NIC rate"]["now"] == 400.0
    assert "no influence" in by_name["all-to-all contention"]["none"]
    assert said["tornado"]
    assert said["thresholds_by"]["points"] > 0
