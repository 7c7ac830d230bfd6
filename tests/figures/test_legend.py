"""The legend beside a figure names and colours what plotly's own would, at any width."""

from __future__ import annotations

import numpy as np

from twin.figures.drawing import Bars, Frame, Line
from twin.figures.legend import bare, legend
from twin.figures.palette import swatch
from twin.figures.plotly import Axis, draw, plain


def figure(*, shown: bool = True):
    look = swatch("bubble", "light")
    length, row = np.array([1.0]), ["a"]
    bars = [Bars(name, look, length, row, hover="") for name in ("Forward", "a<b")]
    frame = Frame(x=Axis("s"), y=Axis(""), height=100, theme="light", legend=shown)
    return draw([*bars, Line(length, length, "#B3261E", "Budget")], frame), look


def test_every_name_stands_beside_its_colour_once():
    drawn, look = figure()
    text = legend(drawn)
    assert [text.count(name) for name in ("Forward", "a&lt;b", "Budget")] == [1, 1, 1]
    assert text.count(f"background-color:{look.fill}") == 2
    assert "repeating-linear-gradient" in text, "idle time is hatched"
    assert "border-top:3px solid #B3261E" in text


def test_a_bare_figure_has_its_height_alone():
    drawn, _ = figure()
    layout = plain(bare(drawn))["layout"]
    assert layout["height"] - layout["margin"]["t"] == 100
    assert not layout["showlegend"]
    assert plain(drawn)["layout"]["showlegend"], "exports keep their own"


def test_a_figure_without_a_legend_stays_as_it_is():
    drawn, _ = figure(shown=False)
    assert legend(drawn) == ""
    assert plain(bare(drawn))["layout"]["height"] == plain(drawn)["layout"]["height"]
