"""Exposure: what falls into the ramp, and what into the steady state, and that both are all."""

import pytest

from tests.engine.scenarios import moe
from tests.reports import made
from tests.reports.runs import RUNS, played
from twin.engine import lower, plan, simulate
from twin.reports import report
from twin.reports.breakdown import EXPOSED_CAUSES, Exposure, exposures, lost


@pytest.mark.parametrize("name", RUNS)
def test_ramp_and_steady_state_sum_to_the_row_of_the_breakdown(name):
    _, _, answer = played(name)
    assert set(answer.exposure) == set(EXPOSED_CAUSES)
    for cause, one in answer.exposure.items():
        assert one.ramp_ns + one.steady_ns == answer.breakdown_ns[cause]
        assert min(one.ramp_ns, one.steady_ns) >= 0


def test_it_is_the_mean_of_the_roles():
    """Two roles, worked out on paper: 30 and 50 ns in the ramp of 100 each."""
    rows = ({"exposed_expert": 100, "compute": 900},) * 2
    trace = made.trace(rows, ramp_ns=({"exposed_expert": 30}, {"exposed_expert": 50}))
    breakdown = dict.fromkeys(EXPOSED_CAUSES, 0) | {"exposed_expert": 100}
    assert exposures(trace, breakdown)["exposed_expert"] == Exposure(40, 60)


def test_a_trace_that_does_not_tell_them_apart_has_none():
    assert exposures(made.trace(), dict.fromkeys(EXPOSED_CAUSES, 0)) == {}


def test_more_micro_batches_lengthen_the_steady_state_and_not_the_ramp():
    """The pipeline fills and drains once, however long it runs."""
    short, long = (
        exposure_of(moe(8, 4, 1, 16, f"train.global_batch={batch}seq")) for batch in (256, 512)
    )
    assert long.ramp_ns == pytest.approx(short.ramp_ns, rel=0.02)
    assert long.steady_ns > 1.8 * short.steady_ns


def exposure_of(scenario):
    """What is exposed of the all-to-all of a scenario."""
    planned = plan(scenario)
    return report(planned, simulate(lower(planned))).exposure["exposed_expert"]


@pytest.mark.parametrize("name", RUNS)
def test_all_that_is_lost_sums_to_the_step_less_compute(name):
    answer, trace = played(name)[2], played(name)[1]
    found = lost(trace)
    assert sum(found.values()) == answer.step_ns - answer.breakdown_ns["compute"]
    assert min(found.values()) >= 0


def test_others_wait_for_the_stage_with_the_least_bubble():
    """Two stages on paper: the second is idle for 10 ns, 4 of them in its ramp."""
    rows = ({"compute": 970, "bubble": 30}, {"compute": 990, "bubble": 10})
    found = lost(made.trace(rows, ramp_ns=({"bubble": 9}, {"bubble": 4})))
    assert [found[one] for one in ("fill", "unequal", "between")] == [4, 10, 6]
