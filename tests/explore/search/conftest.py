"""A small mixture of experts on two nodes, whose whole space can be tried."""

from __future__ import annotations

import pytest

import twin
from twin.scenario import Scenario

SMALL = (
    "name=small",
    "model.layers=6",
    "model.hidden=2048",
    "model.vocab=32768",
    "model.attention.heads=16",
    "model.moe.experts=32",
    "model.moe.first_dense_layers=1",
    "cluster.nodes=2",
    "parallel.pipeline=2",
    "parallel.virtual=2",
    "parallel.expert=8",
    "train.global_batch=128seq",
    "train.tokens=100G",
)


@pytest.fixture(scope="session")
def small() -> Scenario:
    """Six layers, 32 experts, 16 GPUs."""
    return twin.load("kimi-k2-256xh800", SMALL)
