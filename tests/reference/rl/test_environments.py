"""Environments in other processes, and how slow they are made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from reference.dialog import Dialog, Message
from reference.rl.environments import (
    EnvironmentJob,
    EnvironmentsSpec,
    FailedError,
    InProcess,
    Workers,
    due,
    latency,
)
from reference.rl.rollout import Rollout, RolloutSpec
from reference.rl.tasks import RlTask, TasksSpec
from tests.reference.rl.deadly import Deadly
from tests.reference.rl.scripted import Scripted
from tests.reference.rl.test_rollout import planned
from tests.reference.rl.worlds import SUMS, responses, rollout
from twin.errors import UsageError

SLOW = EnvironmentsSpec.model_validate({"latency": "100ms", "spread": 1.2, "longest": "20s"})


def test_workers_need_no_torch() -> None:
    """It takes seconds to load, and hundreds of megabytes."""
    code = "import sys, reference.rl.environments, reference.rl.toys; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


@pytest.mark.slow
def test_worlds_in_processes_give_the_rollout_of_worlds_here() -> None:
    specs = [TasksSpec(source="sums", count=8)]
    here, there = responses(SUMS), responses(SUMS)
    slow = EnvironmentsSpec.model_validate({"latency": "20ms", "workers": 2})
    rollout(Scripted(planned), SUMS, latency="20ms", at_once=2).run(here)
    workers = Workers(specs, 2)
    try:
        spec = RolloutSpec.model_validate({"cap": 2000, "slice": 7, "repeat": {"window": 0}})
        part = Rollout(Scripted(planned), workers, spec, slow, 2000)  # pyright: ignore[reportArgumentType]
        while part.run(there) == "slice":
            pass
    finally:
        workers.close()
    assert [one.tokens for one in there] == [one.tokens for one in here]
    assert [one.verdict for one in there] == [one.verdict for one in here]


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced_and_its_jobs_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEADLY_MARK", str(tmp_path / "died"))
    workers = Workers([TasksSpec(source="tests.reference.rl.deadly:deadly", count=3)], 1)
    dialog = Dialog((Message("assistant", "x"),))
    try:
        tickets = [
            workers.submit(EnvironmentJob("0/deadly-2", None, dialog, "judge"), 0.0)
            for _ in range(3)
        ]
        done = [workers.take(ticket) for ticket in tickets]
        assert all(one.verdict is not None and one.verdict.success for one in done)
        assert (tmp_path / "died").exists()
        with pytest.raises(FailedError, match="no such file"):
            workers.take(workers.submit(EnvironmentJob("0/deadly-1", None, dialog, "judge"), 0.0))
        with pytest.raises(UsageError, match="TW642"):
            workers.take(workers.submit(EnvironmentJob("0/deadly-0", None, dialog, "judge"), 0.0))
    finally:
        workers.close()


def test_an_error_of_a_world_here_is_told_like_one_elsewhere() -> None:
    here = InProcess({"x": RlTask("x", "", Deadly("never"))})
    job = EnvironmentJob("x", None, Dialog((Message("assistant", "x"),)), "judge")
    with pytest.raises(FailedError, match="ValueError: no such file"):
        here.take(here.submit(job, 0.0))


def test_latency_has_the_median_and_the_tail_of_its_section() -> None:
    drawn = sorted(latency(SLOW, seed, 0) for seed in range(4000))
    assert median(drawn) == pytest.approx(0.1, rel=0.1)
    # e^(1.2 z) at the 99th percentile, z = 2.326.
    assert drawn[int(0.99 * len(drawn))] == pytest.approx(0.1 * 16.3, rel=0.25)
    assert latency(SLOW, 5, 1) == latency(SLOW, 5, 1) != latency(SLOW, 5, 2)
    assert latency(EnvironmentsSpec(), 5, 1) == 0


def test_an_answer_comes_after_its_latency_and_a_free_place() -> None:
    spec = EnvironmentsSpec.model_validate({"at_once": 2, "step": "10ms"})
    assert due(spec, 0.0, 5, []) == 6
    assert due(spec, 0.1, 5, [9]) == 16
    assert due(spec, 0.1, 5, [9, 30]) == 9 + 11, "when the first place is free"
    assert due(spec, 0.1, 5, [9, 20, 30]) == 20 + 11, "one waits there already"
