"""A small scenario, and points made from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twin.answers import Fidelity
from twin.answers.nearest import Document, document
from twin.explore.sweep.grid import ScenarioSource
from twin.explore.sweep.points import SweepPoint
from twin.loading import load
from twin.scenario import Scenario

SMALL = """\
schema: 1
name: small
model: gpt-22b
cluster: {node: a100-80gb-8gpu-8x200g, nodes: 2, fabric: rail-fat-tree-200g}
parallel: {pipeline: 2, tensor: 8, sequence_parallel: true, schedule: 1f1b}
memory: {recompute: [full]}
train: {tokens: 1T, global_batch: 8seq, sequence: 2048tok, optimizer: adamw}
cost: {gpu_hour: 2.0USD}
calibration: a100-megatron
software: null
"""
"""Two nodes, answered in some ten milliseconds."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of the small scenario."""
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


@pytest.fixture
def source(file: Path) -> ScenarioSource:
    """The small scenario, as a command names it."""
    return ScenarioSource(str(file))


@pytest.fixture
def small(file: Path) -> Scenario:
    """The small scenario."""
    return load(file)


@pytest.fixture
def point(small: Scenario) -> Callable[..., SweepPoint]:
    """Makes a point of the small scenario: `point({"cluster.nodes": 4})`."""
    base: Document = document(small)

    def make(overrides: dict[str, Any] | None = None, fidelity: Fidelity = "events") -> SweepPoint:
        return SweepPoint(base, overrides or {}, fidelity)

    return make
