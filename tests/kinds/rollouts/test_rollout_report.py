"""Rollouts of a scenario: what they come to, what is refused, and how long playing them takes."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tests.inference.engines import made
from twin.answers import ask
from twin.errors import ScenarioError
from twin.inference.seconds import decode_pass, prefill_pass
from twin.kinds.rollouts.plan import draw, numbers, server_of
from twin.kinds.rollouts.report import RolloutReport, caveats, settled
from twin.loading import load
from twin.spec.rollout import Constant, Histogram, LogNormal, Pareto, RolloutSpec

NAME = "kimi-k2-rollout-256xh800"
FEW = ("rl.rollout.requests=320", "rl.rollout.nodes=4", "rl.rollout.iterations=2")


def answer(*sets: str) -> RolloutReport:
    return ask(load(NAME, [*FEW, *sets])).report


def spec(*sets: str) -> RolloutSpec:
    scenario = load(NAME, [*FEW, *sets])
    assert scenario.rl is not None
    return scenario.rl.rollout


def test_distributions_have_their_means_and_tails() -> None:
    dice = np.random.default_rng(1)
    count = 200_000
    log_normal = numbers(LogNormal(kind="log_normal", mean=1000.0, sigma=0.8), count, dice)
    assert log_normal.mean() == pytest.approx(1000, rel=0.02)
    assert np.median(log_normal) == pytest.approx(1000 * np.exp(-0.32), rel=0.02)
    pareto = numbers(Pareto(kind="pareto", least=100.0, shape=2.0), count, dice)
    assert pareto.mean() == pytest.approx(200, rel=0.05)
    assert (pareto > 1000).mean() == pytest.approx(0.01, rel=0.1)
    bins = Histogram(kind="histogram", edges=(1000.0, 2000.0, 4000.0), counts=(3, 1))
    binned = numbers(bins, count, dice)
    assert (binned < 2000).mean() == pytest.approx(0.75, abs=0.01)
    assert binned.mean() == pytest.approx(0.75 * 1500 + 0.25 * 3000, rel=0.01)
    assert set(numbers(Constant(kind="constant", each=7.0), 5, dice)) == {7}


def test_same_seed_same_requests() -> None:
    assert draw(spec(), 100, 3) == draw(spec(), 100, 3)
    assert draw(spec(), 100, 3) != draw(spec(), 100, 4)
    assert draw(spec(), 100, 3) != draw(spec("rl.rollout.seed=1"), 100, 3)


def test_a_request_is_spread_over_its_turns() -> None:
    turns = ("rl.rollout.turns={kind: constant, each: 7}", "rl.rollout.read=50")
    around = "rl.rollout.environment={latency: 2s, sigma: 1.0, longest: 5s}"
    for one in draw(spec(*turns, around), 200, 0):
        assert len(one.written) == 7
        assert max(one.written) - min(one.written) <= 1
        assert one.read == (50,) * 6
        assert len(one.waits_ns) == 6
        assert max(one.waits_ns) <= 5e9


def test_partial_rollouts_shorten_the_tail_and_write_more() -> None:
    got = answer("rl.rollout.iterations=4")
    assert got.gain is not None
    assert got.patient is not None
    assert got.gain > 1.1
    assert settled(got.trace)[-1].tail < got.patient.iterations[-1].tail
    patient = got.patient.iterations[0]
    last = [load.running for load in patient.loads if load.ns > 0.8 * patient.end_ns]
    assert max(last) < 0.5 * max(load.running for load in patient.loads)


def test_equal_requests_take_what_the_mean_step_of_the_inference_model_says() -> None:
    """320 requests of 1,000 + 2,000 tokens on 32 GPUs: ten in each group, from begin to end."""
    alike = (
        "rl.rollout.prompt={kind: constant, each: 1000}",
        "rl.rollout.written={kind: constant, each: 2000}",
        "rl.rollout.partial=null",
        "rl.rollout.iterations=1",
    )
    got = answer(*alike)
    server = made("kimi-k2", redundant_experts=32, expert_load=1.1, step_overhead="1ms")
    written = 2000 * decode_pass(server, 10, 2000.0).seconds
    prompts = prefill_pass(server, 10, 1000).seconds
    assert got.seconds == pytest.approx(written + prompts, rel=0.01)
    assert settled(got.trace)[0].tail == 0.0


def test_the_document_adds_up() -> None:
    said = answer().to_json()
    assert sum(said["spent"].values()) == pytest.approx(1)
    assert said["idle_fraction"] == said["spent"]["idle"]
    last = said["iterations"][-1]
    assert last["done"] + last["carried"] == 320
    assert last["timeline"]["running"][0] > 0
    assert len(last["timeline"]["seconds"]) <= 200


def test_an_engine_says_what_of_it_nobody_measured() -> None:
    scenario = load(NAME, FEW)
    assert scenario.rl is not None
    server, _ = server_of(scenario, scenario.rl.rollout)
    (assumed,) = caveats(scenario, server)
    assert assumed.code == "assumed-calibration"
    assert "rl.rollout.engine.step_overhead" in assumed.message
    elsewhere = load(NAME, [*FEW, "rl.rollout.engine.calibration=h20-hopper-bf16"])
    assert elsewhere.rl is not None
    server, _ = server_of(elsewhere, elsewhere.rl.rollout)
    codes = [one.code for one in caveats(elsewhere, server)]
    assert codes[0] == "calibration-of-another-gpu"
    assert "calibration-of-another-gpu" in [one.code for one in ask(elsewhere).report.uncalibrated]


@pytest.mark.parametrize(
    ("sets", "code", "path"),
    [
        (("rl.rollout.nodes=2",), "TW183", "rl.rollout.nodes"),
        (("rl.rollout.engine.gpus=40",), "TW180", "rl.rollout.engine.gpus"),
        (("rl.rollout.written={kind: constant, each: 90000000}",), "TW181", "rl.rollout.engine"),
    ],
)
def test_rollouts_that_cannot_be_say_why(sets: tuple[str, ...], code: str, path: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        answer(*sets)
    first = caught.value.problems[0]
    assert (first.code, first.path) == (code, path)


@pytest.mark.parametrize(
    "wrong",
    [
        "rl.rollout.partial={finished: null}",
        "rl.rollout.prompt={kind: histogram, edges: [1, 2], counts: [0]}",
        "rl.rollout.prompt={kind: histogram, edges: [2, 1], counts: [1]}",
        "rl.rollout.requests=1000000,",
    ],
)
def test_what_no_rollout_can_be_is_a_mistake(wrong: str) -> None:
    sets = [wrong.rstrip(",")]
    if wrong.endswith(","):
        sets.append("rl.rollout.iterations=1000")
    with pytest.raises(ScenarioError, match="TW184"):
        load(NAME, sets)


@pytest.mark.benchmark
def test_6400_requests_of_39k_tokens_on_256_gpus_play_in_20_seconds() -> None:
    begin = time.process_time()
    got = ask(load(NAME, ["rl.rollout.partial=null", "rl.rollout.iterations=1"])).report
    took = time.process_time() - begin
    print(f"{took:.1f} s of CPU for {got.trace.written:,} tokens in {got.trace.events:,} events")
    assert took < 20
