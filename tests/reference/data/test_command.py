"""`python -m reference.data`: what it answers, and with which exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reference.data.__main__ import main
from tests.reference.data.raw import small_build


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A file of a small build, without rephrasing."""
    spec = small_build(tmp_path, rephrase=[]).model_dump(mode="json")
    spec["sources"] = spec["sources"][:2]
    path = tmp_path / "build.yaml"
    path.write_text(json.dumps(spec))  # JSON is YAML
    return path


def test_build_check_and_show_answer_in_json_and_damage_is_an_error(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = config.parent / "build"
    assert main(["build", str(config), "--json", "--set", "shard=2048"]) == 0
    built = json.loads(capsys.readouterr().out)
    assert main(["show", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == built
    assert main(["show", str(folder)]) == 0
    assert "maths: weight 0.500" in capsys.readouterr().out
    assert main(["check", str(folder)]) == 0
    assert main(["build", str(config), "--set", "shard=2048"]) == 2
    assert "TW470" in capsys.readouterr().err
    assert main(["build", str(config), "--set", "shard=2048", "--resume"]) == 0
    (folder / "shards" / "training-00001.bin").unlink()
    capsys.readouterr()
    assert main(["check", str(folder)]) == 2
    assert "training shard 1) is missing" in capsys.readouterr().err


def test_what_is_wrong_is_told_with_its_code(
    config: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["build", str(tmp_path / "none.yaml")]) == 2
    assert main(["check", str(tmp_path)]) == 2
    assert main(["build", str(config), "--set", "mixture.max_epochs=-1"]) == 3
    assert main(["polish"]) == 2
    told = capsys.readouterr().err
    assert all(code in told for code in ("TW230", "TW473", "TW015"))
