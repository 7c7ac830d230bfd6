"""Every attempt of the folder `escapes`, and the end of a run whose caller is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from reference.sandbox.isolation import Guarantees, Isolation
from reference.sandbox.job import RunLimits
from tests.reference.sandbox.attempt import Attempt, alive, apart, check_apart, check_together, end
from tests.reference.sandbox.escapes import amounts, calls, files, network, processes, rights

KINDS = [network, files, amounts, processes, rights, calls]
ATTEMPTS = [attempt for kind in KINDS for attempt in kind.ATTEMPTS]


@pytest.mark.parametrize("attempt", apart(ATTEMPTS))
def test_an_attempt_fails(
    attempt: Attempt,
    isolation: Isolation,
    limits: RunLimits,
    outside: Path,
    request: pytest.FixtureRequest,
) -> None:
    check_apart(attempt, isolation, limits, outside, request)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.split(".")[-1])
def test_attempts_that_share_a_run_fail(
    kind: ModuleType, isolation: Isolation, limits: RunLimits, outside: Path
) -> None:
    check_together(kind.ATTEMPTS, isolation, limits, outside)


def test_there_are_enough_attempts_and_every_guarantee_is_tried() -> None:
    assert len({one.name for one in ATTEMPTS}) == len(ATTEMPTS)
    bombs = len(amounts.ATTEMPTS)
    assert bombs >= 30
    assert len(ATTEMPTS) - bombs >= 120
    page = Path(__file__).parents[3].joinpath("docs", "security.md").read_text(encoding="utf-8")
    for words, count in (("escapes`", len(ATTEMPTS) - bombs), ("escapes/amounts.py`", bombs)):
        assert f"{words} | {count} |" in page
    assert all(f"`{name}`" in page for name in Guarantees.__dataclass_fields__)
    tried = {one.needs for one in ATTEMPTS} | {"dies_with_caller"}
    assert tried == set(Guarantees.__dataclass_fields__)


def test_a_run_ends_when_its_caller_is_killed(isolation: Isolation) -> None:
    marker = f"marker-{os.getpid()}-caller-{isolation.kind}"
    kind = "best()" if isolation.kind == "bubblewrap" else "plain()"
    text = f"""
from reference.sandbox.job import python_text
from reference.sandbox.run import best, run
from reference.sandbox.isolation import plain
text = "import subprocess, sys\\n"
text += "subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)', '{marker}'])"
run(python_text(text), isolation={kind})
"""
    caller = subprocess.Popen([sys.executable, "-c", text], cwd=Path(__file__).parents[3])
    try:
        _wait_until(lambda: len(alive(f"time.sleep(60)\0{marker}")) > 0)
    finally:
        caller.kill()
        caller.wait()
    try:
        _wait_until(lambda: not alive(f"time.sleep(60)\0{marker}"))
    finally:
        end(marker)


def _wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end, "it does not come to be"
        time.sleep(0.02)
