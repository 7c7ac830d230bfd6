"""A small run in phases: two nodes, each step answered in a fraction of a second."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import SMALL
from twin.loading import load
from twin.scenario import Scenario

TWO = """\
schema: 1
extends: plain.yaml
train: {tokens: 163.84M}
phases:
  - name: short
    steps: 5000
  - name: long
    until: 163.84M
    train: {global_batch: 16seq}
    memory: {recompute: [attention_core]}
"""
"""5,000 steps of 8 x 2,048 tokens, and as many tokens again in batches twice as large."""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a run in phases over the small plain one, its answers kept in a folder of the test."""
    monkeypatch.setenv("TWIN_RUNS", str(tmp_path / "runs"))
    (tmp_path / "plain.yaml").write_text(SMALL)

    def put(text: str = TWO, **replaced: str) -> Path:
        for old, new in replaced.items():
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "whole.yaml").write_text(text)
        return tmp_path / "whole.yaml"

    return put


@pytest.fixture
def two(write: Write) -> Scenario:
    """The run in two phases."""
    return load(write())
