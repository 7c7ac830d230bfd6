"""All attempts together, and the end of a run whose caller is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from reference.sandbox.isolation import Guarantees, Isolation
from tests.reference.sandbox.attempt import alive, end
from tests.reference.sandbox.test_escape_amounts import ATTEMPTS as AMOUNTS
from tests.reference.sandbox.test_escape_files import ATTEMPTS as FILES
from tests.reference.sandbox.test_escape_network import ATTEMPTS as NETWORK
from tests.reference.sandbox.test_escape_processes import ATTEMPTS as PROCESSES
from tests.reference.sandbox.test_escape_rights import ATTEMPTS as RIGHTS

ATTEMPTS = (*NETWORK, *FILES, *AMOUNTS, *PROCESSES, *RIGHTS)


def test_there_are_twenty_attempts_and_every_guarantee_is_tried() -> None:
    assert len({one.name for one in ATTEMPTS}) >= 20
    tried = {one.needs for one in ATTEMPTS} | {"dies_with_caller"}
    assert tried == set(Guarantees.__dataclass_fields__)


def test_a_run_ends_when_its_caller_is_killed(isolation: Isolation) -> None:
    marker = f"marker-{os.getpid()}-caller-{isolation.kind}"
    kind = "best()" if isolation.kind == "bubblewrap" else "plain()"
    text = f"""
from reference.sandbox.command import code
from reference.sandbox.run import best, run
from reference.sandbox.plain import plain
text = "import subprocess, sys\\n"
text += "subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)', '{marker}'])"
run(code(text), isolation={kind})
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
