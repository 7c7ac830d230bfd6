"""Differences are drawn with their sign, their direction in words, and sum to what they should."""

import pytest

from tests.figures.made import layout, report_of, traces
from twin.figures.differences import (
    Swing,
    attribution,
    signed,
    step_deltas,
    tornado,
)
from twin.reports import compare
from twin.reports.breakdown import CAUSES

SLOW = report_of("slow", compute=10.0, exposed_expert=8.0)
FAST = report_of("fast", compute=10.0, exposed_expert=2.0, bubble=1.0)
SWINGS = [
    Swing("small", "1", "2", -0.1, 0.1, "its source"),
    Swing("wide", "3", "4", -2.0, 1.0, "10 % either way"),
]


def test_deltas_of_the_step_sum_to_its_difference():
    figure = step_deltas(compare([SLOW, FAST]), "light").figure
    assert sum(sum(trace.x) for trace in traces(figure)) == pytest.approx(-5.0)
    assert {trace.name for trace in traces(figure)} == {"Expert comm.", "Bubble"}


def test_the_title_says_what_changed_most():
    title = step_deltas(compare([SLOW, FAST]), "light").title
    assert title == "fast: -5.00 s per step, the largest part expert comm. (-6.00 s)"


def test_attribution_leads_from_one_step_to_the_other():
    picture = attribution(("a", 18.0), ("b", 13.0), [("nic", -7.0), ("pipeline", 2.0)], "light")
    ends = [
        tuple(sorted((base, base + size)))
        for trace in traces(picture.figure)
        if trace.type == "bar"
        for base, size in zip(trace.base, trace.x, strict=True)
    ]
    assert set(ends) == {(0, 18), (11, 18), (11, 13), (0, 13)}
    assert picture.title == "b: -5.00 s per step against a; nic is worth most, -7.00 s"


def test_inputs_without_effect_are_not_drawn():
    picture = attribution(("a", 1.0), ("b", 1.0), [("cost", 0.0)], "light")
    assert "no input makes a difference" in picture.title
    assert len(picture.table) == 2


def test_the_widest_swing_is_on_top_and_both_ends_are_labelled():
    picture = tornado(SWINGS, "step time", "s", "light")
    assert layout(picture.figure).yaxis.ticktext == ("wide<br>3 to 4", "small<br>1 to 2")
    low, high = traces(picture.figure)
    assert list(low.x) == [-2.0, -0.1]
    assert list(high.text) == ["+1.00 s", "+100 ms"]
    assert "wide matters most" in picture.title
    assert "may not add up" in picture.caption


def test_a_tornado_shows_no_more_than_asked():
    assert len(tornado(SWINGS, "step time", "s", "light", most=1).table) == 1
    assert tornado([], "step time", "s", "light").title == "No uncertain number changes step time"


@pytest.mark.parametrize(
    ("value", "expected"), [(0.0, "no change"), (1.0, "+1.00 s"), (-0.5, "-500 ms")]
)
def test_changes_have_a_sign(value, expected):
    assert signed(value) == expected


def test_every_cause_is_a_key_of_the_breakdowns():
    assert set(compare([SLOW, FAST]).deltas[0].breakdown_ns) == set(CAUSES)
