"""The scenarios we ship say what their names and comments say, and answer."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

import twin

SHIPPED = sorted((Path(__file__).parents[2] / "scenarios").glob("*.yaml"))


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


def test_kimi_k2_fits_and_says_that_routing_is_balanced(program: Path, tmp_path: Path) -> None:
    """The command in an empty folder, as someone runs it who has no checkout."""
    words = [program, "run", "kimi-k2-2048xh800", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=True)
    report = json.loads(done.stdout)
    assert report["fits"]
    assert "balanced-routing" in [warning["code"] for warning in report["warnings"]]


def test_kimi_k2_does_not_fit_without_offload() -> None:
    memory = twin.plan(twin.load("kimi-k2-256xh800", ["memory.offload=[]"])).memory
    assert not memory.fits
    assert memory.peak.peak_bytes > memory.budget
