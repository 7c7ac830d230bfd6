"""`twin run` and `twin check` on an iteration of reinforcement learning."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.command import Command
from tests.kinds.iteration.iterations import NAME, SMALL

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
    assert "idle: the last requests run elsewhere" in text
    assert "in brackets: 80 % interval" in text


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


def test_iterations_are_compared_as_iterations(twin_command: Command, tmp_path: Path) -> None:
    """The trainer's step is not what differs: one that is shorter may make an iteration longer."""
    other = tmp_path / "longer.yaml"
    other.write_text(
        f"schema: 1\nextends: {NAME}\nname: longer\n"
        "rl: {rollout: {written: {kind: log_normal, mean: 3000, sigma: 0.8, longest: 7000}}}\n"
    )
    sets = [one for one in SETS if "written" not in one]
    base = tmp_path / "base.yaml"
    base.write_text(
        f"schema: 1\nextends: {NAME}\nname: base\n"
        "rl: {rollout: {written: {kind: log_normal, mean: 2000, sigma: 0.8, longest: 7000}}}\n"
    )
    got = twin_command("compare", str(base), str(other), *sets, "--json")
    document = json.loads(got.out)
    assert (got.code, document["kind"]) == (0, "rl_iteration")
    (one,) = document["candidates"]
    both = [report["kpis"]["iteration_seconds"] for report in document["reports"]]
    assert one["kpis"]["iteration_seconds"]["delta"] == pytest.approx(both[1] - both[0])
    assert sum(one["phases"].values()) == pytest.approx(both[1] - both[0]), "they lie in turns"
    assert one["phases"]["rollout"] > 0
    assert [field["path"] for field in one["fields"]] == ["rl.rollout.written.mean"]
    words = twin_command(
        "compare", str(base), str(other), *sets, "--fail-if", "iteration_seconds > +1%"
    )
    assert words.code == 5
    assert "longer: an iteration is" in words.out
    assert "longer: Not the same is written in an iteration" in words.out
    assert "longer is beyond iteration_seconds > +1%" in words.out
    wrong = twin_command("compare", str(base), str(other), *sets, "--fail-if", "mfu < -1%")
    assert (wrong.code, "TW152" in wrong.err) == (2, True)


def test_kinds_are_not_mixed_and_verbs_of_steps_say_so(twin_command: Command) -> None:
    mixed = twin_command("compare", NAME, "kimi-k2-256xh800")
    assert mixed.code == 2
    assert "TW168" in mixed.err
    picked = twin_command("recommend", NAME, *SETS, "--fixed-layout", "--jobs", "1")
    assert "this answers the trainer's step alone" in picked.err
    told = twin_command("explain", NAME, "mfu", *SETS).err
    assert "this answers the trainer's step alone" in told


def test_the_command_sweeps_iterations(twin_command: Command, tmp_path: Path) -> None:
    file = tmp_path / "points.csv"
    words = ["sweep", NAME, *SETS, "--no-cache", "--jobs", "1"]
    got = twin_command(*words, "--grid", "rl.iteration.optimizer_steps=1,2", "-o", str(file))
    assert got.code == 0
    assert "2 points: 2 fit." in got.out
    assert "trainer's step alone" not in got.err
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert float(rows[0]["iteration_seconds"]) < float(rows[1]["iteration_seconds"])
    assert "step_seconds" not in rows[0]
    said = json.loads(
        twin_command(*words, "--grid", "rl.iteration.optimizer_steps=1", "--json").out
    )
    assert said["fidelity"] == "whole"
    assert said["points"][0]["kpis"]["iteration_seconds"] == float(rows[0]["iteration_seconds"])


@pytest.mark.parametrize(
    ("more", "told"),
    [(["--fidelity", "events"], "does not apply to"), (["--show", "mfu"], "TW152")],
)
def test_what_an_iteration_has_not_is_refused(
    twin_command: Command, more: list[str], told: str
) -> None:
    got = twin_command("sweep", NAME, "--grid", "rl.iteration.optimizer_steps=1,2", *more)
    assert got.code == 2
    assert told in " ".join(got.err.split())
