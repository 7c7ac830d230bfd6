"""What the reference is asked to run, and what of a scenario it does not do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reference.rl.spec import RlSpec, load_rl
from twin.errors import ScenarioError
from twin.evidence.loop.layouts import ReferenceLayout, find
from twin.evidence.loop.rl_loop import predict_then_run
from twin.evidence.loop.rl_trainer import TEMPLATE, configuration, problems, samples
from twin.evidence.loop.run import RunOptions
from twin.kinds.iteration.plan import plan

LOOPS = find([], "rl")


def written(layout: ReferenceLayout, folder: Path, iterations: int = 2) -> RlSpec:
    file = folder / "trainer.json"
    file.write_text(json.dumps(configuration(plan(layout.scenario), folder, iterations)))
    return load_rl(file)


def test_six_loops_ship() -> None:
    assert len(LOOPS) >= 6
    assert {one.mode for one in LOOPS} == {"rl"}


@pytest.mark.parametrize("layout", LOOPS, ids=lambda one: one.name)
def test_the_reference_reads_what_the_scenario_says(
    layout: ReferenceLayout, tmp_path: Path
) -> None:
    made, spec = plan(layout.scenario), written(layout, tmp_path)
    assert not problems(made)
    assert spec.model == layout.scenario.model
    assert spec.prompts.count * spec.rollout.responses == made.rollouts.requests
    assert spec.train.updates == made.spec.optimizer_steps
    assert spec.engine.step_tokens == made.server.spec.chunk
    assert max(spec.rollout.caps.values()) <= spec.rollout.cap <= spec.train.sequence


def test_tasks_have_lengths_in_the_middle_of_equal_shares() -> None:
    """Of a half of 16, a quarter of 64 and a quarter of 160 tokens."""
    (mixed,) = find(["rl-mixed"])
    found = samples(plan(mixed.scenario).rollouts)
    assert [one.tokens for one in found] == [16] * 8 + [64] * 4 + [160] * 4
    assert {one.prompt for one in found} == {38}


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ("rl.iteration.offload=true", "rl.iteration.offload"),
        ("rl.iteration.batching=packed", "rl.iteration.batching"),
        ("rl.iteration.scores=2", "rl.iteration.scores"),
        ("rl.rollout.requests=33", "rl.rollout.requests"),
        (f"rl.rollout.prompt={{kind: constant, each: {TEMPLATE}}}", "rl.rollout.prompt"),
        ("rl.rollout.partial={finished: 0.5}", "rl.rollout"),
        ("train.sequence=48tok", "train.sequence"),
    ],
)
def test_what_the_reference_does_not_do_is_refused_with_its_field(
    changed: str, path: str, tmp_path: Path
) -> None:
    layouts = find(["rl-updates"], sets=[changed])
    with pytest.raises(ScenarioError, match="TW371") as refused:
        next(predict_then_run(layouts, RunOptions(tmp_path, shaped=False)))
    assert [one.path for one in refused.value.problems] == [path]
