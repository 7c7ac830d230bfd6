"""Layouts by days and cost: what is drawn is what was found, and the line joins what nobody
beats."""

from __future__ import annotations

from dataclasses import replace

import pytest

from twin.figures.plotly import plain
from twin.figures.search import LayoutMark, Limits, SizeMark, pareto, scaling

POINTS = (
    LayoutMark("a", "64 GPUs", 40.0, 1e6, "picked", "a"),
    LayoutMark("b", "64 GPUs", 50.0, 1.25e6, "fits", "b"),
    LayoutMark("c", "128 GPUs", 22.0, 1.1e6, "frontier", "c"),
    LayoutMark("d", "128 GPUs", 21.0, 1.05e6, "unfit", "too large"),
)

FREE = Limits()


def data(points=POINTS, limits=FREE):
    return plain(pareto(points, limits, "title", "USD", "light").figure)


def marks(drawn):
    return {
        detail[0]: (x, y, one["name"])
        for one in drawn["data"]
        if one["mode"] == "markers"
        for detail, x, y in zip(one["customdata"], one["x"], one["y"], strict=True)
    }


def test_every_layout_is_one_mark_at_its_days_and_cost() -> None:
    found = marks(data())
    assert {name: (x, y) for name, (x, y, _) in found.items()} == {
        one.id: (one.days, one.cost) for one in POINTS
    }
    assert found["a"][2] == "Recommended"
    assert found["d"][2] == "Does not fit"


def test_the_line_joins_those_on_the_frontier_only() -> None:
    (line,) = (one for one in data()["data"] if one["name"] == "Pareto-optimal")
    assert list(zip(line["x"], line["y"], strict=True)) == [(22.0, 1.1e6), (40.0, 1e6)]


def test_sizes_differ_in_colour_and_in_shape() -> None:
    by_name = {one["name"]: one["marker"] for one in data()["data"] if "marker" in one}
    first, second = by_name["64 GPUs"], by_name["128 GPUs"]
    assert first["color"] != second["color"]
    assert first["symbol"] != second["symbol"]


def test_an_axis_is_logarithmic_where_figures_differ_much_and_holds_the_limits() -> None:
    near = data()["layout"]
    assert near["xaxis"].get("type") != "log"
    far = data((*POINTS, replace(POINTS[1], id="e", days=500.0)), Limits(600.0, None))
    assert far["layout"]["xaxis"]["type"] == "log"
    assert far["layout"]["xaxis"]["range"][1] > 2.778
    assert any(one["name"].startswith("Deadline") for one in far["data"])


SIZES = (
    SizeMark(32, None, "<b>32 GPUs</b><br>Why not: too large"),
    SizeMark(64, 40.0, "<b>64 GPUs</b><br>x", now=True),
    SizeMark(128, 25.0, "<b>128 GPUs</b><br>y"),
)


def test_each_gpu_is_compared_with_the_smallest_size_that_fits() -> None:
    picture = scaling(SIZES, "dark")
    assert [row["Per GPU"] for row in picture.table] == ["", "100 %", "80 %"]
    assert "throughput per GPU falls to 80 %" in picture.title
    ideal = next(one for one in plain(picture.figure)["data"] if one["name"].startswith("Perfect"))
    assert ideal["y"] == pytest.approx([40.0, 20.0])
    assert "too large" in picture.table[0]["Details"]


def test_one_size_alone_claims_no_scaling() -> None:
    assert "runs on 64 GPUs only" in scaling(SIZES[:2], "light").title
