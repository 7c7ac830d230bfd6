"""A small scenario for the command."""

from __future__ import annotations

from pathlib import Path

import pytest

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


@pytest.fixture
def small(tmp_path: Path) -> str:
    """The name of a small valid scenario in the current folder."""
    (tmp_path / "small.yaml").write_text(SMALL)
    return "small.yaml"
