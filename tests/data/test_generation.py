"""Generation on a plan: the shipped scenario, laws over its numbers, and what is refused."""

from __future__ import annotations

from functools import cache

import pytest

from tests.inference.engines import made
from twin.data.generate import generation
from twin.data.types import Generation
from twin.errors import ScenarioError
from twin.inference.curve import Request, pace
from twin.inference.kv_capacity import room
from twin.inference.seconds import decode_pass, prefill_pass
from twin.loading import load
from twin.reports.cost import data_of, data_words

NAME = "kimi-k2-rephrasing-256xh800"
FEW = (
    "data.rephrasing={recipe: kimi-k2-knowledge, corpora: [{name: knowledge, tokens: 10B}]}",
    "data.trajectories=null",
)
AGENTS = ("data.rephrasing=null",)


@cache
def found(*sets: str) -> Generation:
    answer = generation(load(NAME, sets), ranges=False)
    assert answer is not None
    return answer


def days(*sets: str) -> float:
    return found(*sets).days


def test_a_run_that_generates_nothing_says_nothing() -> None:
    assert generation(load("kimi-k2-256xh800")) is None


def test_days_are_requests_by_seconds_over_groups() -> None:
    """By hand: every request takes its prefill and its part of the steps, on 256 groups."""
    one = found(*FEW)
    (job,) = one.jobs
    server_seconds = sum(
        part.asked.count * (part.pace.prefill_seconds + part.pace.decode_seconds)
        for part in job.parts
    )
    assert one.days == pytest.approx(server_seconds / 256 / 0.8 / 86400)
    assert one.gpu_hours == pytest.approx(one.days * 24 * 256)


def test_a_pace_is_that_of_the_passes() -> None:
    server = made("kimi-k2", batch=64)
    request = Request(500.0, 1500.0, 200.0)
    got = pace(server, request)
    assert got.batch == 64
    assert got.limit == "batch"
    assert got.decode_seconds == pytest.approx(200 * decode_pass(server, 64, 2100.0).seconds / 64)
    prompts = 16_384 // 500
    assert got.prefill_seconds == prefill_pass(server, prompts, 500, 1500).seconds / prompts


def test_sequences_that_wait_keep_their_memory() -> None:
    """Little's law: those that decode and those that wait have the room together."""
    server = made("kimi-k2")
    request = Request(500.0, 10_000.0, 200.0, waits=20.0)
    got, most = pace(server, request), room(server).slots(request.longest)
    assert got.batch + got.waiting <= most
    assert got.waiting == pytest.approx(20.0 / got.seconds)
    still = pace(server, Request(500.0, 10_000.0, 200.0))
    assert got.batch < still.batch == most
    assert got.seconds > still.seconds


def test_twice_the_nodes_take_half_the_days() -> None:
    assert days(*FEW, "data.nodes=16") == pytest.approx(2 * days(*FEW))


def test_what_makes_generation_faster_makes_it_faster() -> None:
    plain = days(*FEW)
    assert days(*FEW, "data.engine.utilisation=1.0") == pytest.approx(0.8 * plain)
    assert days(*FEW, "data.engine.batch=8") > plain
    assert days(*FEW, "data.engine.prefix_cache=false") > plain
    assert days(*FEW, "data.engine.precision=bf16", "data.engine.gpus=144") > plain
    recipe = "data.rephrasing.recipe.acceptance=0.45"
    assert days(*FEW, recipe) == pytest.approx(2 * plain)


def test_slow_environments_bound_what_sandboxes_are_there_for() -> None:
    slow = found(*AGENTS, "data.trajectories.recipe.latency=10min")
    assert slow.jobs[0].longest.bound[0] == "waiting"
    more = days(
        *AGENTS, "data.trajectories.recipe.latency=10min", "data.trajectories.sandboxes=100000"
    )
    assert more < slow.days
    assert days(*AGENTS) < days(*AGENTS, "data.trajectories.recipe.latency=60s") < slow.days


def test_environments_alone_decide_where_they_are_slow_and_few() -> None:
    """1,000 sandboxes of 10 minutes a turn: at most 1,000 turns in 10 minutes."""
    slow = found(
        *AGENTS,
        "data.trajectories.recipe.latency=10min",
        "data.trajectories.sandboxes=1000",
        "data.trajectories.recipe.check=0",
        "data.trajectories.recipe.simulated=0",
        "data.engine.utilisation=1.0",
    )
    (part,) = slow.jobs[0].parts
    assert part.seconds > part.asked.count * 600 / 1000
    assert part.seconds == pytest.approx(part.asked.count * 600 / 1000, rel=0.05)


def test_a_range_reaches_to_both_sides_and_names_what_moves_it() -> None:
    whole = generation(load(NAME, FEW))
    assert whole is not None
    (job,) = whole.jobs
    assert job.interval is not None
    assert job.interval[0] < job.days < job.interval[1]
    paths = {path for path, *_ in job.drivers}
    assert "data.rephrasing.recipe.acceptance" in paths
    move = next(one for one in job.drivers if one[0] == "data.rephrasing.recipe.acceptance")
    assert move[1:] == pytest.approx((0.9 / 0.6, 0.9 / 1.0))


def test_a_report_prices_it() -> None:
    scenario = load(NAME, [*FEW, "cost.gpu_hour=3.0USD"])
    answer = data_of(scenario)
    assert answer is not None
    assert answer.cost_usd == pytest.approx(3 * answer.generation.gpu_hours)
    said = answer.to_json()
    assert said["jobs"][0]["cost_usd"] == answer.cost_usd
    assert "tokens are generated in" in data_words(answer)


@pytest.mark.parametrize(
    ("sets", "code", "path"),
    [
        (("data.nodes=64",), "TW183", "data.nodes"),
        (("data.nodes=2",), "TW183", "data.nodes"),
        (("data.engine.gpus=40",), "TW180", "data.engine.gpus"),
        (("data.trajectories.recipe.prompt=2000000",), "TW181", "data.engine"),
    ],
)
def test_what_cannot_be_generated_says_why(sets: tuple[str, ...], code: str, path: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        generation(load(NAME, sets), ranges=False)
    first = caught.value.problems[0]
    assert (first.code, first.path) == (code, path)
    assert first.origin is not None


def test_data_without_an_engine_is_a_mistake() -> None:
    with pytest.raises(ScenarioError, match="TW182"):
        load(NAME, ["data.engine=null"])
