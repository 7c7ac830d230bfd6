"""Published rows as dots and bars: what is drawn is what was predicted and measured."""

from __future__ import annotations

import pytest

from twin.figures.plotly import plain
from twin.figures.serving import (
    BAND,
    Coverage,
    GroupError,
    RowMark,
    coverage,
    group_errors,
    scatter,
)

POINTS = (
    RowMark("a", "H100", 10.0, 9.0, True, "<b>a</b>"),
    RowMark("b", "H100", 100.0, 120.0, False, "<b>b</b>"),
    RowMark("c", "A100", 1.0, 1.0, True, "<b>c</b>"),
)


def traces(points):
    return plain(scatter(points, "seconds", "title", "light").figure)["data"]


def dots(points):
    return [one for one in traces(points) if one["mode"] == "markers"]


def test_every_row_is_a_dot_at_measured_and_predicted() -> None:
    drawn = {
        detail[0]: (x, y)
        for one in dots(POINTS)
        for detail, x, y in zip(one["customdata"], one["x"], one["y"], strict=True)
    }
    assert drawn == {one.id: (one.measured, one.predicted) for one in POINTS}


def test_rows_that_judge_nothing_are_hollow_and_share_their_groups_outline() -> None:
    hollow = [one for one in dots(POINTS) if one["marker"]["color"] == "rgba(0,0,0,0)"]
    assert [one["customdata"][0][0] for one in hollow] == ["b"]
    full = next(one for one in dots(POINTS) if one["customdata"][0][0] == "a")
    assert hollow[0]["marker"]["line"]["color"] == full["marker"]["line"]["color"]
    assert [one["name"] for one in dots(POINTS) if one["showlegend"]] == ["H100", "A100"]


def test_the_lines_are_where_both_are_equal_and_a_fifth_off() -> None:
    lines = [one for one in traces(POINTS) if one["mode"] == "lines"]
    slopes = sorted(one["y"][0] / one["x"][0] for one in lines)
    assert slopes == pytest.approx([1 - BAND, 1, 1 + BAND])


def test_axes_are_logarithmic_alike_and_hold_every_dot() -> None:
    layout = plain(scatter(POINTS, "seconds", "title", "light").figure)["layout"]
    assert layout["xaxis"]["type"] == layout["yaxis"]["type"] == "log"
    low, high = layout["xaxis"]["range"]
    assert [low, high] == layout["yaxis"]["range"]
    assert low < 0.0
    assert high > 2.079
    assert layout["xaxis"]["tickvals"] == [1, 2, 5, 10, 20, 50, 100]


def test_of_many_groups_the_smallest_share_one_look() -> None:
    points = [RowMark(f"{n}-{k}", f"group {n:02}", 1.0 + k, 1.0, True, "") for n in range(20)
              for k in range(20 - n)]  # fmt: skip
    names = [one["name"] for one in dots(points)]
    assert names == [*(f"group {n:02}" for n in range(11)), "others"]


GROUPS = (GroupError("H100", 9, 0.05, (0.2, None)), GroupError("A100", 3, 0.3, (0.1, 2.5)))


def test_bars_stand_beside_those_of_the_baselines_and_are_cut_with_their_number() -> None:
    picture = group_errors(GROUPS, ("nearest", "efficiency"), "GPUs", "dark")
    twin, nearest, efficiency = plain(picture.figure)["data"]
    assert [*twin["x"], *nearest["x"], *efficiency["x"]] == [5, 30, 20, 10, 100]
    assert efficiency["text"] == ["250 %"]
    assert picture.title == "In 1 of 2 GPUs the twin is closer than the baselines"
    assert max(twin["y"]) + 0.15 < min(one for one in efficiency["y"] if one > 0.5)


def test_without_baselines_the_worst_group_is_named() -> None:
    alone = [GroupError(one.name, one.rows, one.twin, (None, None)) for one in GROUPS]
    picture = group_errors(alone, (), "GPUs", "light")
    assert picture.title == "Of 2 GPUs, A100 has the largest median error: 30.0 %"
    assert len(plain(picture.figure)["data"]) == 1


def test_shares_of_intervals_stand_beside_what_they_are_meant_to_hold() -> None:
    picture = coverage((Coverage("All", 9, 12), Coverage("H100", 5, 5)), "light")
    assert picture.title.startswith("75.0 % of 12 measurements")
    (bars,) = plain(picture.figure)["data"]
    assert bars["x"] == [75, 100]
    assert bars["y"] == ["All (9 of 12)", "H100 (5 of 5)"]
    assert "target: 80 %" in str(plain(picture.figure)["layout"]["annotations"])
