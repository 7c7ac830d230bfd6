"""An expectation is read against the units of its key figure, and judged on the raw value."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import get_args

import pytest

from tests.reports import made
from twin.errors import FieldError
from twin.planning.types import Warning
from twin.reports import report
from twin.reports.head import Judgement, judge, sentence
from twin.spec.expect import FIGURES, read_expectation
from twin.spec.kpis import ITERATION_KPIS, KPIS, MEASURES, ROLLOUT_KPIS, UPDATE_KPIS, Unit
from twin.units import QuantityError

READ = {
    "fits == true": ("fits", True),
    "fits != true": ("fits", True),
    "step_seconds < 25s": ("step_seconds", 25.0),
    "step_seconds<=1.5min": ("step_seconds", 90.0),
    "tokens_per_second > 2.5Mtok/s": ("tokens_per_second", 2.5e6),
    "tokens_per_second_per_gpu >= 1.4ktok/s/GPU": ("tokens_per_second_per_gpu", 1400.0),
    "mfu > 0.35": ("mfu", 0.35),
    "mfu > 35%": ("mfu", 0.35),
    "bubble_fraction < 12.5 %": ("bubble_fraction", 0.125),
    "model_tflops_per_gpu > 400TFLOP/s": ("model_tflops_per_gpu", 400.0),
    "peak_device_bytes < 70GiB": ("peak_device_bytes", 70 * 2**30),
    "days < 40d": ("days", 40.0),
    "days < 960h": ("days", 40.0),
    "gpu_hours < 2.8MGPU-h": ("gpu_hours", 2.8e6),
    "  cost_usd  <  5MUSD ": ("cost_usd", 5e6),
}


@pytest.mark.parametrize("text", READ)
def test_an_expectation_is_read_in_the_unit_of_its_figure(text: str) -> None:
    one = read_expectation(text)
    assert (one.text, one.figure, one.bound) == (text, *READ[text])


REFUSED = {
    "": "TW050",
    "fast": "TW050",
    "step_seconds <": "TW050",
    "step_seconds 25s": "TW050",
    "< 25s": "TW050",
    "step_second < 25s": "TW051",
    "kpis.mfu > 0.3": "TW051",
    "step_seconds == 25s": "TW052",
    "step_seconds = 25s": "TW052",
    "step_seconds <> 25s": "TW052",
    "fits": "TW050",
    "fits > true": "TW052",
    "fits == yes": "TW052",
    "mfu > 1GiB": "TW052",
    "mfu > -1": "TW052",
    "mfu > 35": "TW015",
    "mfu > 101%": "TW015",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_compares_nothing_is_refused_with_its_code(text: str) -> None:
    with pytest.raises(FieldError) as caught:
        read_expectation(text)
    assert caught.value.code == REFUSED[text]
    assert caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "step_seconds < 25",
        "step_seconds < 25GiB",
        "peak_device_bytes < 70GB/s",
        "peak_device_bytes < 70G",
        "tokens_per_second > 2Mtok",
        "tokens_per_second > 2tok/s/GPU",
        "cost_usd < 5M",
        "days < 40",
        "step_seconds < -1s",
    ],
)
def test_a_quantity_of_another_dimension_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        read_expectation(text)


def test_a_slip_names_the_nearest_figure() -> None:
    with pytest.raises(FieldError) as caught:
        read_expectation("step_second < 25s")
    assert caught.value.hint == "did you mean `step_seconds`?"


def test_every_key_figure_can_be_expected() -> None:
    every = (*KPIS, *UPDATE_KPIS, *ROLLOUT_KPIS, *ITERATION_KPIS)
    assert set(FIGURES) == {kpi.key for kpi in every}
    for kpi in every:  # one word, one meaning: of whatever kind of scenario
        found = FIGURES[kpi.key]
        assert (found.unit, found.better) == (kpi.unit, kpi.better)
    assert set(MEASURES) | {"%", "/d"} == set(get_args(Unit))


def test_raw_values_are_compared_however_they_are_shown() -> None:
    """25.0004 s is shown as 25.0 s, and is no less than 25 s."""
    (judged,) = judge([read_expectation("step_seconds < 25s")], {"step_seconds": 25.0004})
    assert judged.passed is False
    assert sentence(judged) == (
        "step_seconds < 25s: failed, it is 25.0 s (+0.0016 % of its bound)."
    )
    (judged,) = judge([read_expectation("step_seconds < 25s")], {"step_seconds": 24.9996})
    assert judged.passed is True


@pytest.mark.parametrize(
    ("operator", "holds"),
    [("<", [True, False, False]), ("<=", [True, True, False]), (">", [False, False, True]),
     (">=", [False, True, True])],
)  # fmt: skip
def test_operators_mean_what_they_say(operator: str, holds: list[bool]) -> None:
    one = read_expectation(f"step_seconds {operator} 2s")
    assert [one.holds(value) for value in (1.0, 2.0, 3.0)] == holds


def test_an_unknown_value_fails_and_an_unasked_one_is_left_open() -> None:
    cost = read_expectation("cost_usd < 5MUSD")
    assert judge([cost], {"cost_usd": None}) == (
        Judgement("cost_usd < 5MUSD", "cost_usd", 5e6, None, False),
    )
    (left,) = judge([cost], {})
    assert (left.value, left.passed) == (None, None)
    assert sentence(left) == "cost_usd < 5MUSD: not answered here."


def test_a_report_judges_what_its_scenario_expects() -> None:
    """The run on paper takes 2 s, with MFU 15,552 x 128 / 2 / 4e9."""
    plan = made.plan(expect=["fits == true", "step_seconds < 2s", "mfu < 1%"])
    found = json.loads(json.dumps(report(plan, made.trace()).to_json()))["expectations"]
    assert [(one["text"], one["value"], one["passed"]) for one in found] == [
        ("fits == true", True, True),
        ("step_seconds < 2s", 2.0, False),
        ("mfu < 1%", pytest.approx(15_552 * 128 / 2 / 4e9), True),
    ]


def test_expectations_are_no_part_of_what_is_computed() -> None:
    plain, expecting = (made.plan(expect=one) for one in ([], ["mfu > 0.1"]))
    left, right = (report(one, made.trace()) for one in (plain, expecting))
    assert left.hash == right.hash
    assert right.scenario["expect"] == ["mfu > 0.1"]


def test_a_report_says_whether_its_times_were_measured() -> None:
    """The profile on paper was measured on the GPU on paper; another GPU's was not."""
    assert report(made.plan(), made.trace()).to_json()["calibrated"] is True
    elsewhere = (Warning("calibration-of-another-gpu", "elsewhere"),)
    answer = report(replace(made.plan(), warnings=elsewhere), made.trace())
    assert answer.to_json()["calibrated"] is False
    assert [one.code for one in answer.uncalibrated] == ["calibration-of-another-gpu"]
