"""`--grid` and `sweep.grid`: what stands for several values."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twin.errors import FieldError, UsageError
from twin.explore.sweep.grid import read_axes
from twin.spec.sweep import check_figure, check_path, read_range

NUMBERS = st.integers(1, 10_000)
UNITS = st.sampled_from(["", "seq", "Gbps", "GiB"])


@given(low=NUMBERS, high=NUMBERS, step=st.integers(1, 5000), unit=UNITS)
def test_a_range_goes_in_equal_steps_from_its_low_end_and_never_past_the_high(
    low: int, high: int, step: int, unit: str
):
    text = f"{low}{unit}..{high}{unit}:{step}{unit}"
    if low > high:
        with pytest.raises(FieldError, match="holds nothing"):
            read_range(text)
        return
    found = read_range(text)
    assert found is not None
    expected = range(low, high + 1, step)
    assert list(found) == [f"{n}{unit}" if unit else n for n in expected]


@given(low=NUMBERS, times=st.integers(2, 10), count=st.integers(1, 8))
def test_a_range_by_a_factor_holds_every_power_and_ends_at_the_high_end(
    low: int, times: int, count: int
):
    high = low * times ** (count - 1)
    assert read_range(f"{low}..{high}:x{times}") == tuple(low * times**n for n in range(count))
    if count > 1:
        shorter = read_range(f"{low}..{high - 1}:x{times}")
        assert shorter == tuple(low * times**n for n in range(count - 1))


def test_decimal_steps_are_exact():
    assert read_range("0.1..0.5:0.1") == (0.1, 0.2, 0.3, 0.4, 0.5)


def test_a_range_without_a_step_counts_by_one():
    assert read_range("3..6") == (3, 4, 5, 6)


@pytest.mark.parametrize("text", ["8", "a..b", "1...5", "8,16", "..", "1..", "[1..3]", "1..3:x"])
def test_other_text_is_no_range(text: str):
    assert read_range(text) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1..4:0", "reach no end"),
        ("1..4:x1", "reach no end"),
        ("0..4:x2", "reach no end"),
        ("1GiB..4GB", "mixes units"),
        ("1GiB..4GiB:1", "mixes units"),
        ("1GiB..4GiB:x2GiB", "mixes units"),
        ("1..100000000", "more than"),
    ],
)
def test_a_range_that_is_none_says_what_is_wrong(text: str, said: str):
    with pytest.raises(FieldError, match=said) as caught:
        read_range(text)
    assert caught.value.code == "TW402"


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1000, 1000),
    st.sampled_from(["1f1b", "4096tok", "200Gbps", "full"]),
    st.lists(st.sampled_from(["norms", "swiglu"]), max_size=2),
)


@given(values=st.lists(VALUES, min_size=1, max_size=5))
def test_an_axis_holds_the_values_that_were_typed_each_at_its_place(values: list[object]):
    typed = [json.dumps(value).replace('"', "") for value in values]
    argument = f"a.b={','.join(typed)}"
    (axis,) = read_axes([argument])
    assert (axis.path, list(axis.values)) == ("a.b", values)
    for origin, text in zip(axis.origins, typed, strict=True):
        assert origin.text[origin.column - 1 :][: origin.width] == text


@pytest.mark.parametrize(
    "argument", ["a.b", "a.b=", "=4", "", "a.b=[1", "a..b=1", "a b=1", "a=4..2"]
)
def test_what_is_no_axis_is_refused_with_its_place(argument: str):
    with pytest.raises(UsageError) as caught:
        read_axes([argument])
    (problem,) = caught.value.problems
    assert problem.code in ("TW402", "TW002")
    assert problem.hint
    assert problem.origin is not None
    assert problem.origin.file == "--grid"


def test_paths_and_figures_are_checked():
    assert check_path("parallel.layers.0") == "parallel.layers.0"
    assert check_figure("days") == "days"
    with pytest.raises(FieldError, match="no path"):
        check_path("parallel..pipeline")
    with pytest.raises(FieldError, match="update_seconds"):
        check_figure("update_seconds")
