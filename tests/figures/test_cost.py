"""Lost days and dollars: the parts of a bar are those of the answer, and sum to it."""

from __future__ import annotations

import pytest

from twin.figures.cost import amounts, days_lost
from twin.figures.plotly import plain
from twin.goodput import Goodput
from twin.goodput.closed import LargestLoss, Saves

DAY = 86400 * 10**9
GOODPUT = Goodput(
    fraction=0.9,
    interval=(0.88, 0.92),
    standard_error=0.001,
    expected_fraction=0.91,
    wall_ns=10 * DAY,
    useful_ns=9 * DAY,
    losses_ns={"rework": DAY // 2, "saving": 0, "restart": DAY // 2, "waiting": 0, "stragglers": 0},
    expected_losses={"rework": 0.05, "saving": 0.0, "restart": 0.04, "waiting": 0, "stragglers": 0},
    per_day={"GPU": 2.0},
    interruptions=20.0,
    saves=Saves(1e12, 1.0, 10.0, 600.0, "auto", 1.0, 1.0, 1.0, 1.0),
    restart_seconds=600.0,
    planned_restart_seconds=300.0,
    largest=LargestLoss(0.9, 4000.0, 4000.0, None, 4300.0),
    days=9.0,
    days_with_failures=10.0,
    seeds=100,
    seed=0,
    source="somebody",
)


def test_bars_are_the_days_lost_by_cause_with_what_most_runs_lost() -> None:
    picture = days_lost(GOODPUT, "light")
    rework, restart = plain(picture.figure)["data"]
    assert rework["x"] == pytest.approx([0.5, 0.5])
    assert restart["x"] == pytest.approx([0.5, 0.4])
    assert "error_x" not in rework or not rework["error_x"]
    assert restart["error_x"]["array"][0] == pytest.approx(9 / 0.88 - 9 - 1)
    assert restart["error_x"]["arrayminus"][0] == pytest.approx(1 - (9 / 0.92 - 9))
    assert picture.title.startswith("Of 10.0 days 1.00 are lost: 90.0 %")


def test_parts_of_a_bar_sum_to_what_the_title_says() -> None:
    rows = {"without failures": {"rent": 3e6, "energy": 1e6}, "with failures": {"rent": 4e6}}
    picture = amounts(rows, "USD", "Cost", "dark")
    assert picture.title == "Cost: 4.00M USD without failures, 4.00M USD with failures"
    drawn = plain(picture.figure)["data"]
    assert [one["name"] for one in drawn] == ["Rented GPUs", "Energy"]
    assert sum(one["x"][0] for one in drawn) == 4e6


def test_a_part_that_is_nothing_is_not_drawn() -> None:
    picture = amounts({"per GPU": {"gpus": 700.0, "network": 0.0}}, "W", "Mean power", "light")
    assert len(plain(picture.figure)["data"]) == 1
