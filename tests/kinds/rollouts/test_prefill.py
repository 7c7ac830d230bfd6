"""Engines that only prefill: against closed forms, and against engines that do both."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.kinds.rollouts.rollouts import STEP, one_turn, place, played, seconds, table
from twin.answers import ask
from twin.errors import ScenarioError
from twin.inference.curve import cache_moves, prompt_seconds
from twin.inference.engine import Engine
from twin.kinds.rollouts.plan import Sample, plan
from twin.kinds.rollouts.prefill import Prefills
from twin.loading import load

PASS, START, EACH = 0.2, 0.01, 0.001
TEXT = """\
schema: 1
name: apart
extends: {base}
model: deepseek-v3
cluster: {{node: h100-8gpu, nodes: 14, fabric: rail-fat-tree-400g}}
parallel: {{expert: 8, pipeline: 2, schedule: 1f1b}}
rl:
  rollout:
    engine: {{extends: deepep-32gpu, gpus: 72}}
    prefill: {{engine: deepep-32gpu, nodes: 4}}
    requests: 300
    prompt: {{kind: constant, each: 2000}}
    written: {{kind: constant, each: 50}}
    iterations: 1
"""


def pool(groups: int = 1, chunk: int = 10, engines: int = 1) -> Prefills:
    """Engines whose groups take one prompt of 10 tokens a pass, or as many as `chunk` has."""
    server: Any = SimpleNamespace(groups=groups, spec=SimpleNamespace(chunk=chunk, gpus=8))
    times = {(count, 10, 0): PASS for count in range(1, 9)}
    return Prefills(engines, server, START, EACH, times)


def test_one_request_is_prefilled_moved_and_written() -> None:
    got = played([one_turn(100)], place(prefills=pool()))
    assert seconds(got) == pytest.approx(PASS + START + 10 * EACH + 100 * STEP)
    (own,) = got.iterations
    assert own.first_ns == (round(1e9 * PASS),)
    assert own.prefilled == 10
    assert own.next_ns[0] * 100 == pytest.approx(own.length_ns - own.first_ns[0])


def test_caches_leave_a_group_one_after_the_other_and_groups_at_once() -> None:
    """Four prompts in one pass: from one group, or from four to four."""
    move = START + 10 * EACH
    one = played([one_turn(1)] * 4, place(prefills=pool(chunk=40)))
    assert one.iterations[0].moving_ns / 1e9 == pytest.approx((1 + 2 + 3 + 4) * move)
    four = played([one_turn(1)] * 4, place(prefills=pool(groups=4)), steps=table(groups=4))
    assert four.iterations[0].moving_ns / 1e9 == pytest.approx(4 * move)
    assert four.iterations[0].pool_ns == round(1e9 * PASS)


def test_an_engine_writes_no_more_than_its_batch_at_a_time() -> None:
    got = played([one_turn(100)] * 8, place(prefills=pool(groups=8), most=2))
    assert seconds(got) == pytest.approx(PASS + 4 * 100 * STEP, rel=0.05)


def test_without_time_and_way_both_are_one_engine() -> None:
    """What is prefilled nowhere is written as on an engine whose prompts take no time."""
    samples = [one_turn(40), Sample(10, (30, 20), (5,), (10**9,)), one_turn(90)]
    free: Any = SimpleNamespace(groups=1, spec=SimpleNamespace(chunk=10**6, gpus=8))
    known = {(n, new, c): 0.0 for n in (1, 2, 3) for new in (5, 10) for c in (0, 40)}
    apart = played(samples, place(prefills=Prefills(3, free, 0.0, 0.0, known)))
    whole = played(samples, place())
    assert apart.written == whole.written
    assert seconds(apart) == pytest.approx(seconds(whole), abs=2 * STEP)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_prompts_wait_as_long_as_in_a_queue_of_fixed_service(load: float) -> None:
    """Pollaczek and Khinchine: load / (2 (1 - load)) of a service."""
    where = place(prefills=pool(), arrivals=load / PASS, sequences=10**6, seed=3)
    (got,) = played([one_turn(1)] * 20_000, where).iterations
    waited = sum(got.first_ns) / len(got.first_ns) / 1e9 - PASS
    assert waited == pytest.approx(PASS * load / (2 * (1 - load)), rel=0.08)


def scenario(folder: Path, *sets: str):
    base = Path(__file__).parents[3] / "scenarios" / "kimi-k2-256xh800.yaml"
    file = folder / "apart.yaml"
    file.write_text(TEXT.format(base=base))
    return load(file, sets)


def test_a_plan_has_both_pools_and_its_report_times_of_tokens(tmp_path: Path) -> None:
    own = scenario(tmp_path)
    made = plan(own)
    assert made.place.prefills is not None
    assert (made.gpus, made.place.prefills.gpus, made.place.engines) == (112, 32, 1)
    report = ask(own).report.to_json()
    said = report["serving"]
    assert said["prefill_gpus"] + said["decode_gpus"] == 112
    least = prompt_seconds(made.place.prefills.server, 1, 2000)
    assert least < report["kpis"]["first_token_seconds"] < 100 * least
    assert 0 < report["kpis"]["next_token_seconds"] < 1


def test_a_cache_goes_over_the_nics_of_the_smaller_group(tmp_path: Path) -> None:
    """Of latents each rank sends a part of what all have: 61 layers of 576 numbers in bf16."""
    made = plan(scenario(tmp_path))
    server = made.place.prefills and made.place.prefills.server
    assert isinstance(server, Engine)
    more = cache_moves(server, 101_000, made.server) - cache_moves(server, 1000, made.server)
    nic = server.cluster.node.nic
    rate = nic.bandwidth * nic.efficiency * server.cluster.fabric.efficiency
    assert more == pytest.approx(100_000 * 61 * 576 * 2 / rate)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("rl.rollout.prefill.nodes=3", "TW183"),
        ("rl.rollout.prefill.nodes=10", "TW183"),
        ("rl.rollout.prefill.engine.cache=fp8", "TW183"),
        ("rl.rollout.prefill.engine.gpus=7", "TW180"),
    ],
)
def test_pools_that_cannot_be_are_refused(tmp_path: Path, change: str, code: str) -> None:
    with pytest.raises(ScenarioError, match=code):
        plan(scenario(tmp_path, change))
