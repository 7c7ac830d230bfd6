"""What must be true: the bars of an input change where the decision flips."""

from __future__ import annotations

from typing import Literal

import pytest

from twin.figures.plotly import plain
from twin.figures.search import Flip, InputRange, break_even


def rate(*flips: Flip, **changes) -> InputRange:
    usual = {"low": 50.0, "high": 1600.0, "now": 400.0, "logarithmic": True}
    return InputRange("NIC rate", "Gb/s", flips=flips, **{**usual, **changes})


def test_a_place_is_a_share_of_the_range_by_factors_where_it_is_logarithmic() -> None:
    assert [rate().place(one) for one in (50.0, 400.0, 1600.0)] == pytest.approx([0.0, 0.6, 1.0])
    plain_ = rate(logarithmic=False, low=0.0, high=10.0)
    assert plain_.place(2.5) == 0.25


@pytest.mark.parametrize(
    ("side", "states"), [("below", ["nobody", "holds"]), ("above", ["holds", "nobody"])]
)
def test_a_flip_parts_the_range_at_its_value(
    side: Literal["below", "above"], states: list[str]
) -> None:
    parts = rate(Flip(200.0, side, "")).parts
    assert [one[2] for one in parts] == states
    assert parts[0][1] == parts[1][0] == pytest.approx(0.4)


def test_between_two_flips_the_decision_holds_and_the_winners_are_named() -> None:
    found = rate(Flip(100.0, "below", ""), Flip(800.0, "above", "64 GPUs, PP8"))
    assert [(one[2], one[3]) for one in found.parts] == [
        ("nobody", ""), ("holds", ""), ("other", "64 GPUs, PP8")
    ]  # fmt: skip
    assert found.words == "at least 100 Gb/s and at most 800 Gb/s"


def test_the_finding_is_the_nearest_flip() -> None:
    rows = (rate(Flip(100.0, "below", "")), rate(Flip(380.0, "below", ""), likely=(300.0, 400.0)))
    picture = break_even(rows, decided=True, theme="light")
    assert picture.title.startswith(
        "NIC rate is nearest to a break-even point: below 380 Gb/s (now 400)"
    )
    assert picture.table[0]["Beyond it"] == "nothing meets the goal"
    drawn = plain(picture.figure)["data"]
    assert sum(sum(one["x"]) for one in drawn if one["type"] == "bar") == pytest.approx(2.0)
    assert [one["y"] for one in drawn if one.get("mode") == "lines"] == [[0.7, 0.7]]


def test_without_a_flip_it_says_why() -> None:
    row = rate(none="the decision holds over the whole range")
    picture = break_even((row,), decided=True, theme="dark")
    assert picture.title == "No input that was moved changes the decision"
    assert picture.table[0]["Decision holds"] == row.none
