from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reference.config import RunSpec, load_run
from reference.sft import load_tune
from reference.train import train
from tests.reference.sft.dialogues import ROOM, row, write
from tests.reference.train.mini import MINI

Tune = Callable[..., RunSpec]
"""A small fine-tuning in a folder of its own, under overrides."""


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small run of three steps, in a folder of its configuration and text."""
    home = tmp_path_factory.mktemp("trained")
    texts = home / "texts"
    texts.mkdir()
    for number in range(20):
        words = " ".join(f"{number} times {other}." for other in range(20))
        (texts / f"{number}.txt").write_text(words, encoding="utf-8")
    file = home / "mini.yaml"
    file.write_text(MINI.format(out=home / "run", texts=texts, cache=home / "cache"))
    train(load_run(file, ["train.steps=3"]))
    return home / "run"


@pytest.fixture
def dialogues(tmp_path: Path) -> Path:
    """Ten dialogues, of which two are held out."""
    rows = [row(number, held_out=number >= 8) for number in range(10)]
    return write(tmp_path / "dialogues.jsonl", rows)


@pytest.fixture
def tune(tmp_path: Path, trained: Path, dialogues: Path) -> Tune:
    file = tmp_path / "tune.yaml"
    file.write_text(
        f"start: {trained}\n"
        f"dialogs: {{source: {dialogues}}}\n"
        f"train: {{steps: 6, sequence: {ROOM}, micro_batch: 1, accumulate: 2, precision: fp32, "
        f"output: {tmp_path / 'out'}, evaluate_every: 3, checkpoint_every: 2}}\n"
        "optimizer: {lr: 0.003}\n"
    )
    return lambda *overrides: load_tune(file, overrides)
