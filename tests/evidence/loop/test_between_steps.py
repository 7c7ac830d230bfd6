"""Predictions beside steps of the same rounds: arithmetic by hand, no clock."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest

from tests.command import Command
from twin.answers import ask
from twin.cli import validate
from twin.errors import UsageError
from twin.evidence.loop import between_steps
from twin.evidence.loop.between_steps import HostOutcome, Round, measure_between_steps
from twin.evidence.loop.layouts import find
from twin.loading import load
from twin.loading.files import shipped_folder

QUIET = (1.0, 1.01, 0.99, 1.0)
ROUNDS = (
    Round(0.30, 0.15, 0.25, QUIET, 1.0),
    Round(0.21, 0.14, 0.20, QUIET, 0.9),
    Round(0.18, 0.10, 0.30, QUIET, 0.7),
)
OUTCOME = HostOutcome("bare", ROUNDS)


def test_medians_of_rounds_are_compared_and_the_errors_of_rounds_are_beside_them() -> None:
    found = OUTCOME.to_json()
    assert (found["predicted"], found["without_host"], found["measured"]) == (0.21, 0.14, 0.25)
    assert found["error"] == pytest.approx(0.21 / 0.25 - 1)
    assert found["error_without_host"] == pytest.approx(0.14 / 0.25 - 1)
    assert found["errors"] == (pytest.approx(0.18 / 0.30 - 1), pytest.approx(0.30 / 0.25 - 1))
    assert found["quiet"]


def test_a_machine_whose_probe_varies_was_not_quiet() -> None:
    """Quartiles of 8, 9, 10, 11, 12: 8.5 and 11.5, 30 % of the median apart."""
    rounds = (Round(1.0, 1.0, 1.0, (8.0, 12.0), 1.0), Round(1.0, 1.0, 1.0, (10.0, 9.0, 11.0), 1.0))
    assert HostOutcome("bare", rounds).unrest == pytest.approx(0.3)
    assert not HostOutcome("bare", rounds).quiet


def test_a_process_that_shares_its_core_was_not_quiet() -> None:
    shared = HostOutcome("bare", tuple(replace(one, core=0.25) for one in ROUNDS))
    assert (shared.unrest, shared.quiet) == (OUTCOME.unrest, False)


def test_a_round_is_asked_of_its_own_parts_with_the_host_and_without(tmp_path: Path) -> None:
    """The shipped parts as a round's, under which the layout ships, too."""
    name = "epyc-zen5-1core-torch2.13"
    copytree(shipped_folder() / "measured" / name / "catalog", tmp_path / "catalog")
    profiles = tmp_path / "catalog" / "calibrations"
    (profiles / f"{name}-engine.yaml").unlink()
    seconds = {"steps": [0.2, 0.3, 0.7], "probes": [0.1, 0.2], "core": 0.5}
    (tmp_path / "steps.json").write_text(json.dumps(seconds))
    (layout,) = find(["bare-host-64-experts"])
    found = between_steps._round(tmp_path, layout.path, [])
    assert found.measured == pytest.approx(0.4)
    assert (found.probes, found.core) == ((0.1, 0.2), 0.5)
    assert found.predicted == ask(layout.scenario).trace.step_ns / 1e9
    bare = ask(load(layout.path, ["software.host=null"])).trace.step_ns / 1e9
    assert found.without_host == bare < found.predicted


def test_a_layout_of_several_ranks_is_refused(tmp_path: Path) -> None:
    (layout,) = find(["bare-pp2-100mbps"])
    with pytest.raises(UsageError, match="TW379"):
        measure_between_steps(layout, [], 1, tmp_path)


def test_options_of_whole_runs_are_refused(twin_command: Command) -> None:
    found = twin_command("validate", "--reference", "--measure", "120", "--rounds", "4")
    assert found.code == 2
    assert "--rounds is for whole runs" in found.err


def test_the_command_says_when_the_errors_mean_little(
    twin_command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loud = HostOutcome("bare", (Round(1.0, 0.5, 1.0, (1.0, 2.0, 3.0), 1.0),))
    for outcome, words in ((OUTCOME, "quiet: a fixed"), (loud, "so the errors mean little")):
        monkeypatch.setattr(validate, "measure_between_steps", lambda *_, given=outcome: given)
        asked = ("validate", "--reference", "bare-host-64-experts", "--measure", "120")
        found = twin_command(*asked, "--limit", "5")
        assert words in found.out
        assert found.code == (5 if outcome is OUTCOME else 0)
