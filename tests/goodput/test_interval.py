"""Intervals of Young and Daly against their papers and against the closed form they approximate."""

from __future__ import annotations

import pytest

from twin.goodput.closed import Conditions, Hazard, daly, daly_first_order, expected, young


@pytest.mark.parametrize(("hours", "minutes"), [(24, 117), (6, 57), (0.25, 9.1)])
def test_daly_s_interval_is_that_of_his_figures(hours: float, minutes: float) -> None:
    """Figures 3 to 5 of Daly 2006: saves of 5 min, mean times between failures of 24 h, 6 h and 15
    min."""
    assert daly(5 * 60, hours * 3600) / 60 == pytest.approx(minutes, rel=0.006)


def test_the_first_orders_are_the_textbook_s() -> None:
    assert young(60, 7200) == pytest.approx((2 * 60 * 7200) ** 0.5)
    assert daly_first_order(60, 7200) == pytest.approx(young(60, 7200) - 60)


@pytest.mark.parametrize("mtbf", [900.0, 3600.0, 86400.0])
@pytest.mark.parametrize("blocked", [1.0, 30.0, 300.0])
def test_no_other_interval_is_much_better_than_daly_s(blocked: float, mtbf: float) -> None:
    """His is within half a percent of the best of the exact expectation, and beats Young's."""

    def made(every: float) -> float:
        hazards = (Hazard("it", 1 / mtbf),)
        return expected(Conditions(hazards, every, blocked, restart=600.0)).fraction

    best = max(made(daly(blocked, mtbf) * 1.01**step) for step in range(-200, 201))
    assert made(daly(blocked, mtbf)) > 0.995 * best
    assert made(daly(blocked, mtbf)) >= made(young(blocked, mtbf))


def test_saves_longer_than_two_failures_apart_are_as_far_apart_as_failures() -> None:
    assert daly(1000.0, 400.0) == 400.0
