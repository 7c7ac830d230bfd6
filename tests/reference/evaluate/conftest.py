"""A run small enough to be judged in tests: bytes as tokens, trained for a few steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from reference.config import RunSpec, load_run
from reference.train import train
from tests.reference.train.mini import MINI

MEANS = ["train.steps=2", "train.evaluate_every=0", "train.checkpoint_every=0", "train.keep=1"]


@pytest.fixture(scope="session")
def mini(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of the run, in a folder with its text."""
    home = tmp_path_factory.mktemp("judged")
    texts = home / "texts"
    texts.mkdir()
    for number in range(20):
        lines = [f"{number} times {other} is {number * other}.\n" for other in range(6)]
        texts.joinpath(f"{number}.txt").write_text("".join(lines), encoding="utf-8")
    file = home / "mini.yaml"
    file.write_text(MINI.format(out=home / "run", texts=texts, cache=home / "cache"))
    return file


@pytest.fixture(scope="session")
def run(mini: Path) -> RunSpec:
    """The run after its end; its folder is `train.output`."""
    found = load_run(mini, [*MEANS, "train.final_sequences=null"])
    train(found)
    return found
