"""A small run in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from reference.config import load_run
from tests.reference.train.mini import MINI, Load


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty little documents."""
    folder = tmp_path_factory.mktemp("texts")
    for number in range(40):
        lines = [f"{number} times {other} is {number * other}.\n" for other in range(20)]
        folder.joinpath(f"{number}.txt").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture
def config(tmp_path: Path, texts: Path) -> Path:
    """The configuration as a file; its run writes into `out` beside it."""
    file = tmp_path / "mini.yaml"
    text = MINI.format(out=tmp_path / "out", texts=texts, cache=texts.parent / "cache")
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture
def load(config: Path) -> Load:
    """The run under overrides."""
    return lambda *overrides: load_run(config, overrides)
