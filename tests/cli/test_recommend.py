"""`twin recommend`, `twin improve`: words, JSON, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command import Command
from tests.explore.search.conftest import SMALL
from twin.cli.verbs import verbs
from twin.explore.search.recommendation import MOST_PLAYED


def test_the_verb_says_it_in_words_and_ends_with_a_code(twin_command: Command) -> None:
    asked = ("recommend", "kimi-k2-256xh800", *(f"--set={one}" for one in SMALL), "--gpus", "16")
    fixed = ("pipeline=2", "expert=8", "tensor=1", "micro_batch=1")
    few = (*(word for one in fixed for word in ("--axis", f"parallel.{one}")), "--most", "2")
    done = twin_command(*asked, *few, "--jobs", "1")
    assert done.code == 0, done.err
    assert "Recommended for the fastest: 16 GPUs" in done.out
    assert "Why layouts were pruned" in done.out
    late = twin_command(*asked, *few, "--jobs", "1", "--target", "1s", "--json")
    assert late.code == 5
    assert json.loads(late.out)["recommended"] is None
    wrong = twin_command(*asked, "--target", "soon")
    assert wrong.code == 2
    assert "TW433" in wrong.err


def test_a_goal_of_nothing_and_a_budget_without_a_price_are_refused(twin_command: Command) -> None:
    dense = ("recommend", "gpt-175b-64xa100-full")
    assert "TW433" in twin_command(*dense, "--budget", "0USD").err
    done = twin_command(*dense, "--budget", "1MUSD")
    assert done.code == 2
    assert "TW053" in done.err
    assert "TW430" in twin_command(*dense, "--axis", "parallel.tensor=0").err


def test_a_price_is_said_once_and_remembered(
    twin_command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TWIN_CONFIG", str(tmp_path / "settings"))
    asked = ("recommend", "gpt-175b-64xa100-full", "--budget", "1MUSD", "--axis")
    wrong = (*asked, "parallel.tensor=0")  # refused at once, but after the price
    assert "TW053" in twin_command(*wrong).err
    assert "said before" not in twin_command(*wrong, "--set", "cost.gpu_hour=3USD").err
    assert "3USD per GPU-hour, as said before" in twin_command(*wrong).err


def test_the_option_and_the_search_play_as_many_layouts_by_default() -> None:
    assert verbs()["recommend"]["parameters"]["most"]["default"] == MOST_PLAYED


def test_improve_writes_the_best_plan(twin_command: Command) -> None:
    """The plan is that of the laws in `tests/explore/search`: its points are played once."""
    asked = ("improve", "kimi-k2-256xh800", *(f"--set={one}" for one in SMALL), "--jobs", "1")
    done = twin_command(*asked, "--json", "--output", "better.yaml")
    assert done.code == 0, done.err
    best = json.loads(done.out)["pair"]
    assert "So far: " in done.err
    again = json.loads(twin_command("run", "better.yaml", "--json").out)
    assert again["kpis"]["step_seconds"] == pytest.approx(best["step_seconds"])
    assert "Better plans" in twin_command(*asked).out
    too_large = twin_command(*asked, "--set=cluster.node.gpu.memory=4GiB")
    assert too_large.code == 4
    assert "`twin check`" in too_large.out
