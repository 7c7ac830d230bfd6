"""Real runs in folders of the test run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.evidence.measured.timelines import pipeline


@pytest.fixture(scope="session")
def piped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five steps of two stages under GPipe, as `tests.evidence.measured.timelines` says."""
    return pipeline(tmp_path_factory.mktemp("piped") / "run")
