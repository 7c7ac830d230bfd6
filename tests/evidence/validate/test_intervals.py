"""Residuals of rows, their constants, and what never enters them."""

from __future__ import annotations

import json
from dataclasses import replace
from math import exp, log
from pathlib import Path

import numpy as np
import pytest

from tests.evidence.validate.made import AT, answer, residual, step
from tests.evidence.validate.rows import shipped
from twin.errors import UsageError
from twin.evidence.validate import baselines, intervals
from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.steps import scenario_of
from twin.evidence.validate.training import express
from twin.reports import interval
from twin.reports.interval import Known

ROWS = [step(f"row {n}", use=use) for n, use in enumerate(["fit", "near-fit"] * 3 + ["check"] * 2)]
ANSWERS = [
    answer(row.id, 0.1 * n, use=row.use, model=f"model {n}", measured=2.0)
    for n, row in enumerate(ROWS, 1)
]


def told(answers: list[RowResult]) -> Known:
    return intervals.known(intervals.residuals(ROWS, answers))


def test_a_residual_is_the_logarithm_of_measured_over_predicted() -> None:
    found = intervals.residuals(ROWS, ANSWERS)
    assert [one.id for one in found] == [f"row {n}" for n in range(6)]
    assert found[0].value == pytest.approx(log(1.0 / 1.1), abs=1e-4)
    assert [one.fitted for one in found] == [True, False] * 3
    assert found[0].family == "some paper | model 1 | H100 | bf16"


def test_no_check_row_enters_intervals_or_baselines() -> None:
    """What check rows measured is changed beyond recognition: every interval stays, and so does all
    that baselines say of the others."""
    other = [
        replace(one, measured=1e3, predicted=1e-3) if one.use == "check" else one for one in ANSWERS
    ]
    assert told(other) == told(ANSWERS)
    assert baselines.known(told(other).residuals) == baselines.known(told(ANSWERS).residuals)
    kept = [one.interval for one in intervals.with_intervals(ROWS, ANSWERS, told(ANSWERS))]
    assert None not in kept
    again = intervals.with_intervals(ROWS, other, told(other))
    held = [one.use != "check" for one in again]
    assert [one.interval for one, own in zip(again, held, strict=True) if own] == kept[: sum(held)]


@pytest.mark.parametrize(
    "name", ["dgxc-v25.02-llama3.1-8b-h100-bf16-8-gbs128", "torchtitan-8b-fsdp8-bf16-compile"]
)
def test_a_row_is_placed_where_its_scenario_is(name: str) -> None:
    row = shipped(name)
    scenario = scenario_of(express(row))
    assert intervals.circumstances(row) == interval.circumstances(scenario)


def test_a_row_that_is_no_scenario_has_no_place() -> None:
    assert intervals.circumstances(step("row", system={"gpu": "abacus", "gpus": 8})) is None
    assert intervals.circumstances(step("row", system="a few GPUs")) is None


def test_exchangeable_families_are_held_four_times_in_five() -> None:
    """30 families are known and one is asked about, 400 times: within what that many may stray."""
    draw, held = np.random.default_rng(7), 0
    for _ in range(400):
        values = draw.normal(0.0, 0.1, 31)
        own = [residual(f"row {n}", float(value)) for n, value in enumerate(values[:30])]
        held += abs(values[30]) <= interval.width(AT, own)
    assert 0.72 <= held / 400 <= 0.86


def test_a_profile_whose_runs_come_close_has_narrower_intervals_than_an_unknown_one() -> None:
    """Profiles are off by their own amounts, and their runs by a hundredth more or less."""
    draw = np.random.default_rng(3)
    own = [
        residual(f"{profile} {n}", float(off + draw.normal(0, 0.01)), calibration=f"p{profile}")
        for profile, off in enumerate((0.01, -0.3, 0.25, 0.0))
        for n in range(24 if profile == 0 else 8)
    ]
    known = intervals.known(own)
    near = interval.reach(replace(AT, calibration="p0"), "step_seconds", known)
    unknown = interval.reach(replace(AT, calibration="new"), "step_seconds", known)
    assert near is not None
    assert unknown is not None
    assert (near.level, unknown.level) == (0, 1)
    assert near.size < 0.9 * unknown.size


def test_a_fitted_row_is_not_judged_by_its_own_family() -> None:
    """Its own residual of 0.4 would weigh a quarter beside others of 0.01 that differ in a thing
    each. A check row of the same family is told by all."""
    row, judging = step("row", use="fit"), step("judging")
    at = intervals.circumstances(row)
    assert at is not None
    mine = answer("row", 0.5, use="fit", model="mine")
    others = [residual(f"other {n}", 0.01) for n in range(6)]
    others = [replace(one, at=replace(at, precision="fp8")) for one in others]
    own = replace(residual("row", 0.4, family=intervals.family(mine)), at=at)
    known = Known((own, *others))
    found = intervals.with_intervals([row], [mine], known)
    assert found[0].interval == pytest.approx((3.0 * exp(-0.01), 3.0 * exp(0.01)))
    found = intervals.with_intervals([judging], [answer("judging", 0.5, model="mine")], known)
    assert found[0].interval == pytest.approx((3.0 * exp(-0.4), 3.0 * exp(0.4)))


def test_families_are_held_by_the_others() -> None:
    """Five families miss by 1 to 5 tenths: by the four others the last is held by none, the first
    four by the largest. Left out with its profile, a run is told by those that are a level away."""
    own = [residual(f"row {n}", 0.1 * n) for n in range(1, 6)]
    assert intervals.held(own) == pytest.approx(0.8)
    assert intervals.held(own, level=1) is None
    other = [residual(f"other {n}", 0.09 * n, calibration="another") for n in range(1, 6)]
    assert intervals.held([*own, *other], level=1) == pytest.approx(0.9)
    assert intervals.held(own[:3]) is None


def test_four_of_five_shipped_families_are_held_by_the_others() -> None:
    """Of steps; what was fitted and what lies near."""
    own = [one for one in interval.shipped().residuals if one.metric == "step_seconds"]
    for level in range(4):
        assert 0.7 <= (intervals.held(own, level) or 0.0) <= 0.95, level


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "residuals.json"
    intervals.write(file, told(ANSWERS))
    assert interval.read(file) == told(ANSWERS)
    assert len(json.loads(file.read_text())["residuals"]) == 6


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        intervals.write(tmp_path / "no" / "file.json", told(ANSWERS))
    assert [one.code for one in error.value.problems] == ["TW063"]


def test_the_shipped_residuals_are_of_rows_that_do_not_judge() -> None:
    uses = {one.id: shipped(one.id).use for one in interval.shipped().residuals}
    assert uses
    assert set(uses.values()) <= {"fit", "near-fit"}
    assert all((uses[one.id] == "fit") is one.fitted for one in interval.shipped().residuals)
