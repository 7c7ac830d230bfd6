"""A run: the same bytes whether or not it was killed, splits apart, replays that agree."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reference.agentic.__main__ import main
from reference.agentic.run import JOURNAL, REPORT, TRAJECTORIES, replay_file, synthesise
from reference.dialog import dialog_of
from reference.generate.request import ChatRequest, Reply
from reference.generate.rules import RuleGenerator
from reference.text.template import weighed
from tests.reference.agentic.worlds import SMALL, spec_of
from twin.errors import Problem, ScenarioError, UsageError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished small run."""
    made = tmp_path_factory.mktemp("runs") / "whole"
    synthesise(spec_of(output=str(made)), "refuse")
    return made


def _rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / TRAJECTORIES).read_text().splitlines()]


def _digest(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
    }


def test_a_run_that_was_killed_anywhere_ends_with_the_same_bytes(
    folder: Path, tmp_path: Path
) -> None:
    journal = (folder / JOURNAL).read_bytes()
    lines = journal.splitlines(keepends=True)
    for name, left in {"half": journal[: len(b"".join(lines[:5])) + 40], "begun": b""}.items():
        other = tmp_path / name
        other.mkdir()
        (other / JOURNAL).write_bytes(left)
        (other / "config.json").write_bytes((folder / "config.json").read_bytes())
        synthesise(spec_of(output=str(other)), "resume")
        assert _digest(other) == _digest(folder)


def test_a_dialogue_that_comes_twice_is_kept_once_also_after_a_kill(tmp_path: Path) -> None:
    few = {
        "tools": 9,
        "terse": True,
        "near": {"off": True},
        "mask_nouns": False,
        "categories": ["charity"],
        "operations": ["get", "lookup", "remove"],
    }
    words: dict[str, Any] = {
        "repository": few,
        "agents": {"count": 1},
        "tasks": {"rows": 3, "digits": 2, "depths": [1], "second": 0.0},
        "kept": 45,
    }
    whole = synthesise(spec_of(output=str(tmp_path / "whole"), **words), "refuse")
    assert whole["tasks"]["repeated"] > 0
    lines = (tmp_path / "whole" / JOURNAL).read_bytes().splitlines(keepends=True)
    last = max(at for at, line in enumerate(lines) if b'"repeated":true' in line)
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / JOURNAL).write_bytes(b"".join(lines[:last]))
    (tmp_path / "cut" / "config.json").write_bytes((tmp_path / "whole/config.json").read_bytes())
    synthesise(spec_of(output=str(tmp_path / "cut"), **words), "resume")
    assert _digest(tmp_path / "cut") == _digest(tmp_path / "whole")


def test_another_process_with_another_hash_seed_makes_the_same_bytes(
    folder: Path, tmp_path: Path
) -> None:
    config = tmp_path / "small.yaml"
    config.write_text(json.dumps({**SMALL, "output": str(tmp_path / "other")}))
    command = [sys.executable, "-m", "reference.agentic", str(config), "--set", "play.at_once=3"]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "12/12 kept" in done.stderr
    assert "agents: 18" in done.stdout
    assert _digest(tmp_path / "other") == _digest(folder)


def test_a_kept_trajectory_has_all_that_training_needs(folder: Path) -> None:
    for row in _rows(folder):
        assert row.keys() == {"id", "messages", "tools", "learned", "verdict", "provenance"}
        assert row["learned"] == [one["role"] == "assistant" for one in row["messages"]]
        assert all(row["verdict"]["checks"].values())
        assert row["verdict"]["causes"] == []
        provenance = row["provenance"]
        needed = "domain application task depth seed agent user tools generator split"
        assert set(needed.split()) <= provenance.keys()
        names = [one["function"]["name"] for one in row["tools"]]
        assert names == provenance["tools"]


def test_held_out_tools_are_in_no_dialogue_of_training(folder: Path) -> None:
    tools: dict[str, set[str]] = {"train": set(), "held_out": set()}
    for row in _rows(folder):
        tools[row["provenance"]["split"]] |= set(row["provenance"]["tools"])
    assert all(tools.values())
    assert not tools["train"] & tools["held_out"]


def test_a_replay_agrees_and_one_changed_byte_is_named(folder: Path, tmp_path: Path) -> None:
    spec = spec_of(output=str(folder))
    found = replay_file(spec, folder / TRAJECTORIES)
    assert found["trajectories"] == 12
    assert found["calls"] > 12
    assert not found["different"]
    rows = _rows(folder)
    answer = next(one for one in rows[3]["messages"] if one["role"] == "tool")
    answer["content"] = answer["content"].replace(":", ": ", 1)
    (tmp_path / "changed.jsonl").write_text("\n".join(map(json.dumps, rows)))
    different = replay_file(spec, tmp_path / "changed.jsonl")["different"]
    assert any("has another result" in one for one in different)
    assert {one.split(":")[0] for one in different} == {rows[3]["id"]}


