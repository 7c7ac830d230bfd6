"""Simulated runs against the exact expectation, by hand, and by law."""

from __future__ import annotations

from dataclasses import replace
from math import exp, expm1, inf, sqrt
from statistics import fmean, stdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twin.goodput.closed import LOSSES, Conditions, Hazard, daly, expected
from twin.goodput.estimate import best_interval
from twin.goodput.monte_carlo import Limits, Tally, play

DAY = 86400.0
LLAMA = Conditions(
    hazards=(
        Hazard("unexpected", 419 / (54 * DAY)),
        Hazard("planned", 47 / (54 * DAY), planned=True),
    ),
    every=1800.0,
    blocked=60.0,
    restart=880.0,
    planned_restart=280.0,
)


def runs(one: Conditions, limits: Limits, count: int = 60) -> list[Tally]:
    return [play(one, limits, seed) for seed in range(count)]


def within_error(values: list[float], mean: float) -> None:
    """The mean of the values is within three of its standard errors of `mean`."""
    assert fmean(values) == pytest.approx(mean, abs=3 * stdev(values) / sqrt(len(values)))


@pytest.mark.parametrize("mtbf", [2000.0, 20_000.0])
def test_synchronous_saves_take_daly_s_expected_time(mtbf: float) -> None:
    """Exact for a run of n intervals, whose last has no save: M exp(R/M) ((n-1) (exp((every +
    blocked)/M) - 1) + exp(every/M) - 1)."""
    one = Conditions((Hazard("it", 1 / mtbf),), 500.0, 40.0, restart=300.0)
    whole, last = expm1(540.0 / mtbf), expm1(500.0 / mtbf)
    mean = mtbf * exp(300.0 / mtbf) * (99 * whole + last)
    within_error([run.wall / 1e9 for run in runs(one, Limits(100 * 500.0), 200)], mean)


@pytest.mark.parametrize(
    "one",
    [
        LLAMA,
        replace(LLAMA, every=300.0, blocked=0.6, lag=250.0),
        replace(LLAMA, slow=0.4, slowdown=1.2),
        replace(LLAMA, hazards=(Hazard("often", 1e-3), Hazard("p", 1e-3, planned=True)), lag=900.0),
    ],
    ids=["synchronous", "asynchronous", "slow nodes", "often"],
)
def test_every_loss_is_what_is_expected_of_it(one: Conditions) -> None:
    """Of a long time; the ends of a run are a part in ten thousand of it."""
    made, closed = runs(one, Limits(inf, 200 / one.unexpected)), expected(one)
    within_error([run.useful / run.wall for run in made], closed.fraction)
    for name in LOSSES:
        shares = [run.losses[name] / run.wall for run in made]
        mean, error = fmean(shares), stdev(shares) / sqrt(len(shares))
        assert mean == pytest.approx(closed.losses[name], abs=4 * error + 1e-4), name


def test_without_failures_every_nanosecond_is_progress() -> None:
    run = play(replace(LLAMA, hazards=(), every=inf), Limits(1e6), 0)
    assert run.useful == run.wall == 10**15
    assert set(run.losses.values()) == {0}


@settings(max_examples=40)
@given(
    st.floats(1e-5, 2e-3),
    st.floats(0.0, 500.0),
    st.floats(0.0, 900.0),
    st.integers(0, 3),
    st.floats(1.0, 1.5),
    st.integers(0, 10**6),
)
def test_progress_and_losses_sum_to_the_time(
    rate: float, blocked: float, lag: float, spares: int, slowdown: float, seed: int
) -> None:
    one = Conditions(
        (Hazard("node", rate, replaces_node=True), Hazard("planned", rate / 5, planned=True)),
        *(1000.0, blocked, lag),
        restart=200.0,
        spares=spares,
        repair=3000.0,
        slow=0.5,
        slowdown=slowdown,
    )
    over = play(one, Limits(inf, 1e5), seed)
    assert over.useful + sum(over.losses.values()) == over.wall == 10**14
    assert min(over.useful, *over.losses.values()) >= 0


def test_planned_interruptions_alone_strike_too() -> None:
    one = replace(LLAMA, hazards=(Hazard("planned", 1 / DAY, planned=True),))
    run = play(one, Limits(20 * DAY), 0)
    assert 5 < sum(run.strikes) < 60


def test_a_run_is_done_when_its_work_is() -> None:
    assert {run.useful for run in runs(LLAMA, Limits(3e5), 20)} == {3 * 10**14}


def test_the_same_seed_gives_the_same_run_and_another_does_not() -> None:
    first, again, other = (play(LLAMA, Limits(inf, 10 * DAY), seed) for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_interruptions_belong_to_causes_by_their_rates() -> None:
    struck = [run.strikes for run in runs(replace(LLAMA, restart=0.0), Limits(inf, 54 * DAY))]
    within_error([float(one[0]) for one in struck], 419)
    within_error([float(one[1]) for one in struck], 47)


def test_with_a_spare_for_every_repair_nobody_waits() -> None:
    one = replace(LLAMA, hazards=(Hazard("node", 1e-4, replaces_node=True),), repair=DAY)
    waits = {
        spares: sum(
            run.losses["waiting"]
            for run in runs(replace(one, spares=spares), Limits(inf, 54 * DAY), 10)
        )
        for spares in (0, 2, 8, 40)
    }
    assert waits[0] > waits[2] > waits[8] > waits[40] == 0


def test_without_spares_each_failure_costs_a_repair() -> None:
    """A job that waits does not fail: mean time up 10,000 s, down 5,000 s and no restart."""
    one = Conditions((Hazard("node", 1e-4, replaces_node=True),), 100.0, 0.0, spares=0, repair=5e3)
    made = runs(one, Limits(inf, 2e6))
    within_error([run.losses["waiting"] / run.wall for run in made], 1 / 3)


def test_more_failures_never_help() -> None:
    many = [replace(LLAMA, hazards=(Hazard("it", rate),)) for rate in (0.0, 2e-5, 1e-4, 5e-4, 2e-3)]
    made = [sum(run.useful for run in runs(one, Limits(inf, 20 * DAY), 10)) for one in many]
    assert made == sorted(made, reverse=True)
    assert len(set(made)) == len(made)


@pytest.mark.parametrize(("blocked", "mtbf"), [(60.0, 11_000.0), (5.0, 3000.0), (300.0, 40_000.0)])
def test_the_best_simulated_interval_is_near_daly_s(blocked: float, mtbf: float) -> None:
    """The optimum is flat: an interval a third off costs a twentieth of what saves and rework
    cost."""
    one = Conditions((Hazard("it", 1 / mtbf),), 1.0, blocked, restart=600.0)
    found = best_interval(one, seed=0, least=1.0)
    assert found == pytest.approx(daly(blocked, mtbf), rel=0.35)


def test_an_interval_is_no_shorter_than_the_storage_allows() -> None:
    assert best_interval(replace(LLAMA, blocked=0.01), seed=0, least=400.0) >= 400.0
