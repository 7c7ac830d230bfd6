"""Kills after something was stored, and two writers of one store: nothing is lost, nothing doubled,
nothing half-written is read."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.conftest import SMALL

pytestmark = pytest.mark.slow
KILLS: Final = 8
TWIN: Final = "import sys; from twin.cli.main import main; sys.exit(main())"
BATCHES: Final = ",".join(f"{8 * count}seq" for count in range(1, 31))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(SMALL, encoding="utf-8")
    return tmp_path


def sweep(folder: Path, store: str, name: str) -> subprocess.Popen[bytes]:
    """A sweep of thirty points, which writes each as soon as it is known."""
    words = ["sweep", "small.yaml", "--grid", f"train.global_batch={BATCHES}", "--jobs", "1"]
    return subprocess.Popen(
        [sys.executable, "-c", TWIN, *words, "-q", "-o", f"{name}.json"],
        cwd=folder,
        env={**os.environ, "TWIN_RUNS": str(folder / store)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def found(folder: Path, name: str) -> list[dict[str, Any]]:
    """Points of a sweep that has ended, without what says where they come from."""
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["points"]


def stored(folder: Path, store: str) -> set[Path]:
    return {path for path in (folder / store).rglob("*.json") if path.name[0] != "."}


def test_a_sweep_that_is_killed_again_and_again_goes_on(small: Path) -> None:
    assert sweep(small, "calm", "calm").wait() == 0
    chance = random.Random(5)
    kept: set[Path] = set()
    killed = 0
    for _ in range(KILLS):
        process = sweep(small, "killed", "killed")
        while process.poll() is None and stored(small, "killed") <= kept:
            time.sleep(0.01)
        time.sleep(chance.uniform(0.0, 0.02))
        killed += process.poll() is None
        process.kill()
        process.wait()
        now = stored(small, "killed")
        assert kept <= now
        kept = now
        for path in kept:
            json.loads(path.read_text(encoding="utf-8"))
        if len(kept) >= len(found(small, "calm")):
            break
    assert killed > 0
    assert sweep(small, "killed", "killed").wait() == 0
    assert found(small, "killed") == found(small, "calm")
    assert len(stored(small, "killed")) == len(stored(small, "calm"))


def test_two_writers_of_one_store_have_the_same_points(small: Path) -> None:
    both = [sweep(small, "shared", name) for name in ("one", "other")]
    assert [process.wait() for process in both] == [0, 0]
    assert found(small, "one") == found(small, "other")
    assert len(stored(small, "shared")) == len(found(small, "one"))
