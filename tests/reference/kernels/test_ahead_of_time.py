"""Every kernel compiles for the GPUs that it is meant for, within their registers and shared
memory, and with their tensor cores. In a process of its own: others have Triton interpret."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("triton")
LIMITS = {80: 166_912, 90: 232_448, 100: 232_448}
"""Bytes of shared memory of a block (CUDA C++ programming guide, technical specifications)."""
TENSOR = {80: "mma.sync", 90: "wgmma", 100: "tcgen05.mma"}
REGISTERS = 255


@pytest.mark.parametrize(
    "capability",
    [pytest.param(80, marks=pytest.mark.slow), 90, pytest.param(100, marks=pytest.mark.slow)],
)
def test_kernels_compile_within_the_limits_of_a_gpu(capability: int) -> None:
    words = [sys.executable, "-m", "tests.reference.kernels.ahead_of_time", str(capability)]
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr[-2000:]
    found = {one["name"]: one for one in map(json.loads, said.stdout.splitlines())}
    assert len(found) == (4 if capability < 89 else 6)
    for name, one in found.items():
        assert one["shared"] <= LIMITS[capability], name
        assert one["REG"] <= REGISTERS, name
        assert one["LOCAL"] == 0, f"{name} spills registers"
        assert (TENSOR[capability] in one["tensor"]) == name.startswith("max_logit"), name
