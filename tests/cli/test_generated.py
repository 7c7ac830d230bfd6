"""`twin run` and `twin check` on scenarios whose data is generated, or that roll out."""

from __future__ import annotations

import json

import pytest

from tests.command import Command

DATA = "kimi-k2-rephrasing-256xh800"
ROLLOUT = "kimi-k2-rollout-256xh800"
FEW = (
    "--set", "rl.rollout.requests=64", "--set", "rl.rollout.nodes=4",
    "--set", "rl.rollout.iterations=2",
)  # fmt: skip


@pytest.mark.slow
def test_a_run_says_what_its_data_takes_and_keeps_it_apart(twin_command: Command) -> None:
    done = twin_command("run", DATA, "--json")
    assert done.code == 0
    said = json.loads(done.out)
    plain = json.loads(twin_command("run", "kimi-k2-256xh800", "--json").out)
    assert said["kpis"] == plain["kpis"]
    assert plain["generated"] is None
    found = said["generated"]
    assert [job["name"] for job in found["jobs"]] == [
        "knowledge",
        "mathematics",
        "kimi-k2-tool-use",
    ]
    assert found["days"] == pytest.approx(sum(job["days"] for job in found["jobs"]))
    assert found["cost_usd"] == pytest.approx(2 * found["gpu_hours"])
    assert found["days_range"][0] < found["days"] < found["days_range"][1]


def test_tables_of_generated_data_name_what_binds(twin_command: Command) -> None:
    out = twin_command("run", DATA).out
    assert "Before it trains, 121B tokens are generated" in out
    assert "knowledge: pieces" in out
    assert "data.engine.utilisation" in out


def test_rollouts_are_answered_with_their_timeline(twin_command: Command) -> None:
    done = twin_command("run", ROLLOUT, *FEW, "--json")
    assert done.code == 0
    said = json.loads(done.out)
    assert said["rollout_seconds"] > 0
    assert 0 <= said["idle_fraction"] < 1
    assert len(said["iterations"]) == 2
    text = twin_command("run", ROLLOUT, *FEW).out
    assert "Rollouts of an iteration take" in text
    assert "The last iteration" in text


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("check", DATA, "--set", "data.engine.gpus=40"), 3, "TW180"),
        (("check", ROLLOUT, "--set", "rl.rollout.nodes=2"), 3, "TW183"),
        (("run", ROLLOUT, "--seal"), 2, "a seal is of one training step"),
        (("check", DATA, "-q"), 0, "Fits"),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_played(
    words: tuple[str, ...], code: int, said: str, twin_command: Command
) -> None:
    done = twin_command(*words)
    assert done.code == code
    assert said in done.out + done.err
