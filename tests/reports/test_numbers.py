"""Numbers for people: three significant digits, always a unit."""

from __future__ import annotations

import doctest

import pytest

from twin.reports import table
from twin.reports.table import changed, count, digits, duration, flop, show
from twin.spec.kpis import Unit


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (18.127, "18.1"),
        (999.6, "1,000"),
        (0.05, "0.0500"),
        (-2.5, "-2.50"),
        (123456, "123,000"),
        (3e-7, "3.00e-07"),
        (9.99e14, "999,000,000,000,000"),
        (1.2345e300, "1.23e+300"),
        (float("inf"), "inf"),
    ],
)
def test_digits_are_three(value: float, text: str) -> None:
    assert digits(value) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (18.13, "s", "18.1 s"),
        (2.0**36, "bytes", "64 GiB"),
        (0.3841, "%", "38.4 %"),
        (2_829_000, "GPU-h", "2.83M GPU-h"),
        (5_658_000, "USD", "5.66M USD"),
        (57.34, "d", "57.3 d"),
        (914.2, "tok/s/GPU", "914 tok/s/GPU"),
        (396.4, "TFLOP/s", "396 TFLOP/s"),
        (None, "USD", "unknown"),
    ],
)
def test_every_unit_is_shown(value: float | None, unit: Unit, text: str) -> None:
    assert show(value, unit) == text


def test_a_count_takes_the_next_prefix_once_it_rounds_to_it() -> None:
    assert (count(999_600), count(999_400), count(15.5e12)) == ("1.00M", "999k", "15.5T")


def test_flop_take_the_prefix_at_their_unit() -> None:
    texts = [flop(value) for value in (1.38e19, 2.05e11, 999.6e15, 914, 0)]
    assert texts == ["13.8 EFLOP", "205 GFLOP", "1.00 EFLOP", "914 FLOP", "0 FLOP"]


def test_seconds_stay_seconds_up_to_two_minutes() -> None:
    assert (duration(0.0123), duration(61), duration(3600)) == ("12.3 ms", "61.0 s", "1 h")


def test_the_examples_in_the_docstrings_hold() -> None:
    results = doctest.testmod(table)
    assert results.attempted > 0
    assert results.failed == 0


def test_a_change_of_a_share_is_told_in_points_and_any_other_in_percent() -> None:
    assert changed(0.00123, 0.0245, "%") == "+0.123 points"
    assert changed(-1.5, -0.0732, "s") == "-7.32 %"
    assert changed(3.0, None, "bytes") == "from zero"
