"""Sweeps on real clusters of this machine: the same answers, and a worker that dies costs only its
task."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from operator import call
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from twin.answers.executors import Died, PoolChoice, play

pytestmark = pytest.mark.slow

SWEEP = [
    "sweep", "gpt-175b-64xa100-full", "--json",
    "--grid", "parallel.pipeline=4,8", "--grid", "parallel.micro_batch=1,2",
]  # fmt: skip
BIN = Path(sys.executable).parent


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def running(*command: str) -> Iterator[None]:
    """A process with its children, for so long."""
    job = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield
    finally:
        os.killpg(job.pid, signal.SIGTERM)
        job.wait(30)


@pytest.fixture(scope="module")
def dask() -> Iterator[str]:
    port = free_port()
    url = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "distributed.cli"]
    scheduler = [*command[:2], "distributed.cli.dask_scheduler", "--port", str(port)]
    worker = [*command[:2], "distributed.cli.dask_worker", f"tcp://{url}", "--nworkers", "2"]
    with running(*scheduler, "--no-dashboard"), running(*worker, "--nthreads", "1"):
        yield f"dask://{url}"


@pytest.fixture(scope="module")
def ray() -> Iterator[str]:
    pytest.importorskip("ray")
    # Ray gives its workers ports from 10002 to 19999.
    port, client = free_port(), 20_000 + free_port() % 10_000
    quiet = os.environ | {"RAY_USAGE_STATS_ENABLED": "0"}
    head = ["--head", f"--port={port}", f"--ray-client-server-port={client}"]
    few = ["--num-cpus=2", "--include-dashboard=false"]
    subprocess.run([BIN / "ray", "start", *head, *few], env=quiet, check=True, capture_output=True)
    try:
        until = monotonic() + 120
        while monotonic() < until:
            with socket.socket() as one:
                if not one.connect_ex(("127.0.0.1", client)):
                    break
            sleep(1)
        yield f"ray://127.0.0.1:{client}"
    finally:
        subprocess.run([BIN / "ray", "stop", "--force"], check=True, capture_output=True)


def swept(tmp_path: Path, *words: str) -> dict[str, Any]:
    own = os.environ | {"TWIN_RUNS": str(tmp_path)}
    done = subprocess.run(
        [BIN / "twin", *SWEEP, *words],
        env=own, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", ["dask", "ray"])
def test_a_cluster_gives_the_answers_of_this_machine(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url: str = request.getfixturevalue(kind)
    there = swept(tmp_path / "there", "--cluster", url)
    assert there["evaluated"] == 4
    assert there["points"] == swept(tmp_path / "here", "--jobs", "1")["points"]


@pytest.mark.parametrize("kind", ["dask", "ray"])
def test_a_worker_that_dies_there_costs_only_its_task(
    kind: str, request: pytest.FixtureRequest
) -> None:
    url: str = request.getfixturevalue(kind)
    tasks = [partial(int, n) if n != 3 else partial(os._exit, 1) for n in range(8)]
    found = dict(play(call, tasks, pool=PoolChoice(cluster=url)))
    assert isinstance(found.pop(3), Died)
    assert found == {n: n for n in range(8) if n != 3}
