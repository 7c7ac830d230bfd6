"""The command, from its arguments to its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from reference.inference.local import load_engine
from reference.inference.spec import EngineSpec
from reference.rl.command import main
from reference.rl.prompts import known
from tests.reference.rl.mini import spec


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A run of one iteration."""
    written = spec(tmp_path, iterations=1).model_dump(mode="json", exclude_unset=True)
    path = tmp_path / "toy.yaml"
    path.write_text(yaml.safe_dump(written))
    return path


def test_a_run_ends_with_0_and_can_be_served_and_learned_on(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = tmp_path / "first"
    assert main([str(config), "--set", f"train.output={first}", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ended"] == "done"
    assert [one["iteration"] for one in told["iterations"]] == [1]
    engine = load_engine(first, EngineSpec())
    assert engine.vocabulary.markers
    again = ["--set", f"start={first}", "--set", "model=null", "--set", "data=null"]
    output = ["--set", f"train.output={tmp_path / 'second'}"]
    assert main([str(config), *again, *output]) == 0


def test_how_hard_tasks_are_is_written_and_read(config: Path, tmp_path: Path) -> None:
    file = tmp_path / "hard.json"
    assert main([str(config), "--measure", str(file)]) == 0
    tasks = json.loads(file.read_text())["tasks"]
    assert len(tasks) == 6
    assert {one["tries"] for one in tasks.values()} == {3}
    assert {len(one["pass_at"]) for one in tasks.values()} == {3}
    history = known(str(file))
    assert history.tries == dict.fromkeys(tasks, 3)
    file.write_text("{}")
    output = ["--set", f"train.output={tmp_path / 'out'}"]
    assert main([str(config), "--set", f"prompts.known={file}", *output]) == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["no-such-preset"], 2),
        (["--bogus"], 2),
        (["{config}", "--set", "iterations=0"], 3),
        (["{config}", "--set", "start={tmp}"], 2),
    ],
)
def test_mistakes_have_their_exit_codes(
    config: Path, tmp_path: Path, arguments: list[str], code: int
) -> None:
    given = [one.format(config=config, tmp=tmp_path) for one in arguments]
    assert main([*given, "--set", f"train.output={tmp_path / 'out'}"]) == code
