"""`twin run` and `twin check` of a run in phases, and verbs that answer its step only."""

from __future__ import annotations

import json

import pytest

from tests.command import Command
from tests.kinds.phases.conftest import TWO, Write
from tests.kinds.phases.test_play import LARGE, ODD

AS_SETS = [word for one in ODD for word in ("--set", one)]


def test_a_run_tells_phases_totals_and_what_it_wrote(twin_command: Command, write: Write) -> None:
    code, out, _ = twin_command("run", str(write()))
    assert code == 0
    assert out.startswith("Every phase fits. 2 phases, 163.84M tokens on 16 GPUs take ")
    for words in ("short", "long", "Calendar", "checkpoints", "data read", "no-goodput"):
        assert words in out


def test_the_document_has_what_the_contract_names(twin_command: Command, write: Write) -> None:
    code, out, _ = twin_command("run", str(write()), "--json")
    found = json.loads(out)
    assert code == 0
    assert found["version"] == 1
    assert {"kpis", "phases", "checkpoints", "data_bytes", "calendar", "hash"} <= found.keys()
    phase = found["phases"][0]
    assert {"name", "hash", "kpis", "fits", "problems", "nearest", "costed"} <= phase.keys()
    assert found["kpis"]["days"] == sum(one["kpis"]["days"] for one in found["phases"])
    assert sum(phase["breakdown_ns"].values()) == phase["step_ns"]


def test_an_impossible_phase_exits_with_3_and_a_total(twin_command: Command, write: Write) -> None:
    code, out, _ = twin_command("run", str(write()), *AS_SETS)
    assert code == 3
    assert "TW115" in out
    assert "--set phases.N.train.global_batch=8seq" in out
    assert "nearest plan that fits in place of: long" in out


def test_a_run_of_which_no_phase_can_run_is_refused_without_a_search(
    twin_command: Command, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twin.answers.answer.nearest_fit", lambda _: pytest.fail("searched"))
    for verb in ("run", "check"):
        code, _, err = twin_command(verb, str(write()), "--set", "parallel.tensor=5")
        assert code == 3
        assert "--set:1:23" in err


def test_a_phase_that_does_not_fit_exits_with_4(
    twin_command: Command, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twin.answers.answer.nearest_fit", lambda _: ())
    for verb in ("run", "check"):
        code, out, _ = twin_command(verb, str(write()), "--set", LARGE)
        assert code == 4
        assert "long: Does not fit" in out


def test_a_check_answers_every_phase(twin_command: Command, write: Write) -> None:
    code, out, _ = twin_command("check", str(write()), "--json")
    found = json.loads(out)
    assert code == 0
    assert [one["fits"] for one in found["phases"]] == [True, True]
    code, out, _ = twin_command("check", str(write()), "--json", *AS_SETS)
    found = json.loads(out)
    assert code == 3
    assert (found["valid"], found["fits"]) == (False, False)
    (problem,) = found["phases"][1]["problems"]
    assert problem["path"] == "train.global_batch"
    assert problem["file"] == "--set"


def test_expectations_are_of_the_whole_run(twin_command: Command, write: Write) -> None:
    path = str(write(TWO + 'expect: ["fits == true", "days < 1000d"]\n'))
    assert twin_command("run", path).code == 0
    late = '--set=expect=["days < 1s"]'
    code, out, _ = twin_command("run", path, late)
    assert code == 5
    assert "days < 1s: failed" in out


def test_the_verbs_of_one_step_say_that_they_are(twin_command: Command, write: Write) -> None:
    path = str(write())
    _, _, told = twin_command("recommend", path, "--fixed-layout", "--jobs", "1")
    assert "answers its 2 phases" in told


def test_a_point_of_a_sweep_is_the_whole_run(twin_command: Command, write: Write) -> None:
    path = str(write())
    words = ("sweep", path, "--grid", "cluster.nodes=2", "--jobs", "1", "--json")
    code, out, _ = twin_command(*words)
    assert code == 0
    (point,) = json.loads(out)["points"]
    whole = json.loads(twin_command("run", path, "--set", "cluster.nodes=2", "--json")[1])
    assert point["kpis"] == whole["kpis"]


def test_runs_in_phases_are_compared_by_their_days(twin_command: Command, write: Write) -> None:
    path = str(write())
    words = ("compare", path, path, "--json")
    code, out, _ = twin_command(*words, "--fail-if", "days > +1%")
    assert code == 0
    (candidate,) = json.loads(out)["candidates"]
    assert candidate["kpis"]["days"]["delta"] == 0.0
    assert set(candidate["phases"].values()) == {0.0}


def test_a_run_in_phases_is_not_sealed(twin_command: Command, write: Write) -> None:
    code, _, told = twin_command("run", str(write()), "--seal")
    assert code == 2
    assert "phases" in told
