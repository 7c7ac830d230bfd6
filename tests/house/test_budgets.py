"""What the flagship answer may cost. Run alone, by `make verify`."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

import twin

pytestmark = pytest.mark.benchmark


MEASURED = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(child.pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
"""
"""Runs a command from a small process: a child's peak memory counts its parent's at the fork."""


def test_the_flagship_run_takes_under_3_s_of_cpu_and_400_mb(program: Path, tmp_path: Path) -> None:
    words = [program, "run", "kimi-k2-2048xh800", "--json", "--no-cache"]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *words],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        check=True,
        text=True,
    )
    code, cpu, peak = (float(word) for word in done.stdout.split())
    resident = peak * (1 if sys.platform == "darwin" else 1024)  # macOS counts bytes
    print(f"{cpu:.2f} s of CPU, {resident / 2**20:.0f} MiB")
    assert code == 0
    assert cpu < 3.0
    assert resident < 400e6


def test_help_answers_in_half_a_second(program: Path, tmp_path: Path) -> None:
    walls: list[float] = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run(
            [program, "--help"],
            stdout=subprocess.DEVNULL,
            cwd=tmp_path,
            check=True,
        )
        walls.append(time.perf_counter() - start)
    print(f"twin --help: {min(walls):.2f} s")
    assert min(walls) < 0.5


def test_the_simulation_of_the_flagship_takes_under_1500_ms() -> None:
    program = twin.lower(twin.plan(twin.load("kimi-k2-2048xh800")))
    times: list[float] = []
    events = 0
    for _ in range(3):
        start = time.process_time()
        trace = twin.simulate(program)
        times.append(time.process_time() - start)
        events = trace.events
    print(f"simulate kimi-k2-2048xh800: {min(times):.2f} s of CPU, {events} events")
    assert min(times) < 1.5
