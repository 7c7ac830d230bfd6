"""Waiting for the fullest expert rank: a cause of its own; steps stay as long."""

from __future__ import annotations

import pytest

from twin import load, lower, plan, simulate
from twin.arch.kernels import ACCUMULATE, Matmul, of_mean
from twin.arch.ops import Work
from twin.engine.program import COMPUTE, IMBALANCE
from twin.engine.trace import Trace
from twin.planning.experts import expert_load

pytestmark = pytest.mark.usefixtures("each_player")

RUN = "scenarios/kimi-k2-256xh800.yaml"
BATCH = "train.global_batch=128seq"
"""Few micro-batches: the law holds for each of them."""


def traced(*sets: str) -> Trace:
    return simulate(lower(plan(load(RUN, [BATCH, *sets]))))


@pytest.fixture(scope="module")
def random() -> Trace:
    return traced("train.routing.kind=random")


@pytest.fixture(scope="module")
def balanced() -> Trace:
    return traced("train.routing.kind=balanced")


def test_balanced_routing_waits_for_nobody(balanced: Trace) -> None:
    assert {row["imbalance"] for row in balanced.breakdown_ns} == {0}


def test_rows_still_add_up_to_the_step(random: Trace) -> None:
    for row in random.breakdown_ns:
        assert sum(row.values()) == random.step_ns
        assert 0 < row["imbalance"] < row["compute"]


def test_what_the_mean_rank_does_hardly_depends_on_how_full_the_fullest_is(
    random: Trace, balanced: Trace
) -> None:
    """Its rows are the same; what differs is tiles that are not full."""
    for mine, other in zip(random.breakdown_ns, balanced.breakdown_ns, strict=True):
        assert mine["compute"] == pytest.approx(other["compute"], rel=2e-3)


def test_the_wait_follows_the_segment_that_is_uneven() -> None:
    """In the template it stands between the experts and the exchange that sends back."""
    made = plan(load(RUN, [BATCH, "train.routing.kind=random"]))
    assert expert_load(made.scenario) > 1
    following: set[tuple[str, str]] = set()
    for (kind, _), template in lower(made).passes.items():
        for place, step in enumerate(template[:-1]):
            if step.name == IMBALANCE:
                assert (step.stream, step.after) == (COMPUTE, (place - 1,))
                following.add((kind, template[place + 1].name))
    assert {("F", "combine"), ("B", "dispatch")} <= following


def test_work_of_the_mean_rank_by_hand() -> None:
    """300 rows where the mean is 200: a third less arithmetic, and the same weights."""
    fullest, mean = Matmul(300, 64, 32, 4), Matmul(200, 64, 32, 4)
    for part in (Matmul.forward, Matmul.input_gradient, Matmul.weight_gradient):
        found, wanted = of_mean(part(fullest), 1.5), part(mean)
        assert found.product == wanted.product
        assert found.flop == pytest.approx(wanted.flop)
        assert found.bytes == pytest.approx(wanted.bytes)
    assert fullest.weight_gradient().bytes > ACCUMULATE * 4 * 64 * 32
    assert of_mean(Work(0.0, 300.0, 1), 1.5) == Work(0.0, 200.0, 1)
