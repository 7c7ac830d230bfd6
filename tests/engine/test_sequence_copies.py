"""Sequences that PyTorch's DTensor brings into order: by hand, and as laws of whole steps."""

from __future__ import annotations

import pytest

from tests.engine.scenarios import dense
from twin.arch.ops import CollectiveKind, Exchange
from twin.engine import lower, plan, simulate
from twin.engine.cost_model import CostModel
from twin.planning.types import Plan
from twin.reports import report
from twin.reports.memory_series import memory_series
from twin.reports.waterfall import waterfall

COPIES = "parallel.sequence_copies=true"
SEQUENCE = "parallel.sequence_parallel=true"
PIECES = "parallel.overlap_tensor=pieces"
GATHER = Exchange("gather", "tensor", 8e6, "all_gather", "reduce_scatter")


def made(*more: str) -> Plan:
    return plan(dense(1, 1, 1, 2, "parallel.tensor=4", SEQUENCE, *more))


def streamed(cost_model: CostModel, moved: float) -> float:
    """By hand: bytes over the share of the memory's bandwidth, and a launch."""
    profile, gpu = cost_model.calibration, cost_model.cluster.node.gpu
    return moved / (gpu.memory_bandwidth * profile.bandwidth) + profile.launch


def test_a_tensor_is_read_and_written_once_more_and_in_pieces_only_summed() -> None:
    cost_model = CostModel.of(made(COPIES))
    kinds: tuple[CollectiveKind, ...] = ("all_gather", "reduce_scatter")
    for kind, backward in zip(kinds, (False, True), strict=True):
        found = cost_model.reordered(GATHER, kind, backward=backward)
        assert found.seconds == pytest.approx(streamed(cost_model, 16e6))
        assert found.host == cost_model.calibration.dispatch
    assert cost_model.reordered(GATHER, "all_gather", backward=False, cut=True).host == 0
    summed = cost_model.reordered(GATHER, "reduce_scatter", backward=True, cut=True)
    assert summed.seconds == pytest.approx(streamed(cost_model, 8e6 * (1 + 1 / cost_model.pieces)))


def test_only_what_tensor_ranks_gather_or_sum_is_copied() -> None:
    cost_model = CostModel.of(made(COPIES))
    other = Exchange("experts", "expert", 8e6, "all_to_all", "all_to_all")
    whole = Exchange("sum", "tensor", 8e6, "all_reduce", None)
    assert cost_model.reordered(other, "all_to_all", backward=False).host == 0
    assert cost_model.reordered(whole, "all_reduce", backward=False).host == 0
    assert CostModel.of(made()).reordered(GATHER, "all_gather", backward=False).host == 0


@pytest.mark.parametrize("overlap", [(), (PIECES,)])
def test_a_step_takes_longer_by_its_copies(overlap: tuple[str, ...]) -> None:
    usual, copied = (simulate(lower(made(*overlap, *more))) for more in ((), (COPIES,)))
    assert copied.step_ns > usual.step_ns


def test_pieces_copy_less() -> None:
    """What is copied costs more where whole tensors are gathered."""
    costs: list[int] = []
    for overlap in ((), (PIECES,)):
        usual, copied = (simulate(lower(made(*overlap, *more))) for more in ((), (COPIES,)))
        costs.append(copied.step_ns - usual.step_ns)
    assert costs[1] < 0.7 * costs[0]


@pytest.mark.parametrize("schedule", ["1f1b", "zb_h1"])
def test_copies_belong_to_the_passes_that_they_are_in(schedule: str) -> None:
    """So a rank's memory still moves forward in time, under one-piece and split backwards."""
    whole = f"parallel.schedule={schedule}"
    shape = (2, 4, 1, 4, "parallel.tensor=4", SEQUENCE, COPIES, whole, "memory.recompute=[]")
    resolved = plan(dense(*shape))
    trace = simulate(lower(resolved))
    for role in (0, 1):
        times = memory_series(resolved, trace, role).times
        assert len(times) > 10
        assert (times[1:] > times[:-1]).all()


@pytest.mark.parametrize("overlap", ["none", "bulk", "pieces"])
@pytest.mark.parametrize("recompute", ["[]", "[full]"])
def test_the_waterfall_knows_what_copies_cost(overlap: str, recompute: str) -> None:
    """They wait for memory, or are computed again: nothing of them is left for the host."""
    sets = (f"parallel.overlap_tensor={overlap}", f"memory.recompute={recompute}")
    host: list[int] = []
    for more in ((), (COPIES,)):
        resolved = made(*sets, *more)
        found = waterfall(resolved, report(resolved, simulate(lower(resolved))))
        host.append(sum(loss.ns for loss in found.losses if loss.key == "host"))
    assert host[1] == pytest.approx(host[0], abs=2e5)
