"""A trainer that writes a timeline at once, whatever it is asked for."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.evidence.measured.timelines import pipeline
from twin.evidence.loop.run import TIMED


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders of runs that were started, but for those that time passes, with seals on a shelf
    of their own."""
    monkeypatch.setenv("TWIN_SEALS", str(tmp_path / "seals"))
    found: list[Path] = []

    def start(words: Sequence[str], log: Path) -> None:
        configuration = Path(words[-2])
        asked = json.loads(configuration.read_text())["train"]
        monkeypatch.setattr("tests.evidence.measured.timelines.ORIGIN", time.time_ns())
        made = pipeline(Path(asked["output"]), asked["steps"])
        if made.name != TIMED:
            found.append(made)
        log.write_text("done")

    monkeypatch.setattr("twin.evidence.loop.run.start", start)
    return found
