"""Every kernel compiles for the GPUs that it is meant for, within their registers and shared
memory, and with their tensor cores. In a process of its own: others have Triton interpret."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

triton = pytest.importorskip("triton")

PAGE = Path(__file__).parents[3] / "docs" / "gpu-kernels.md"
COMMAND = [sys.executable, "-m", "tests.reference.kernels.ahead_of_time"]


@pytest.mark.parametrize(
    ("capability", "words"),
    [
        (90, ["--hot"]),
        pytest.param(80, [], marks=pytest.mark.slow),
        pytest.param(90, [], marks=pytest.mark.slow),
        pytest.param(100, [], marks=pytest.mark.slow),
    ],
)
def test_kernels_compile_within_the_limits_of_a_gpu(capability: int, words: list[str]) -> None:
    """The command holds the limits; the page says what it finds."""
    words = [*COMMAND, str(capability), *words]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line)["row"] for line in done.stdout.splitlines()]
    assert rows
    table = PAGE.read_text().partition(f"## sm_{capability}:")[2].partition("## ")[0]
    if f"Triton {triton.__version__} " in PAGE.read_text():
        assert [row for row in rows if row not in table] == [], "write the page again"
