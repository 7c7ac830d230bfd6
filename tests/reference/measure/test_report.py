"""The bars of a Hopper GPU, judged at their worst shape."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reference.measure import run
from reference.measure.groups import GROUPS
from reference.measure.points import MeasuredPoint
from reference.measure.run import Measurement
from tests.reference.measure.machines import CORE, H200, exactly, runnable, setting, timed

HERE = setting("cuda", "kimi-k2")


def points(rates: dict[str, float]) -> list[MeasuredPoint]:
    """Every case at the rate of its group."""
    return [
        timed(name, case, case.flop / rates[name])
        for name in rates
        for case in runnable(GROUPS[name](HERE))
    ]


def result(own: list[MeasuredPoint], **changes: Any) -> Measurement:
    found = Measurement(
        H200, Path(), "kimi-k2", "median", tuple(own), (), None, "launch", (), 989e12, (0.5,)
    )
    return replace(found, **changes)


RATES = {"gemm": 700e12, "grouped": 500e12, "attention": 450e12, "steps": 300e12}


def test_bars_are_shares_of_dense_products_and_of_the_peak() -> None:
    found = result(points(RATES))
    bars = {bar["bar"]: bar for bar in run.bars(found, run.shares(found))}
    assert bars["mfu"]["reached"] == pytest.approx(300 / 989)
    assert bars["attention"]["reached"] == pytest.approx(450 / 700)
    assert bars["grouped"]["reached"] == pytest.approx(500 / 700)
    assert all(bar["held"] for bar in bars.values())
    assert "bar mfu: 30% of 25% wanted, held" in run.text(found)


def test_one_slow_shape_misses_its_bar() -> None:
    def slower(point: MeasuredPoint) -> MeasuredPoint:
        slow = point.op == "grouped_weight" and point.shape["cols"] == 7168
        timing = exactly(point.timing.median * 2)
        return replace(point, timing=timing) if slow else point

    found = result([slower(point) for point in points(RATES)])
    bars = {bar["bar"]: bar for bar in run.bars(found, run.shares(found))}
    assert bars["grouped"]["held"] is False
    assert bars["grouped"]["reached"] == pytest.approx(250 / 700)
    assert "bar grouped: 36% of 60% wanted, MISSED" in run.text(found)


def test_a_bar_without_points_is_not_measured() -> None:
    found = result([point for point in points(RATES) if point.group != "steps"])
    assert "bar mfu: not measured" in run.text(found)


def test_a_busy_machine_is_reported() -> None:
    timing = replace(exactly(1.0), median=1.5)
    (first, *others) = points(RATES)
    own = [replace(first, timing=timing), *others]
    busy = result(own, machine=CORE, loads=(4.0,))
    assert busy.was_busy
    assert run.disturbed(busy.points) == [own[0]]
    assert f"the machine was busy (load up to 4.0 on 2 cores); of {len(own)} points 1" in (
        run.text(busy)
    )
    assert not result(own, machine=CORE, loads=(1.4,)).was_busy
