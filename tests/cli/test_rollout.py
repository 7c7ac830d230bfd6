"""`twin run` and `twin compare` on rollouts alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command import Command

NAME = "kimi-k2-rollout-256xh800"
SETS = [
    "--set=rl.rollout.requests=320",
    "--set=rl.rollout.nodes=4",
    "--set=rl.rollout.iterations=2",
]


def longer(folder: Path, mean: int) -> str:
    """A file of rollouts of that mean length."""
    path = folder / f"{mean}.yaml"
    path.write_text(
        f"schema: 1\nextends: {NAME}\nname: mean {mean}\n"
        f"rl: {{rollout: {{written: {{kind: log_normal, mean: {mean}, sigma: 0.8}}}}}}\n"
    )
    return str(path)


def test_rollouts_are_held_to_what_is_expected_of_them(twin_command: Command) -> None:
    said = json.loads(twin_command("run", NAME, *SETS, "--json").out)
    assert said["kind"] == "rollouts"
    seconds = said["kpis"]["rollout_seconds"]
    assert seconds == said["rollout_seconds"] > 0
    assert said["kpis"]["idle_share"] == said["idle_fraction"]
    assert said["kpis"]["cost_usd_of_rollouts"] == pytest.approx(32 * seconds / 3600 * 2.0)
    expected = f"expect=[rollout_seconds < {seconds * 0.99}s, tail_share < 100%, fits == true]"
    got = twin_command("run", NAME, *SETS, "-q", "--set", expected)
    assert got.code == 5
    assert "rollout_seconds < " in got.out
    assert "tail_share" not in got.out
    assert twin_command("run", NAME, *SETS, "-q", "--set", "expect=[fits == true]").code == 0


@pytest.mark.parametrize(
    ("name", "figure", "code"),
    [
        (NAME, "step_seconds < 1s", "TW152"),
        (NAME, "iteration_seconds < 1h", "TW053"),
        ("kimi-k2-rl-256xh800", "step_seconds < 1s", "TW152"),
        ("kimi-k2-256xh800", "tail_share < 10%", "TW152"),
    ],
)
def test_what_a_kind_of_scenario_does_not_answer_is_refused(
    twin_command: Command, name: str, figure: str, code: str
) -> None:
    """An expectation that nothing is held to would pass for ever."""
    got = twin_command("run", name, "--set", f"expect=[{figure}]")
    assert (got.code, code in got.err) == (3, True)


@pytest.mark.parametrize("name", [NAME, "kimi-k2-rl-256xh800"])
def test_strictness_refuses_times_that_nobody_measured(twin_command: Command, name: str) -> None:
    got = twin_command("run", name, *SETS[:1], SETS[2], "-q", "--strict")
    assert got.code == 6
    assert "Outside the calibrated range: assumed-calibration" in got.out
    assert not json.loads(twin_command("run", name, *SETS[:1], SETS[2], "--json").out)["calibrated"]


def test_rollouts_are_compared_as_rollouts(twin_command: Command, tmp_path: Path) -> None:
    both = longer(tmp_path, 2000), longer(tmp_path, 3000)
    got = twin_command("compare", *both, *SETS, "--json")
    document = json.loads(got.out)
    assert (got.code, document["kind"]) == (0, "rollouts")
    (one,) = document["candidates"]
    change = one["kpis"]["rollout_seconds"]["delta"]
    assert change > 0
    assert sum(one["spent"].values()) == pytest.approx(change)
    assert "rl.rollout.written.mean" in [field["path"] for field in one["fields"]]
    words = twin_command("compare", *both, *SETS, "--fail-if", "rollout_seconds > +1%")
    assert words.code == 5
    assert "mean 3000: rollouts are" in words.out
    assert "mean 3000: Not the same is written in an iteration" in words.out
    assert "mean 3000 is beyond rollout_seconds > +1%" in words.out
    same = twin_command("compare", both[0], both[0], *SETS, "-q")
    assert "Not the same" not in same.out
    assert "rollouts are as long as in mean 2000" in same.out
    wrong = twin_command("compare", *both, *SETS, "--fail-if", "mfu < -1%")
    assert (wrong.code, "TW152" in wrong.err) == (2, True)


def test_rollouts_are_not_compared_with_other_kinds(twin_command: Command) -> None:
    for other in ("kimi-k2-256xh800", "kimi-k2-rl-256xh800"):
        mixed = twin_command("compare", NAME, other)
        assert (mixed.code, "TW168" in mixed.err) == (2, True)
