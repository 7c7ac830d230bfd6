"""What stands beside bars, places and marks ends inside a narrow figure; long names are broken."""

from __future__ import annotations

import pytest

from twin.figures.palette import swatch
from twin.figures.plotly import Axis, Bars, Frame, Mark, Note, draw

LOOK = swatch("compute", "light")
LETTER = 6.2
"""Pixels of a letter of the figures' font, at most."""


def framed(bars, span, **more):
    frame = Frame(
        x=Axis(span=span), y=Axis(), height=100, theme="light", width=370, legend=False, **more
    )
    return draw(bars, frame).layout.xaxis.range


def share(at, span):
    return (at - span[0]) / (span[1] - span[0])


@pytest.mark.parametrize("text", ["1 s", "73.2 % in use", "16.4 s (+8.58 %), longer"])
def test_a_text_beside_the_longest_bar_ends_inside(text):
    bars = Bars("", LOOK, [10.0], ["row"], "", text=[text], outside=True)
    room = 370 - 3 * LETTER - 16
    span = framed([bars], (0.0, 10.0))
    assert share(10.0, span) * room + len(text) * LETTER < room


def test_a_text_on_a_stack_of_bars_begins_where_the_stack_ends():
    first = Bars("", LOOK, [10.0], ["row"], "")
    second = Bars("", LOOK, [10.0], ["row"], "", text=["a text"], outside=True)
    alone = framed([second], (0.0, 1.0))
    assert framed([first, second], (0.0, 1.0))[1] == pytest.approx(2 * alone[1])


def test_texts_of_both_signs_end_inside():
    bars = Bars("", LOOK, [-10.0, 10.0], ["a", "b"], "", text=["-10.0 s"] * 2, outside=True)
    low, high = framed([bars], (-10.0, 10.0))
    room = 370 - LETTER - 16
    assert share(-10.0, (low, high)) * room > 7 * LETTER - 0.1
    assert (1 - share(10.0, (low, high))) * room > 7 * LETTER - 0.1


def test_notes_and_marks_end_inside():
    bars = [Bars("", LOOK, [10.0], ["row"], "")]
    noted = framed(bars, (0.0, 10.0), notes=(Note(10.0, 0.0, "two lines<br>of text", "#000"),))
    marked = framed(bars, (0.0, 10.0), marks=(Mark(10.0, "two lines", "#000"),))
    assert noted == marked
    assert share(10.0, noted) < 0.9


def test_a_long_name_is_broken_and_its_bar_stays_where_it_was():
    name = "recompute: [norms, swiglu, mla_up, moe_down]"
    bars = [Bars("", LOOK, [1.0], [one], "") for one in (name, "short")]
    frame = Frame(x=Axis(), y=Axis(names=("short", name)), height=100, theme="light")
    figure = draw(bars, frame)
    broken = figure.to_dict()["data"][0]["y"][0]
    assert broken == "recompute: [norms, swiglu,<br>mla_up, moe_down]"
    assert figure.layout.yaxis.categoryarray == ("short", broken)
