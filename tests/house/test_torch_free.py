"""A planner's environment, made by `make .venv-app/.stamp`, has no torch and needs none."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def planner_bin(root: Path) -> Path:
    """The programs of the torch-free environment."""
    programs = root / ".venv-app" / "bin"
    if not (programs / "twin").exists():
        pytest.fail("the torch-free environment is missing: make .venv-app/.stamp")
    return programs


def test_a_planners_environment_has_no_torch(planner_bin: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [planner_bin / "python", "-c", "import torch"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 1
    assert "ModuleNotFoundError: No module named 'torch'" in done.stderr


def test_a_run_answers_without_torch(planner_bin: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [planner_bin / "twin", "run", "kimi-k2-2048xh800", "--json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["fits"] is True
    assert report["kpis"]["step_seconds"] > 0
    assert sum(report["breakdown_ns"].values()) == report["step_ns"]
