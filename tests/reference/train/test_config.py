"""A run's configuration: files, presets, catalog names, overrides, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from reference.config import load_run, presets
from reference.trainer.stages import stages_of
from tests.reference.train.mini import Load
from twin.errors import ScenarioError, UsageError
from twin.loading import load_part
from twin.spec.model import Yarn


def test_a_model_by_name_is_the_catalogs() -> None:
    run = load_run("nano")
    assert run.model == load_part("models", "kimi-k2-nano").spec


def test_an_override_refines_a_named_model() -> None:
    model = load_run("nano", ["model.moe.top_k=2"]).model
    named = load_part("models", "kimi-k2-nano").spec
    assert named.moe is not None
    assert model == named.model_copy(update={"moe": named.moe.model_copy(update={"top_k": 2})})


@pytest.mark.parametrize("name", presets())
def test_every_preset_loads_and_its_schedule_ends_with_its_steps(name: str) -> None:
    run = load_run(name)
    schedule = run.schedule
    total = schedule.warmup_steps + schedule.constant_steps + schedule.decay_steps
    assert total == run.train.steps


def test_the_resolved_configuration_loads_to_itself(load: Load, tmp_path: Path) -> None:
    run = load("model.moe.top_k=1")
    file = tmp_path / "run.json"
    file.write_text(run.model_dump_json(), encoding="utf-8")
    assert load_run(file) == run


def test_a_file_may_extend_another_beside_it(config: Path) -> None:
    child = config.with_name("child.yaml")
    child.write_text("extends: mini.yaml\ntrain: {steps: 3}\nmodel: {layers: 1}\n", "utf-8")
    run = load_run(child)
    assert (run.train.steps, run.train.sequence, run.model.layers) == (3, 16, 1)


def test_an_unknown_name_tells_the_presets() -> None:
    with pytest.raises(UsageError) as caught:
        load_run("nanno")
    assert str(caught.value) == (
        "TW230 there is no run configuration `nanno`\n  hint: did you mean `nano`?"
    )


def test_every_mistake_is_told_at_its_place(config: Path) -> None:
    text = config.read_text().replace("micro_batch: 2", "micro_bach: 2")
    config.write_text(text.replace("lr: 0.003", "lr: fast"), "utf-8")
    with pytest.raises(ScenarioError) as caught:
        load_run(config, ["model.layers=0"])
    codes = sorted(problem.code for problem in caught.value.problems)
    assert codes == ["TW010", "TW014", "TW015"]
    shown = str(caught.value)
    line = 1 + text.splitlines().index("  micro_bach: 2")
    assert f"mini.yaml:{line}:3: TW010 unknown key `micro_bach` in `train`" in shown
    assert "did you mean `micro_batch`?" in shown
    assert "--set:1:20: TW015" in shown


def test_an_unknown_model_is_one_problem(config: Path) -> None:
    text = config.read_text()
    start, end = text.index("model:"), text.index("train:")
    config.write_text(f"{text[:start]}model: kimi-k2-nanno\n{text[end:]}", "utf-8")
    with pytest.raises(ScenarioError) as caught:
        load_run(config)
    assert [problem.code for problem in caught.value.problems] == ["TW006"]
    assert "did you mean `kimi-k2-nano`?" in str(caught.value)


def test_two_stages_of_one_name_are_refused(load: Load) -> None:
    stage = "{name: train, steps: 1, sequence: 8, micro_batch: 1, lr: 0.1}"
    with pytest.raises(ScenarioError, match="two stages are called `train`"):
        load(f"stages=[{stage}]")


def test_stages_follow_each_other_and_stretch_positions_from_then_on(load: Load) -> None:
    first = "{name: anneal, steps: 3, sequence: 16, micro_batch: 2, lr: 0.1}"
    long = "{name: long, steps: 2, sequence: 64, micro_batch: 1, accumulate: 2, lr: 0.1, yarn: 4.0}"
    after = "{name: after, steps: 1, sequence: 64, micro_batch: 1, lr: 0.2}"
    stages = stages_of(load(f"stages=[{first}, {long}, {after}]"))
    assert [(stage.first, stage.end) for stage in stages] == [(0, 12), (12, 15), (15, 17), (17, 18)]
    assert [stage.tokens for stage in stages] == [32, 32, 128, 64]
    yarn = Yarn.model_validate({"factor": 4.0, "original_context": "16tok"})
    assert [stage.rope.yarn for stage in stages] == [None, None, yarn, yarn]


def test_a_stage_s_rate_goes_straight_to_its_last_one(load: Load) -> None:
    stage = "{name: anneal, steps: 3, sequence: 8, micro_batch: 1, lr: 2.0e-5, final_lr: 7.0e-6}"
    run = load(f"stages=[{stage}]")
    anneal = stages_of(run)[1]
    rates = [anneal.learning_rate(run, anneal.first + step) for step in range(3)]
    assert rates == pytest.approx([2e-5, 1.35e-5, 7e-6])


def test_a_stage_changes_the_factor_of_a_model_that_has_yarn_and_nothing_else(load: Load) -> None:
    yarn = "{factor: 2.0, original_context: 8tok, beta_fast: 4.0}"
    stage = "{name: long, steps: 1, sequence: 64, micro_batch: 1, lr: 0.1, yarn: 8.0}"
    before, after = stages_of(load(f"model.rope={{yarn: {yarn}}}", f"stages=[{stage}]"))
    assert before.rope.yarn is not None
    assert after.rope.yarn == before.rope.yarn.model_copy(update={"factor": 8.0})
