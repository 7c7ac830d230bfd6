"""Orders of passes: what is found is checked by events, fits, and is written as a plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command import Command
from twin.answers.executors import PoolChoice
from twin.explore.schedules.found import find, known_schedules
from twin.loading import load
from twin.schedules.custom import Custom

SMALL = (
    "cluster.nodes=4",
    "model.layers=16",
    "parallel.pipeline=4",
    "parallel.virtual=1",
    "parallel.schedule=1f1b",
    "train.global_batch=32seq",
)
"""Four stages and eight micro-batches of GPT-3."""
NAME = "gpt-175b-64xa100-full"


def test_no_known_schedule_that_fits_is_faster() -> None:
    scenario = load(NAME, SMALL)
    assert scenario.parallel.schedule.kind == "1f1b"
    names = [name for name, _ in known_schedules(scenario)]
    assert names[0] == "1f1b, as written"
    found = find(scenario, pool=PoolChoice(1), seconds=1.5)
    best = found.chosen
    assert best is not None
    assert best.fits
    assert all(best.step_ns <= row.step_ns for row in found.known if row.fits)
    assert best is not found.best or isinstance(best.schedule, Custom)
    assert found.gap is not None
    assert 0 <= found.gap < 1


def test_the_written_plan_runs_as_it_was_told(twin_command: Command, tmp_path: Path) -> None:
    file = tmp_path / "better.yaml"
    asked = ("improve", NAME, *(f"--set={one}" for one in SMALL), "--jobs=1")
    times = ("--patience=1s", "--passes=1s")
    done = twin_command(*asked, *times, "--json", "-o", str(file), "--no-cache")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    steps = [one["step_seconds"] for one in told["milestones"]]
    assert told["milestones"][-1]["name"] == "order of passes"
    assert steps[-1] == told["best"]["step_seconds"] == min(steps)
    again = json.loads(twin_command("run", str(file), "--json").out)
    assert again["kpis"]["step_seconds"] == pytest.approx(steps[-1], rel=1e-9)
    beside = tmp_path / "better.schedule.yaml"
    again = twin_command("check", str(file), f"--set=parallel.schedule={beside}", "--json")
    assert json.loads(again.out)["fits"]


def test_one_stage_has_nothing_to_search() -> None:
    one = ("parallel.pipeline=1", "cluster.nodes=1", "model.layers=4", "parallel.virtual=1")
    found = find(load(NAME, [*one, "parallel.schedule=1f1b"]), pool=PoolChoice(1))
    assert "One stage waits for no other" in found.sentences[0]


def test_the_verb_of_before_names_the_one_of_now(twin_command: Command) -> None:
    done = twin_command("schedule", NAME)
    assert done.code == 2
    assert "twin improve" in done.err
