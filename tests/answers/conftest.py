"""A small scenario, and a folder of runs that every test has to itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import SMALL
from twin.answers import run_store
from twin.loading import load
from twin.scenario import Scenario


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of stored runs; it does not exist yet."""
    monkeypatch.setenv("TWIN_RUNS", str(tmp_path / "runs"))
    run_store._warn_once.cache_clear()
    return tmp_path / "runs"


@pytest.fixture
def small(tmp_path: Path) -> Scenario:
    """Two nodes, answered in a fraction of a second."""
    (tmp_path / "small.yaml").write_text(SMALL)
    return load(tmp_path / "small.yaml")
