"""Oversubscribed spines slow what crosses them, and nothing else."""

from __future__ import annotations

import pytest

from twin.engine import lower, plan, simulate
from twin.loading import load

pytestmark = pytest.mark.usefixtures("each_player")
BATCH, PLAIN = "train.global_batch=256seq", "parallel.dispatcher=alltoall"
K2 = "kimi-k2-256xh800"
"""32 nodes; a stage and its experts fill two nodes."""


def step(*changes: str) -> int:
    return simulate(lower(plan(load(K2, [BATCH, PLAIN, *changes])))).step_ns


def fabric(nodes_per_leaf: int, oversubscription: float) -> tuple[str, ...]:
    return (
        f"cluster.fabric.nodes_per_leaf={nodes_per_leaf}",
        f"cluster.fabric.oversubscription={oversubscription}",
    )


@pytest.fixture(scope="module")
def full() -> dict[int, int]:
    """The step at full bisection with one, two and 32 nodes per pod."""
    return {nodes: step(*fabric(nodes, 1.0)) for nodes in (1, 2, 32)}


def test_inside_one_pod_oversubscription_is_never_felt(full: dict[int, int]) -> None:
    assert step(*fabric(32, 8.0)) == full[32]


def test_two_nodes_per_pod_keep_the_experts_traffic_off_the_spines(full: dict[int, int]) -> None:
    """Only pipeline messages cross there, and they are small."""
    messages = step(*fabric(2, 8.0)) - full[2]
    experts_too = step(*fabric(1, 8.0)) - full[1]
    assert 0 < messages < 0.2 * experts_too
