"""From a question to a scenario, sizes and a page, without YAML."""

import re
from dataclasses import replace

import pytest

from tests.cli.conftest import SMALL
from twin.answers.executors import PoolChoice
from twin.engine import lower, plan, simulate
from twin.errors import UsageError
from twin.explore.search.decision import conditions, decision
from twin.explore.search.decision_page import page
from twin.explore.search.new_plan import (
    PlanQuestion,
    first_answer,
    node_of,
    plan_text,
    published_mfu,
    run_flop,
    scenario_of,
    sizes_of,
    understood,
    usual_batch,
)
from twin.explore.search.recommend import recommend
from twin.explore.search.recommendation import SearchRequest
from twin.explore.search.space import Goal, layout_of, narrowed, space
from twin.loading import load, scenario_hash
from twin.reports import report
from twin.reports.table import show

ASKED = PlanQuestion("qwen3-235b-a22b", "h800", "8T", target="60d", price="2USD")
IN_60_DAYS = Goal(days=60.0)


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
    nodes = sizes_of(ASKED, drafted, IN_60_DAYS)
    known = published_mfu(drafted)
    assert known is not None
    assert nodes == tuple(sorted(nodes))
    fewest, _, most = known.gpu_days(drafted)
    assert fewest / (8 * nodes[0]) <= 60
    assert most / (8 * nodes[-1]) <= 60, "the largest is enough for a slow run"
    assert sizes_of(replace(ASKED, gpus="256,512"), drafted, IN_60_DAYS) == (32, 64)


def test_the_first_answer_needs_no_simulation_and_begins_with_the_answer():
    gpus, cost, *_ = first_answer(understood(ASKED))
    assert re.fullmatch(r"About [\d,]+ GPUs \([\d,]+ to [\d,]+\) do it in 60 days.", gpus)
    assert re.fullmatch(r"The run costs about .*USD \(.* to .*\) at 2.00 USD per GPU-hour.", cost)
    days, *_ = first_answer(understood(replace(ASKED, gpus="512")))
    assert re.fullmatch(r"512 GPUs take about .* d \(.* to .*\).", days)


WRONG = {
    "tokens": ("8", "write `8T`"),
    "price": ("2", "write `2USD`"),
    "batch": ("4", "write `4seq`"),
    "target": ("60", "write `60d`"),
    "gpu": ("h801", "did you mean `H800`?"),
    "gpus": ("100", "nearest 96 or 104"),
    "model": ("qwen3-999", "did you mean `qwen3-4b`?"),
    "sequence": ("{x: 1}\nfoo", ""),
    "patience": ("0min", "ask for more"),
}


@pytest.mark.parametrize("field", WRONG)
def test_a_problem_names_the_field_that_is_wrong_and_no_file(field):
    text, fix = WRONG[field]
    with pytest.raises(UsageError) as raised:
        understood(replace(ASKED, **{field: text}))
    assert {one.path for one in raised.value.problems} == {field}
    assert fix in raised.value.problems[0].hint
    assert "/" not in str(raised.value)


def test_all_fields_that_are_wrong_are_told_together():
    with pytest.raises(UsageError) as raised:
        understood(replace(ASKED, tokens="8", target="60", price="", budget="2MUSD"))
    assert {one.path for one in raised.value.problems} == {"tokens", "target", "price"}


def test_a_gpu_that_no_node_has_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match="H800"):
        node_of("h801")


@pytest.fixture(scope="module")
def found(small):
    one = {"virtual": [2], "micro_batch": [1], "zero": [1], "context": [1]}
    axes = {f"parallel.{name}": value for name, value in one.items()}
    axes |= {"parallel.pipeline": [2], "parallel.expert": [4], "parallel.tensor": [1]}
    whole = narrowed(space(small, (1, 2)), axes)
    return recommend(SearchRequest(whole, Goal(days=1e4), PoolChoice(jobs=1), most=2))


def test_the_page_holds_verdict_plans_what_must_be_true_and_what_was_not_examined(found):
    made = decision(found, "<b>which?", "twin new ...", "2026-11-27")
    text = page(made)
    assert "&lt;b&gt;which?" in text
    assert "<script" not in text
    assert "Recommended for the cheapest within 10000 days" in text
    assert len(re.findall("<circle", text)) == len(made.plans) == 1 + len(found.alternatives) >= 2
    assert "layouts examined" in text
    assert "The MFU is at least" in text
    assert "80 % interval" in text


def test_what_must_be_true_is_arithmetic_on_the_figures(found):
    kpis = found.pick.answer.kpis
    late = replace(found, asked=replace(found.asked, goal=Goal(days=2 * kpis["days"])))
    mfu, failures, *_ = conditions(late)
    assert show(kpis["mfu"] / 2, "%") in mfu, "twice the time needs half the MFU"
    assert show(kpis["days"], "d") in failures


def test_a_deadline_inside_the_interval_is_told_with_a_size_that_is_safe(found):
    low, high = found.pick.answer.intervals["days"]
    tight = replace(found, asked=replace(found.asked, goal=Goal(days=(low + 3 * high) / 4)))
    said = " ".join(conditions(tight))
    assert "misses the deadline" in said
    assert ("GPUs meets it" in said) == any(
        one.answer.intervals["days"][1] <= tight.asked.goal.days for one in found.alternatives
    )


def test_a_plan_has_the_interval_that_its_own_report_has(tmp_path):
    """Nobody named the software, so that its interval holds that doubt and the tuned step."""
    file = tmp_path / "unnamed.yaml"
    file.write_text(SMALL.replace("software: null\n", ""))
    unnamed = load(file)
    same = "pipeline", "tensor", "virtual", "micro_batch", "zero"
    axes = {f"parallel.{one}": [getattr(unnamed.parallel, one)] for one in same}
    whole = narrowed(space(unnamed, (unnamed.cluster.nodes,)), axes)
    found = recommend(SearchRequest(whole, Goal(days=1e4), PoolChoice(jobs=1), most=1))
    assert found.pick is not None
    planned = plan(found.pick.layout.applied(unnamed))
    assert planned.scenario.software_assumed
    own = report(planned, simulate(lower(planned))).intervals["days"]
    assert found.pick.answer.intervals["days"] == pytest.approx(own)


def test_the_file_of_a_plan_is_short_and_loads_to_the_plan(drafted, tmp_path):
    layout = replace(layout_of(drafted), nodes=16, pipeline=2, expert=8)
    file = tmp_path / "plan.yaml"
    file.write_text(plan_text(understood(ASKED), layout.overrides(drafted)), encoding="utf-8")
    assert len(file.read_text().splitlines()) < 20
    assert scenario_hash(load(file)) == scenario_hash(layout.applied(drafted))
