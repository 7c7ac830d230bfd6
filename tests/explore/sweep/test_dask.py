"""A real Dask cluster on this machine: a scheduler and two workers, each a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.answers import victims
from twin.answers.executors import Died, PoolChoice, play
from twin.errors import UsageError
from twin.explore.sweep.grid import Grid, ScenarioSource
from twin.explore.sweep.sweep import SweepRequest, sweep
from twin.loading import load

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of a scheduler with two workers, which gives a task up at its first death."""
    folder = tmp_path_factory.mktemp("dask")
    env = os.environ | {
        "PYTHONPATH": str(ROOT),
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
        "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "None",
    }
    where = folder / "scheduler.json"
    scheduler = ("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    workers = ("worker", "--nworkers", "2", "--nthreads", "1", "--no-dashboard")
    words = [(*one, "--scheduler-file", str(where)) for one in (scheduler, workers)]
    log = (folder / "log").open("w")
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "dask", *command],
            cwd=folder,
            env=env,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        for command in words
    ]
    try:
        end = time.monotonic() + 60
        while not where.exists():
            assert time.monotonic() < end, (folder / "log").read_text()
            time.sleep(0.05)
        yield json.loads(where.read_text())["address"].replace("tcp://", "dask://")
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.close()


@pytest.mark.slow
def test_a_sweep_on_two_workers_says_what_one_process_says(
    cluster: str, file: Path, tmp_path: Path
):
    grid = Grid({"cluster.nodes": (2, 3, 4, 8), "parallel.micro_batch": (1, 2, 4)})
    asked = SweepRequest(load(file), ScenarioSource(str(file)), grid)
    there = sweep(asked, pool=PoolChoice(cluster=cluster), folder=tmp_path / "points")
    here = sweep(asked, pool=PoolChoice(jobs=1), folder=None)
    assert there.to_json() == here.to_json()
    assert there.counts.cached == 0
    # What came back is kept on this side, so the cluster is not even asked again.
    again = sweep(asked, pool=PoolChoice(cluster="dask://127.0.0.1:1"), folder=tmp_path / "points")
    assert again.to_json()["points"] == here.to_json()["points"]
    assert again.to_json()["evaluated"] == 0


@pytest.mark.slow
def test_a_worker_of_the_cluster_that_dies_costs_only_its_task(cluster: str):
    tasks = range(40)
    found = dict(play(victims.square_or_die, tasks, pool=PoolChoice(cluster=cluster)))
    assert isinstance(found[7], Died)
    assert "died" in found[7].reason
    others = {index: index * index for index in tasks if index != 7}
    assert {index: found[index] for index in tasks if index != 7} == others


def test_a_cluster_that_does_not_answer_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("twin.answers.executors._CONNECT_SECONDS", 0.5)
    with pytest.raises(UsageError, match="does not answer"):
        list(play(victims.square, range(3), pool=PoolChoice(cluster="dask://127.0.0.1:1")))
