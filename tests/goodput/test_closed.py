"""The expectation against Daly's formula, hand-worked limits, and laws."""

from __future__ import annotations

from dataclasses import replace
from math import exp, expm1, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twin.goodput.closed import Conditions, Hazard, expected

seconds = st.floats(0.0, 5000.0)
conditions = st.builds(
    lambda rates, times, slow: Conditions(
        hazards=(Hazard("it", rates[0]), Hazard("planned", rates[1], planned=True)),
        every=times[0] + 10.0,
        blocked=times[1],
        lag=min(times[2], times[0]),
        restart=times[3] + times[4],
        planned_restart=times[4],
        slow=slow,
        slowdown=1.3,
    ),
    st.tuples(st.floats(0.0, 1e-3), st.floats(0.0, 1e-3)),
    st.tuples(*[seconds] * 5),
    st.floats(0.0, 1.0),
)


@pytest.mark.parametrize("mtbf", [1000.0, 20_000.0])
@pytest.mark.parametrize("restart", [0.0, 700.0])
def test_without_planned_ones_it_is_daly_s_completion_time(mtbf: float, restart: float) -> None:
    """T = M exp(R/M) (exp((every + blocked)/M) - 1) T_s / every, saves counting at once."""
    one = Conditions((Hazard("it", 1 / mtbf),), 800.0, 50.0, restart=restart)
    daly = mtbf * exp(restart / mtbf) * expm1(850.0 / mtbf) / 800.0
    assert 1 / expected(one).fraction == pytest.approx(daly, rel=1e-12)


def test_a_save_that_counts_later_costs_a_factor_of_its_lag() -> None:
    at_once = Conditions((Hazard("it", 1e-4),), 800.0, 5.0, restart=100.0)
    later = replace(at_once, lag=300.0)
    ratio = expected(at_once).fraction / expected(later).fraction
    assert ratio == pytest.approx(exp(300.0 / 1e4), rel=1e-12)


def test_without_failures_everything_is_progress() -> None:
    found = expected(Conditions((), inf, 60.0, restart=600.0))
    assert found.fraction == 1.0
    assert set(found.losses.values()) == {0.0}


def test_without_failures_saves_cost_their_share() -> None:
    found = expected(Conditions((Hazard("never", 0.0),), 900.0, 100.0))
    assert (found.fraction, found.losses["saving"]) == pytest.approx((0.9, 0.1))


def test_planned_interruptions_cost_no_rework() -> None:
    """One in 10,000 s of running, 60 s to save, 400 s to restart: 10,000 of 10,460 s run."""
    one = Conditions((Hazard("p", 1e-4, planned=True),), inf, 20.0, 40.0, planned_restart=400.0)
    found = expected(one)
    assert found.losses["rework"] == pytest.approx(0.0, abs=1e-12)
    assert found.fraction == pytest.approx(10_000 / 10_460)


def test_slow_nodes_take_their_share_of_progress() -> None:
    """A step 1.25 times as long, in half of all stretches: 0.5 + 0.5 / 1.25 = 0.9 is left."""
    one = Conditions((Hazard("it", 1e-4),), 800.0, 5.0, restart=100.0)
    slow = expected(replace(one, slow=0.5, slowdown=1.25))
    assert slow.fraction == pytest.approx(0.9 * expected(one).fraction)


@given(conditions)
def test_progress_and_losses_are_all_of_the_time(one: Conditions) -> None:
    found = expected(one)
    assert found.fraction + sum(found.losses.values()) == pytest.approx(1.0)
    assert min(found.fraction, *found.losses.values()) >= -1e-9


@given(conditions, st.floats(1.0, 3.0))
def test_more_failures_never_help(one: Conditions, factor: float) -> None:
    first, planned = one.hazards
    more = replace(one, hazards=(replace(first, per_second=factor * first.per_second), planned))
    assert expected(more).fraction <= expected(one).fraction + 1e-9


@given(conditions, st.floats(0.0, 1000.0))
def test_longer_restarts_and_saves_never_help(one: Conditions, more: float) -> None:
    for worse in (
        replace(one, restart=one.restart + more),
        replace(one, blocked=one.blocked + more),
        replace(one, lag=one.lag + more),
    ):
        assert expected(worse).fraction <= expected(one).fraction + 1e-9
