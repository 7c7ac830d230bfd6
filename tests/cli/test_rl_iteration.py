"""`twin run` and `twin check` on an iteration of reinforcement learning."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Command
from tests.rl.iterations import NAME, SMALL

SETS = [f"--set={one}" for one in SMALL]


def test_run_prints_one_document(twin_command: Command) -> None:
    got = twin_command("run", NAME, *SETS, "--json")
    document = json.loads(got.out)
    assert got.code == 0
    assert document["kind"] == "rl_iteration"
    assert document["provenance"]["reproduce"].startswith(f"twin run {NAME} --set")
    assert sum(document["busy"].values()) + sum(document["idle"].values()) == pytest.approx(1)


def test_run_draws_the_iteration(twin_command: Command) -> None:
    text = twin_command("run", NAME, *SETS).out
    assert "An iteration takes" in text
    assert "trainer's states from the host" in text
    assert "nothing: the last requests run elsewhere" in text
    assert "80 % interval" in text


def test_an_expectation_that_fails_is_code_5(twin_command: Command) -> None:
    got = twin_command(
        "run", NAME, *SETS, "-q", "--set", "expect=[iteration_seconds < 1s, iterations_per_day > 1]"
    )
    assert got.code == 5
    assert "iteration_seconds < 1s: failed" in got.out
    assert twin_command("run", NAME, *SETS, "-q", "--set", "expect=[idle_share < 90%]").code == 0


def test_check_plays_nothing_and_says_what_fits(twin_command: Command) -> None:
    got = twin_command("check", NAME, *SETS, "--json")
    document = json.loads(got.out)
    assert (got.code, document["valid"], document["fits"]) == (0, True, True)
    assert len(document["memory"]) == 4
    assert twin_command("check", NAME, *SETS, "-q", "--set", "rl.iteration.asleep=60GiB").code == 4
