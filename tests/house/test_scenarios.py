"""The scenarios we ship say what their names and comments say, and answer."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Protocol

import pytest

import twin

SHIPPED = sorted((Path(__file__).parents[2] / "scenarios").glob("*.yaml"))


class Answer(Protocol):
    """Exit code and JSON document of `twin run ARGUMENTS --json`."""

    def __call__(self, *arguments: str) -> tuple[int, dict[str, Any]]: ...


@pytest.fixture
def answer(program: Path, tmp_path: Path) -> Answer:
    """Runs the command in an empty folder, as someone would who has no checkout."""

    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        done = subprocess.run(
            [program, "run", *arguments, "--json"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    return run


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_file_name_tells_gpu_count_and_type(path: Path) -> None:
    scenario = twin.load(path)
    name = re.search(r"-(\d+)x([a-z0-9]+)", path.stem)
    assert name
    assert scenario.cluster.gpus == int(name[1])
    assert name[2] in scenario.cluster.node.gpu.name.lower()


@pytest.mark.parametrize(
    ("name", "microbatches"),
    [
        ("kimi-k2-256xh800", 1024),
        ("kimi-k2-512xh800", 512),
        ("kimi-k2-2048xh800", 128),
        ("gpt-175b-64xa100-full", 64),
        ("gpt-175b-64xa100-selective", 64),
    ],
)
def test_microbatches_follow_from_batch_and_ranks(name: str, microbatches: int, root: Path) -> None:
    """16,384 sequences over GPUs / 16 stages data ranks; 64 sequences over one replica."""
    scenario = twin.load(root / "scenarios" / f"{name}.yaml")
    assert twin.plan(scenario).microbatches == microbatches


def test_kimi_k2_fits_with_its_memory_policy_and_says_that_routing_is_balanced(
    answer: Answer,
) -> None:
    code, report = answer("kimi-k2-2048xh800")
    assert (code, report["fits"]) == (0, True)
    assert "balanced-routing" in [warning["code"] for warning in report["warnings"]]


def test_kimi_k2_does_not_fit_without_offload(answer: Answer) -> None:
    code, report = answer("kimi-k2-256xh800", "--fidelity", "fast", "--set", "memory.offload=[]")
    assert (code, report["fits"]) == (4, False)
    assert report["memory"]["peak_bytes"] > report["memory"]["budget"]


@pytest.mark.parametrize(("name", "measured"), [("full", 18.13), ("selective", 13.75)])
def test_gpt_175b_is_within_ten_percent_of_its_measured_step(
    name: str, measured: float, answer: Answer
) -> None:
    """Korthikanti et al. 2022, Table 5; neither row was used to set any efficiency."""
    _, report = answer(f"gpt-175b-64xa100-{name}")
    assert report["kpis"]["step_seconds"] == pytest.approx(measured, rel=0.10)
