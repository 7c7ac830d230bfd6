"""Phases as they are written: merged over the scenario, named in its hash, wrong at their line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kinds.phases.conftest import TWO, Write
from twin.errors import Problem, ScenarioError
from twin.loading import load, resolve, scenario_hash
from twin.scenario import Scenario


def problems(path: Path, *sets: str) -> list[Problem]:
    with pytest.raises(ScenarioError) as caught:
        load(path, sets)
    return list(caught.value.problems)


def test_lengths_are_tokens_steps_or_what_is_left_until(two: Scenario) -> None:
    assert two.phase_tokens == (5000 * 8 * 2048, 163_840_000 - 5000 * 8 * 2048)
    assert sum(two.phase_tokens) == two.train.tokens


def test_a_phase_is_the_plain_scenario_with_its_sections(two: Scenario, write: Write) -> None:
    plain = load(write().parent / "plain.yaml", ["train.tokens=163.84M"])
    assert scenario_hash(two.phase(0)) == scenario_hash(plain)
    changed = ["train.global_batch=16seq", "memory.recompute=[attention_core]"]
    other = load(write().parent / "plain.yaml", ["train.tokens=163.84M", *changed])
    assert scenario_hash(two.phase(1)) == scenario_hash(other) != scenario_hash(plain)


def test_a_written_out_run_is_the_same_run(two: Scenario, tmp_path: Path) -> None:
    (tmp_path / "out.yaml").write_text(resolve(two))
    again = load(tmp_path / "out.yaml")
    assert again == two
    assert scenario_hash(again) == scenario_hash(two)


def test_phases_are_part_of_the_hash_and_the_first_day_is_not(write: Write) -> None:
    path = write()
    base = scenario_hash(load(path))
    assert scenario_hash(load(path, ["start=2026-01-05"])) == base
    assert scenario_hash(load(path, ["phases.0.steps=4000"])) != base
    assert scenario_hash(load(path, ["data.bytes_per_token=3B"])) != base


def test_an_override_of_one_phase_leaves_the_others(two: Scenario, write: Write) -> None:
    changed = load(write(), ["phases.1.parallel.pipeline=1"])
    assert [changed.phase(at).parallel.pipeline for at in (0, 1)] == [2, 1]
    assert changed.phase(1).memory == two.phase(1).memory


def test_an_override_of_the_scenario_reaches_phases_that_do_not_say_otherwise(write: Write) -> None:
    changed = load(write(), ["train.optimizer=muon", "memory.recompute=[]"])
    assert [changed.phase(at).train.optimizer.kind for at in (0, 1)] == ["muon", "muon"]
    assert [changed.phase(at).memory.recompute for at in (0, 1)] == [(), ("attention_core",)]


@pytest.mark.parametrize(
    ("old", "new", "code", "path", "line"),
    [
        ("global_batch: 16seq", "global_bach: 16seq", "TW010", "phases.1.train.global_bach", 9),
        ("global_batch: 16seq", "global_batch: 16", "TW012", "phases.1.train.global_batch", 9),
        ("[attention_core]", "[atention]", "TW016", "phases.1.memory.recompute.0", 10),
        ("steps: 5000", "steps: 5000\n    tokens: 1M", "TW461", "phases.0", 5),
        ("    steps: 5000\n", "", "TW461", "phases.0", 5),
        ("until: 163.84M", "until: 100M", "TW462", "phases", 5),
        ("until: 163.84M", "until: 1M", "TW464", "phases", 5),
        ("name: long", "name: short", "TW464", "phases", 5),
        ("{global_batch: 16seq}", "{tokens: 1T}", "TW463", "phases", 5),
        ("train: {tokens", "start: soon\ntrain: {tokens", "TW460", "start", 3),
    ],
)
def test_what_is_wrong_in_a_phase_is_told_at_its_line(
    write: Write, old: str, new: str, code: str, path: str, line: int
) -> None:
    assert old in TWO
    (found,) = problems(write(TWO.replace(old, new)))
    assert (found.code, found.path) == (code, path)
    assert found.origin is not None
    assert (Path(found.origin.file).name, found.origin.line) == ("whole.yaml", line)


def test_the_sum_of_phases_comes_with_what_to_write(write: Write) -> None:
    (found,) = problems(write(), "phases.1.until=100M")
    assert found.hint == "write `train: {tokens: 100Mtok}`"


def test_a_mistake_of_the_scenario_is_told_once_and_not_for_each_phase(write: Write) -> None:
    (found,) = problems(write(), "train.optimizer=adam")
    assert found.path.startswith("train.optimizer")


def test_an_unknown_part_of_a_phase_is_told_by_itself(write: Write) -> None:
    (found,) = problems(write(), "phases.1.model=gpt-23b")
    assert found.code == "TW006"
    assert found.origin is not None
    assert found.origin.file == "--set"


def test_a_part_that_a_phase_names_brings_its_sources(write: Write) -> None:
    scenario = load(write(), ["phases.1.model=kimi-k2"])
    assert scenario.phase(1).model.name == "kimi-k2"
    known = scenario.phase(1).ledger["model.rope.yarn.factor"]
    assert known.source is not None
    assert not any(path.startswith("phases") for path in scenario.phase(0).ledger)
