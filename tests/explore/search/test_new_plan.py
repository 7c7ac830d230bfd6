"""From a question to a scenario, sizes and a page, without YAML."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from twin.answers.executors import PoolChoice
from twin.errors import UsageError
from twin.explore.search.decision_page import Decision, page
from twin.explore.search.new_plan import (
    PlanQuestion,
    first_answer,
    node_of,
    published_mfu,
    run_flop,
    scenario_of,
    sizes_of,
    usual_batch,
)
from twin.explore.search.recommend import recommend
from twin.explore.search.recommendation import SearchRequest
from twin.explore.search.space import Goal, narrowed, space

ASKED = PlanQuestion("qwen3-235b-a22b", "h800", "8T", days=60.0, price="2USD")


@pytest.fixture(scope="module")
def drafted():
    return scenario_of(ASKED)


def test_a_question_becomes_a_scenario_on_the_usual_node(drafted):
    assert drafted.cluster.node.name == "h800-8gpu"
    assert drafted.cost.gpu_hour == 2.0
    assert drafted.train.sequence == 4096
    assert drafted.train.global_batch_sequences == usual_batch(drafted)


def test_the_usual_batch_is_deepseeks_rule_in_round_numbers(drafted):
    tokens = 0.2920 * run_flop(drafted) ** 0.3271  # 1.19e24 FLOP: 21.9M tokens, 5,340 sequences
    assert usual_batch(drafted) == 6144
    assert tokens / 4096 == pytest.approx(5340, rel=0.01)


def test_sizes_are_those_that_published_runs_would_take(drafted):
    nodes = sizes_of(ASKED, drafted)
    known = published_mfu(drafted)
    assert known is not None
    assert nodes == tuple(sorted(nodes))
    fast, _, slow = (known.days(drafted, 8 * one) for one in (nodes[0], nodes[0], nodes[-1]))
    assert fast[0] <= 60
    assert slow[2] <= 60, "the largest is enough for a slow run"
    assert sizes_of(replace(ASKED, gpus="256,512"), drafted) == (32, 64)


def test_the_first_answer_needs_no_simulation(drafted):
    said = first_answer(drafted, (64, 128))
    assert any("families of published runs" in one for one in said)
    assert re.search(r"On 512 GPUs that is \d+ days \(\d+ to \d+\)", " ".join(said))


def test_a_gpu_that_no_node_has_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match="H800"):
        node_of("h801")


def test_the_page_holds_verdict_plans_and_what_was_not_examined(small):
    axes = {"parallel.pipeline": [2], "parallel.expert": [4], "parallel.tensor": [1]}
    whole = narrowed(space(small, (1, 2)), axes)
    found = recommend(SearchRequest(whole, Goal(days=1e4), PoolChoice(jobs=1), most=2))
    text = page(Decision("<b>plan</b>", "which?", found, "twin new ...", "2026-11-27"))
    assert "&lt;b&gt;plan" in text
    assert "<script" not in text
    assert "Recommended for the cheapest within 10000 days" in text
    assert len(re.findall("<circle", text)) == 1 + len(found.alternatives) >= 2
    assert "layouts examined" in text
    assert "80 % interval" in text
