"""From speed of light to achieved: the losses explain the whole step and nothing twice."""

from collections import Counter

import pytest

from tests.engine.scenarios import dense
from tests.reports import made
from tests.reports.runs import RUNS, played
from twin.arch.ops import Op
from twin.engine import lower, plan, simulate
from twin.reports import report
from twin.reports.waterfall import LOSSES, ideal_seconds, waterfall

EXPERT = "exposed_expert"


@pytest.mark.parametrize("name", RUNS)
def test_ideal_and_losses_sum_to_the_step_to_the_nanosecond(name):
    planned, _, answer = played(name)
    found = waterfall(planned, answer)
    assert found.ideal_ns + sum(loss.ns for loss in found.losses) == found.step_ns
    assert found.step_ns == answer.step_ns


@pytest.mark.parametrize("name", RUNS)
def test_no_loss_is_negative(name):
    planned, _, answer = played(name)
    assert all(loss.ns > 0 for loss in waterfall(planned, answer).losses)


@pytest.mark.parametrize("name", RUNS)
def test_it_starts_at_full_utilisation_and_ends_at_that_of_the_report(name):
    planned, _, answer = played(name)
    found = waterfall(planned, answer)
    assert found.mfu(found.ideal_ns) == 1
    assert found.mfu(found.step_ns) == pytest.approx(answer.kpis["mfu"], rel=1e-6)


@pytest.mark.parametrize("name", RUNS)
def test_losses_beyond_kernels_are_those_of_the_breakdown(name):
    planned, _, answer = played(name)
    losses = Counter()
    for loss in waterfall(planned, answer).losses:
        losses[loss.key] += loss.ns
    for cause, ns in answer.breakdown_ns.items():
        if cause != "compute":
            assert losses[cause] == ns


def test_what_is_exposed_is_split_into_ramp_and_steady_state():
    planned, _, answer = played("k2")
    losses = waterfall(planned, answer).losses
    split = {loss.phase: loss.ns for loss in losses if loss.key == EXPERT}
    shown = answer.exposure[EXPERT]
    assert split == {"ramp": shown.ramp_ns, "steady": shown.steady_ns}
    assert all(split.values()), "both parts are there, so that the test can fail"


def test_the_ideal_step_is_the_models_flop_over_gpus_and_peak():
    """128 tokens of 15,552 FLOP on four GPUs of 1 GFLOP/s."""
    assert ideal_seconds(made.plan()) == pytest.approx(128 * made.FLOP_PER_TOKEN / 4 / 1e9)


@pytest.mark.parametrize("recompute", ["", "full"])
@pytest.mark.parametrize("schedule", ["1f1b", "zb_h1"])
def test_pieces_cost_efficiency_and_launches_and_nothing_is_left_to_the_host(schedule, recompute):
    found = []
    for overlap in ("bulk", "pieces"):
        planned = plan(
            dense(
                *(2, 2, 1, 4, "parallel.sequence_parallel=true", "calibration.dispatch=0s"),
                f"parallel.overlap_tensor={overlap}",
                f"memory.recompute=[{recompute}]",
                f"parallel.schedule={schedule}",
                "calibration.launch=3us",
            )
        )
        answer = report(planned, simulate(lower(planned)))
        found.append({loss.key: loss.ns for loss in waterfall(planned, answer).losses})
    bulk, pieces = found
    assert "host" not in bulk
    assert "host" not in pieces
    assert pieces["launch"] > bulk["launch"]
    assert pieces["exposed_tensor"] < bulk["exposed_tensor"]


def losses_of(*overrides):
    """Losses in ns of a small dense run on one stage, by key, and the step."""
    one_efficiency = "calibration.matmuls=null"
    planned = plan(dense(1, 1, 1, 1, "memory.recompute=[]", one_efficiency, *overrides))
    answer = report(planned, simulate(lower(planned)))
    return {loss.key: loss.ns for loss in waterfall(planned, answer).losses}, answer, planned


def test_perfect_kernels_lose_nothing_but_what_they_do_beyond_the_model():
    """Endless memory bandwidth, efficiencies of one, free launches."""
    perfect = [f"calibration.{name}=1" for name in ("gemm", "bandwidth", "sustained")]
    perfect += [f"calibration.attention_{way}=1" for way in ("forward", "backward")]
    perfect += ["calibration.launch=0s", "calibration.dispatch=0s"]
    perfect += ["cluster.node.gpu.memory_bandwidth=1000000TB/s"]
    losses, answer, _ = losses_of(*perfect)
    for key in ("efficiency", "launch", "recompute", "host"):
        assert losses.get(key, 0) <= 10
    assert losses.get("memory_bound", 0) <= 1e-4 * answer.step_ns


def test_launches_cost_what_each_kernel_costs_times_kernels():
    losses, _, planned = losses_of("calibration.launch=10us", "calibration.dispatch=0s")
    assert losses["launch"] == pytest.approx(kernels(planned) * 10_000, rel=1e-6)


def test_the_host_takes_what_it_needs_beyond_the_kernels_where_dispatch_is_slow():
    """A host that needs a millisecond per kernel binds every pass: kernels and the wait for the
    host last as long as it issues, less what communication covers."""
    losses, answer, planned = losses_of("calibration.dispatch=1ms")
    quick, free, _ = losses_of("calibration.dispatch=0s")
    assert "host" not in quick
    row = answer.breakdown_ns
    assert row["compute"] == pytest.approx(free.breakdown_ns["compute"], rel=1e-6)
    assert losses["host"] == row["host"]
    assert row["compute"] + row["host"] == pytest.approx(kernels(planned) * 1_000_000, rel=0.05)


def kernels(planned):
    """Kernels of the passes of one step on one stage."""
    per_microbatch = sum(
        work.kernels
        for chunk in planned.chunks
        for layer in chunk.layers
        for op in layer.items
        if isinstance(op, Op)
        for work in (op.forward, op.backward, op.weight)
    )
    return per_microbatch * planned.microbatches


def test_full_recomputation_costs_one_forward_of_every_layer():
    """A forward is what backward has beside it: with equal efficiencies and free launches, half of
    what both gradients' GEMMs cost, so a third of all kernels, less what is not recomputed."""
    planned, _, answer = played("recompute")
    losses = {loss.key: loss.ns for loss in waterfall(planned, answer).losses}
    kernels_ns = answer.breakdown_ns["compute"] - losses["recompute"]
    assert 0.2 < losses["recompute"] / kernels_ns < 0.4


def test_every_loss_says_why():
    assert all(label and reason for label, reason in LOSSES.values())
