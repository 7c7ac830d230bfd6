"""Residuals of rows, and that no source corrects itself."""

from __future__ import annotations

import json
from dataclasses import replace
from math import exp, log
from pathlib import Path

import pytest

from tests.evidence.validate.made import AT, answer, residual
from tests.evidence.validate.rows import shipped
from twin.errors import UsageError
from twin.evidence.validate import baselines, intervals
from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.summary import source_left_out, summarize
from twin.reports import interval
from twin.reports.interval import Known

ANSWERS = [
    answer(f"row {n}", 0.1 * n, use=use, model=f"model {n}", source=f"source {n}", measured=2.0)
    for n, use in enumerate([*["fit", "near-fit"] * 4, "check", "check"], 1)
]


def told(answers: list[RowResult]) -> Known:
    return Known(intervals.in_order(intervals.residuals(answers)))


def test_a_residual_is_the_logarithm_of_measured_over_predicted() -> None:
    found = intervals.residuals(ANSWERS)
    assert [one.id for one in found] == [f"row {n}" for n in range(1, 9)]
    assert found[0].value == pytest.approx(log(1.0 / 1.1), abs=1e-4)
    assert [one.fitted for one in found] == [True, False] * 4
    assert found[0].family == "source 1 | model 1 | H100 | bf16"
    assert found[0].source == "source 1"


def test_no_check_row_enters_intervals_or_baselines() -> None:
    other = [
        replace(one, measured=1e3, predicted=1e-3) if one.use == "check" else one for one in ANSWERS
    ]
    assert told(other) == told(ANSWERS)
    assert baselines.known(told(other).residuals) == baselines.known(told(ANSWERS).residuals)
    spans = [one.interval for one in intervals.with_intervals(ANSWERS, told(ANSWERS))]
    again = [one.interval for one in intervals.with_intervals(other, told(other))]
    assert None not in spans
    assert spans[:8] == again[:8]


def test_a_source_never_changes_its_own_correction() -> None:
    """Nor its interval, whatever its fitted rows measured."""
    own = answer("own", 0.0, source="mine")
    others = tuple(residual(f"o{n}", 0.02 * n) for n in range(8))
    seen = []
    for value in (0.0, 3.0):
        mine = residual("mine", value, family="mine | m | H100 | bf16")
        (found,) = intervals.with_intervals([own], Known((*others, mine)))
        seen.append((found.interval, found.expected))
    assert seen[0] == seen[1]
    far = interval.reach(AT, "step_seconds", Known(others))
    assert far is not None
    assert seen[0][1] == pytest.approx(2.0 * exp(far.centre))


def test_groups_of_few_rows_are_not_told() -> None:
    answers = [answer(f"row {n}", -0.1, source=f"s{n}", regime="host") for n in range(15)]
    seen = Known(tuple(residual(f"o{n}", 0.1) for n in range(30)))
    groups = source_left_out(summarize((), answers, seen))
    names = [one.name for one in groups]
    assert "all" in names
    assert "regime: host" in names
    assert "GPU: Blackwell" not in names
    all_of = groups[0]
    physics, corrected = all_of.centres["physics"], all_of.centres["corrected"]
    assert physics is not None
    assert corrected is not None
    assert abs(corrected.bias) < abs(physics.bias)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "residuals.json"
    found = told(ANSWERS).residuals
    intervals.write(file, found)
    assert interval.read(file) == found
    assert len(json.loads(file.read_text())["residuals"]) == 8


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        intervals.write(tmp_path / "no" / "file.json", told(ANSWERS).residuals)
    assert [one.code for one in error.value.problems] == ["TW063"]


def test_the_shipped_residuals_are_of_rows_that_do_not_judge() -> None:
    rows = [one.id for one in interval.shipped().residuals]
    uses = {name: shipped(name.removesuffix("[reserved]")).use for name in rows}
    assert uses
    assert set(uses.values()) <= {"fit", "near-fit"}
    assert all((uses[one.id] == "fit") is one.fitted for one in interval.shipped().residuals)
