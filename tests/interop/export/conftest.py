"""Runs to export: a small one, and one whose window repeats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.conftest import SMALL
from twin.answers import Run, ask
from twin.loading import load

COMMAND = "twin run small.yaml --set cost.gpu_hour=3USD"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two nodes, two stages, all of it played."""
    file = tmp_path_factory.mktemp("small") / "small.yaml"
    file.write_text(SMALL)
    return ask(load(file, ["cost.gpu_hour=3USD"]), cache=False, command=COMMAND)


@pytest.fixture
def repeating(small: Run) -> Run:
    """The same, had 1 ms of it run three times."""
    trace = replace(small.trace, repeats=3, window_start=10**6, window_end=2 * 10**6)
    return replace(small, trace=trace)


@pytest.fixture
def small_file(tmp_path: Path) -> str:
    """The name of the file of the small scenario, in the folder where commands run."""
    (tmp_path / "small.yaml").write_text(SMALL)
    return "small.yaml"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """An empty folder."""
    return tmp_path
