"""A real sweep in a process of its own: killed, it goes on where it was; interrupted, it ends at
once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.explore.sweep.conftest import SMALL
from twin.answers.executors import PoolChoice
from twin.explore.sweep.grid import ScenarioSource, grid_of, read_axes
from twin.explore.sweep.sweep import SweepRequest, sweep
from twin.loading import load

ROOT = Path(__file__).parents[3]
AXIS = "train.global_batch=16seq..640seq:16seq"
POINTS = 40


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Generator[Start]:
    """Starts `twin sweep` in a process group of its own, which keeps its points in the folder; no
    process of it outlives the test."""
    (tmp_path / "small.yaml").write_text(SMALL)
    code = "from twin.cli.main import main; raise SystemExit(main())"
    started: list[subprocess.Popen[str]] = []

    def run(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code, "sweep", "small.yaml", "--grid", AXIS, "-j", "2", *words],
            cwd=tmp_path,
            env=os.environ | {"TWIN_RUNS": str(tmp_path / "runs"), "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def kept(folder: Path) -> dict[Path, int]:
    """The files of finished points, with the time when each was written."""
    return {file: file.stat().st_mtime_ns for file in (folder / "runs").rglob("*/??/*.json")}


def wait_for(what: Callable[[], bool], seconds: float = 60.0) -> None:
    """Look again and again until it holds."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def runs(pid: int) -> bool:
    """True for a process that has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")


def document(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return json.loads(out)


@pytest.mark.slow
@linux
def test_a_killed_sweep_goes_on_where_it_was(start: Start, tmp_path: Path):
    killed = start("--json")
    wait_for(lambda: len(kept(tmp_path)) >= 5)
    workers = children(killed.pid)
    killed.kill()
    killed.wait()
    wait_for(lambda: not any(runs(worker) for worker in workers), 10)
    before = kept(tmp_path)
    assert 5 <= len(before) < POINTS

    resumed = document(start("--json"))
    assert (resumed["examined"], resumed["cached"]) == (POINTS, len(before))
    assert resumed["evaluated"] == POINTS - len(before)
    after = kept(tmp_path)
    assert len(after) == POINTS
    assert {file: after[file] for file in before} == before

    scenario, axes = load(tmp_path / "small.yaml"), read_axes([AXIS])
    asked = SweepRequest(
        scenario, ScenarioSource(str(tmp_path / "small.yaml")), grid_of(scenario, axes)
    )
    undisturbed = sweep(asked, pool=PoolChoice(jobs=1), folder=None).to_json()
    assert resumed | {"evaluated": POINTS, "cached": 0} == json.loads(json.dumps(undisturbed))


@linux
@pytest.mark.slow
def test_ctrl_c_ends_a_sweep_at_once_and_keeps_what_is_finished(start: Start, tmp_path: Path):
    process = start()
    wait_for(lambda: len(kept(tmp_path)) >= 1)
    workers = children(process.pid)
    begin = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)  # a terminal tells the whole group
    out, err = process.communicate(timeout=20)
    assert time.monotonic() - begin < 5
    assert process.returncode == 130, err
    assert "Traceback" not in out + err
    wait_for(lambda: not any(runs(worker) for worker in workers), 10)
    assert kept(tmp_path)


@linux
@pytest.mark.slow
def test_a_terminated_sweep_leaves_no_worker_and_no_semaphore(start: Start, tmp_path: Path):
    process = start()
    wait_for(lambda: len(kept(tmp_path)) >= 1)
    workers = children(process.pid)
    process.terminate()
    out, err = process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert "leaked" not in err
    assert "Traceback" not in out + err
    wait_for(lambda: not any(runs(worker) for worker in workers), 10)
