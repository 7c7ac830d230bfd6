"""The command in this process: its exit code, its data and its messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from twin.cli.main import main

SMALL = """\
schema: 1
name: small
model: gpt-22b
cluster:
  node: a100-80gb-8gpu-8x200g
  nodes: 2
  fabric: rail-fat-tree-200g
parallel:
  pipeline: 2
  tensor: 8
  sequence_parallel: true
  schedule: 1f1b
memory:
  recompute: [full]
train:
  tokens: 1T
  global_batch: 8seq
  sequence: 2048tok
  optimizer: adamw
cost:
  gpu_hour: 2.0USD
calibration: a100-megatron
software: null
"""
"""Two nodes, answered in a fraction of a second."""


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


@pytest.fixture
def twin_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Runs `twin WORDS` in an empty folder, without colour."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("TWIN_DEBUG", raising=False)

    def run(*words: str) -> Outcome:
        code = main(words)
        seen = capsys.readouterr()
        return Outcome(code, seen.out, seen.err)

    return run


@pytest.fixture
def small(tmp_path: Path) -> str:
    """The name of a small valid scenario in the current folder."""
    (tmp_path / "small.yaml").write_text(SMALL)
    return "small.yaml"
