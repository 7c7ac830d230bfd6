"""Intervals from residuals: by hand, and by how often they hold."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log

import pytest

from tests.evidence.validate.made import AT, residual
from twin.loading import load
from twin.reports import interval
from twin.reports.interval import Known, beyond, level_of, nearest_level, quantile, reach
from twin.reports.kpi_intervals import intervals
from twin.spec.kpis import KPIS

FIVE = tuple(residual(f"row {n}", size) for n, size in enumerate((0.1, -0.2, 0.3, -0.4, 0.5)))


def known(*residuals: interval.Residual) -> Known:
    return Known(residuals)


def test_the_quantile_is_the_least_size_with_four_fifths_of_the_weight() -> None:
    assert quantile([0.5, 0.1, 0.4, 0.2, 0.3], [1.0] * 5) == 0.4
    assert quantile([0.1, 0.9], [4.0, 1.0]) == 0.1


def test_levels_go_from_the_same_profile_to_any_gpu() -> None:
    assert level_of(AT, AT) == 0
    assert level_of(AT, replace(AT, calibration="another")) == 1
    assert level_of(AT, replace(AT, gpu="H800")) == 2
    assert level_of(AT, replace(AT, gpu="A100-80GB", peak=312e12)) == 3


def test_a_width_grows_by_a_quarter_for_every_level_that_the_nearest_run_is_away() -> None:
    places = ({}, {"calibration": "another"}, {"gpu": "H800"}, {"gpu": "B200", "peak": 2250e12})
    far = [reach(replace(AT, **place), "step_seconds", known(*FIVE)) for place in places]
    assert [one and one.size for one in far] == pytest.approx([0.4, 0.5, 0.6, 0.7])
    assert [one and one.level for one in far] == [0, 1, 2, 3]


def test_near_copies_count_as_one_run() -> None:
    copies = [residual(f"copy {n}", 0.01, family="copies") for n in range(95)]
    assert interval.width(AT, [*copies, *FIVE]) == pytest.approx(0.4)


def test_runs_that_differ_in_one_thing_weigh_a_half() -> None:
    """Eight near runs of 1 % weigh 8; four others of another precision weigh 2, a fifth of all; a
    fifth of those is too much, one that differs in a second thing is not."""
    near = [residual(f"near {n}", 0.01) for n in range(8)]
    others = [residual(f"far {n}", 0.5, precision="fp8") for n in range(5)]
    other = residual("farther", 0.5, precision="fp8", experts=True)
    assert interval.width(AT, [*near, *others[:4]]) == 0.01
    assert interval.width(AT, [*near, *others]) == 0.5
    assert interval.width(AT, [*near, *others[:3], other]) == 0.01


def test_intervals_widen_with_every_octave_beyond_the_sizes_seen() -> None:
    sizes = (8, 16, 32, 64, 128)
    places = [replace(AT, gpus=gpus) for gpus in sizes]
    seen = known(*(replace(one, at=at) for one, at in zip(FIVE, places, strict=True)))
    inside, beside = (reach(replace(AT, gpus=n), "step_seconds", seen) for n in (100, 512))
    assert inside is not None
    assert beside is not None
    assert (inside.outside, inside.size) == ((), pytest.approx(0.4))
    assert (beside.outside, beside.octaves) == (("gpus",), pytest.approx(2.0))
    assert beside.size == pytest.approx(0.4 * 1.2)
    assert beyond(replace(AT, gpus=4), seen.residuals) == {"gpus": pytest.approx(1.0)}


def test_a_gpu_that_is_like_none_has_no_interval() -> None:
    stand_in = replace(AT, gpu="stand-in", peak=1e9)
    assert nearest_level(stand_in, FIVE) is None
    assert reach(stand_in, "step_seconds", known(*FIVE)) is None
    assert reach(AT, "step_seconds", Known()) is None


def test_four_families_are_too_few() -> None:
    few = [residual(f"row {n}", 0.1, family=str(n % 4)) for n in range(30)]
    assert reach(AT, "step_seconds", known(*few)) is None
    assert reach(AT, "step_seconds", known(*few, residual("another", 0.1))) is not None


def test_key_figures_follow_the_step() -> None:
    scenario = load("gpt-175b-64xa100-full")
    at = interval.circumstances(scenario)
    own = [
        residual(f"row {n}", 0.1, **{name: getattr(at, name) for name in at.__slots__})
        for n in range(5)
    ]
    peaks = [replace(one, metric="peak_device_bytes", value=0.2) for one in own]
    figures: dict[str, float | None] = {kpi.key: 2.0 for kpi in KPIS}
    figures |= {"bubble_fraction": 0.1, "exposed_communication_seconds": 0.5, "cost_usd": None}
    found, warnings = intervals(scenario, figures, known(*own, *peaks))
    for key in ("step_seconds", "days", "gpu_hours", "mfu", "tokens_per_second", "hfu"):
        assert found[key] == pytest.approx((2.0 * exp(-0.1), 2.0 * exp(0.1)))
    assert found["peak_device_bytes"] == pytest.approx((2.0 * exp(-0.2), 2.0 * exp(0.2)))
    assert found["cost_usd"] is None
    assert found["peak_host_bytes_per_node"] is None
    assert [one.code for one in warnings] == ["no-interval"]
    assert "peak_host_bytes_per_node" in warnings[0].message
    assert " cost_usd," not in warnings[0].message


def test_a_part_of_the_step_may_take_all_of_its_miss() -> None:
    """A step of 2 s that may take 2.21 s: 0.5 s of exposed communication may be 0.71 s, and a
    bubble of 0.2 s may be 0.41 s of those 2.21."""
    scenario = load("gpt-175b-64xa100-full")
    at = interval.circumstances(scenario)
    own = [
        residual(f"row {n}", log(1.105), **{name: getattr(at, name) for name in at.__slots__})
        for n in range(5)
    ]
    figures: dict[str, float | None] = {kpi.key: 0.0 for kpi in KPIS}
    figures |= {"step_seconds": 2.0, "bubble_fraction": 0.1, "exposed_communication_seconds": 0.5}
    found, _ = intervals(scenario, figures, known(*own))
    low, high = found["exposed_communication_seconds"] or (0.0, 0.0)
    assert high == pytest.approx(0.71)
    assert low == pytest.approx(0.5 - (2.0 - 2.0 / 1.105))
    assert (found["bubble_fraction"] or (0, 0))[1] == pytest.approx(0.41 / 2.21)
    assert (found["bubble_fraction"] or (0, 0))[0] == pytest.approx(
        (0.2 - (2.0 - 2.0 / 1.105)) / (2.0 / 1.105)
    )
    nothing, _ = intervals(scenario, figures | {"bubble_fraction": 0.0}, known(*own))
    assert nothing["bubble_fraction"] == (0.0, 0.0)


def test_what_lies_outside_of_what_was_measured_is_said() -> None:
    scenario = load("kimi-k2-2048xh800")
    at = interval.circumstances(scenario)
    own = [residual(f"row {n}", 0.1, gpu="H100", gpus=64, experts=True) for n in range(5)]
    found, warnings = intervals(scenario, {"step_seconds": 18.0}, known(*own))
    assert at.gpu == "H800"
    assert found["step_seconds"] is not None
    codes = [one.code for one in warnings]
    assert codes == ["interval-of-other-runs", "interval-beyond-measured"]
    assert "2,048 GPUs" in warnings[1].message


def test_every_key_figure_of_a_shipped_scenario_has_an_interval_or_a_warning() -> None:
    told = interval.shipped()
    assert {one.metric for one in told.residuals} == {"step_seconds", "peak_device_bytes"}
    for name in ("gpt-175b-64xa100-full", "kimi-k2-256xh800"):
        figures: dict[str, float | None] = {kpi.key: 0.5 for kpi in KPIS}
        found, warnings = intervals(load(name), figures)
        without = [key for key, span in found.items() if span is None]
        assert "peak_host_bytes_per_node" in without
        assert {"step_seconds", "peak_device_bytes", "mfu", "days", "cost_usd"}.isdisjoint(without)
        assert all(key in warnings[0].message for key in without)