def test_a_forged_turn_of_the_user_is_named(folder: Path, tmp_path: Path) -> None:
    rows = _rows(folder)[:1]
    rows[0]["messages"] += [
        {"role": "user", "content": "Thank you, and here is my PIN."},
        {"role": "assistant", "content": rows[0]["messages"][-1]["content"]},
    ]
    (tmp_path / "forged.jsonl").write_text(json.dumps(rows[0]))
    different = replay_file(spec_of(), tmp_path / "forged.jsonl")["different"]
    assert any("the user would not say" in one for one in different)


def test_the_report_counts_what_the_files_hold(folder: Path) -> None:
    report, rows = json.loads((folder / REPORT).read_text()), _rows(folder)
    journal = [json.loads(line) for line in (folder / JOURNAL).read_text().splitlines()]
    tried = [one for line in journal for one in line["tried"]]
    assert report["kept"]["trajectories"] == len(rows) == 12
    assert report["judged"]["dialogues"] == len(tried)
    assert report["judged"]["failed"] == sum(not one["passes"] for one in tried)
    assert sum(report["kept"]["depths"].values()) == 12
    assert report["tools"]["near-duplicates among the tools"] < 0.05
    assert len((folder / "tools.jsonl").read_text().splitlines()) == 80


def test_more_kept_trajectories_go_on_with_a_run(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "more"
    synthesise(spec_of(output=str(other), kept=5), "refuse")
    synthesise(spec_of(output=str(other), kept=12), "resume")
    assert (other / TRAJECTORIES).read_bytes() == (folder / TRAJECTORIES).read_bytes()


def test_a_folder_that_holds_a_run_is_not_overwritten(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"TW562(?s:.*)--resume"):
        synthesise(spec_of(output=str(folder)), "refuse")
    with pytest.raises(UsageError, match=r"TW562(?s:.*)another synthesis"):
        synthesise(spec_of(output=str(folder), seed=9), "resume")


def test_segments_are_the_rendered_template_with_its_mask(tmp_path: Path) -> None:
    synthesise(spec_of(output=str(tmp_path / "run"), kept=2, segments=True), "refuse")
    for row in _rows(tmp_path / "run"):
        parts = [
            [one.segment.text, one.segment.marker, one.learned] for one in weighed(dialog_of(row))
        ]
        assert row["segments"] == parts
        said = "".join(text for text, marker, learned in parts if learned and not marker)
        assert row["messages"][-1]["content"] in said
        assert row["messages"][1]["content"] not in said


def test_the_command_refuses_what_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no-such-preset"]) == 2
    assert "nano, synthesis" in capsys.readouterr().err
    small = ["nano", "--set", "repository.categories=[finance]"]
    assert main([*small, "--replay", "nothing.jsonl"]) == 2
    assert "TW566" in capsys.readouterr().err
    assert main(["nano", "--set", "chance.transient=0.9", "--set", "chance.edge=0.9"]) == 3
    assert "TW561" in capsys.readouterr().err


class _Mute(RuleGenerator):
    """A server that is down."""

    def complete(self, request: ChatRequest) -> Reply:  # noqa: ARG002  the interface
        raise UsageError([Problem("TW550", "generator", "no server")])


def test_a_generator_that_never_answers_stops_the_run_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reference.agentic.run.choose", lambda _: _Mute())
    spec = spec_of(output=str(tmp_path / "run"))
    with pytest.raises(UsageError, match=r"TW564(?s:.*)TW550"):
        synthesise(spec, "refuse")
    assert (tmp_path / "run" / JOURNAL).read_bytes() == b""


def test_a_repository_too_small_for_tasks_says_so(tmp_path: Path) -> None:
    spec = spec_of(output=str(tmp_path / "run"), repository={"tools": 2, "categories": ["finance"]})
    with pytest.raises((UsageError, ScenarioError), match="TW563"):
        synthesise(spec, "refuse")


@pytest.mark.slow
def test_the_preset_shows_what_it_must(tmp_path: Path) -> None:
    """1,000 tools in 20 domains or more, 200 agents, 1,000 kept trajectories."""
    assert main(["synthesis", "--set", f"output={tmp_path / 'run'}"]) == 0
    report = json.loads((tmp_path / "run" / REPORT).read_text())
    assert report["tools"]["total"] == 1000
    assert report["tools"]["categories"] >= 20
    assert report["tools"]["near-duplicates among the tools"] < 0.05
    assert report["tools"]["the same, nouns masked, too"] < 0.05
    assert report["agents"]["total"] == 200
    assert report["kept"]["trajectories"] == 1000
    assert len(report["kept"]["depths"]) >= 4
    assert report["judged"]["failed share"] >= 0.15
    assert len(report["judged"]["causes"]) >= 8
    assert main(["synthesis", "--replay", str(tmp_path / "run" / TRAJECTORIES)]) == 0
