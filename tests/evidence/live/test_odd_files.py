"""Folders that others write may hold anything under a file's name: no reader waits or reads on."""

import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from twin.answers import run_store
from twin.errors import UsageError
from twin.evidence.live.seals import CHECKS, read_seals
from twin.evidence.live.trainer_log import CONFIG, NAME, Log, RunPlan, run_plan
from twin.evidence.measured.run_folder import read
from twin.loading.files import read_bytes


@pytest.fixture(autouse=True)
def in_time() -> Generator[None]:
    """Two seconds: a reader that waits is ended."""

    def end(*_: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, 2)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def odd(path: Path) -> Path:
    """A named pipe that nobody writes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    return path


def test_a_device_and_a_pipe_are_no_files(tmp_path: Path):
    device = tmp_path / "device"
    device.symlink_to("/dev/full")
    for path in (device, odd(tmp_path / "pipe"), tmp_path):
        with pytest.raises(OSError, match=str(path)):
            read_bytes(path)


def test_a_file_of_terabytes_is_refused_before_it_is_read(tmp_path: Path):
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="2 GB"):
        read_bytes(tmp_path / "sparse")


def test_stored_runs_seals_logs_and_timelines_that_are_pipes_are_none(tmp_path, monkeypatch):
    monkeypatch.setenv("TWIN_RUNS", str(tmp_path))
    odd(tmp_path / "a" / run_store.RUN)
    assert run_store.stored() == []
    odd(tmp_path / "seals" / "one.json")
    odd(tmp_path / "seals" / CHECKS)
    found = read_seals(tmp_path / "seals")
    assert (found.seals, len(found.refused)) == ((), 2)
    odd(tmp_path / "run" / NAME)
    odd(tmp_path / "run" / CONFIG)
    log = Log(tmp_path / "run" / NAME)
    assert not log.look()
    assert run_plan(tmp_path / "run") == RunPlan()
    odd(tmp_path / "run" / "timeline" / "rank-00000.jsonl")
    with pytest.raises(UsageError, match="TW330"):
        read(tmp_path / "run")
