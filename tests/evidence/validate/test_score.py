"""Statistics of answers whose errors are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.evidence.validate.made import answer
from twin.evidence.validate import score

FOUR = [answer(f"row {n}", error) for n, error in enumerate((0.1, -0.2, 0.05, -0.4))]


def test_errors_of_four_rows_by_hand() -> None:
    found = score.errors(FOUR)
    assert found is not None
    assert (found.rows, found.largest) == (4, pytest.approx(0.4))
    assert found.median == pytest.approx((0.1 + 0.2) / 2)
    assert found.mean == pytest.approx((0.1 + 0.2 + 0.05 + 0.4) / 4)
    assert found.bias == pytest.approx((0.1 - 0.2 + 0.05 - 0.4) / 4)


def test_no_rows_have_no_errors() -> None:
    assert score.errors([]) is None
    assert score.overall([answer("row", None)]) is None


def test_only_check_rows_with_both_numbers_judge() -> None:
    rows = [
        answer("judges"),
        answer("fitted", use="fit"),
        answer("near", use="near-fit"),
        answer("not expressed", None),
        answer("not measured", measured=None),
    ]
    assert [one.id for one in score.judged(rows)] == ["judges"]
    assert [one.id for one in score.judged(rows, "near-fit")] == ["near"]


def test_a_measured_value_at_the_end_of_an_interval_is_covered() -> None:
    at_the_end = answer("end", interval=(1.0, 2.0))
    outside = answer("outside", interval=(2.1, 3.0))
    found = score.errors([at_the_end, outside, answer("without")])
    assert found is not None
    assert (found.covered, found.intervals) == (1, 2)


def test_families_differ_in_source_model_gpu_or_precision_and_the_worst_comes_first() -> None:
    rows = [
        answer("a", 0.1),
        answer("b", 0.3),
        answer("c", 0.25, precision="fp8"),
        answer("d", 0.02, gpu="A100-80GB"),
    ]
    found = score.grouped(rows, score.family)
    assert [[one.id for one in group.answers] for group in found] == [["c"], ["a", "b"], ["d"]]


def test_metrics_are_never_mixed() -> None:
    rows = [answer("a", 0.1), answer("a", 0.5, metric="peak_device_bytes")]
    assert [group.metric for group in score.grouped(rows, score.gpu)] == [
        "peak_device_bytes",
        "step_seconds",
    ]


def test_a_family_of_many_rows_counts_as_one() -> None:
    """Medians 1 %, 10 % and 20 %: their median is 10 %, and 18 % is nine tenths of the way up."""
    many = [answer(f"copy {n}", 0.01, model="a") for n in range(97)]
    rows = [*many, answer("b", 0.1, model="b"), answer("c", -0.2, model="c")]
    found = score.overall(rows)
    assert found is not None
    assert found.errors.median == pytest.approx(0.01)
    assert found.families == 3
    assert found.median_of_families == pytest.approx(0.1)
    assert found.tail_of_families == pytest.approx(0.18)


def test_what_counts_as_expressed_is_rows_that_their_source_describes() -> None:
    rows = [
        answer("a"),
        answer("a", metric="peak_device_bytes"),
        answer("b", None),
        answer("c", None, reproducible=False),
        answer("d", use="fit"),
    ]
    found = score.expressed(rows)
    assert (found.expressed, found.rows, found.value) == (1, 2, 0.5)
    assert score.expressed([]).value is None


def test_an_answer_without_a_measurement_is_expressed_all_the_same() -> None:
    assert score.expressed([replace(FOUR[0], measured=None)]).value == 1.0
