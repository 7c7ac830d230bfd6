"""The critical path on the timeline, pairs of passes, and plans side by side on one axis."""

from dataclasses import replace

import numpy as np
import pytest

from tests.figures.made import layout, make_trace, trace_of, traces
from twin.figures.plotly import bar_count
from twin.figures.step import drawn, meaning, paired
from twin.figures.timeline import critical_shares, overview, played_ns, side_by_side, timeline

MS = 10**6
ROWS = [
    (0, "compute", "forward", 0, 0, 0, 30),
    (1, "compute", "forward", 1, 0, 40, 70),
    (0, "send_forward", "send_forward", 0, 0, 30, 40),
]


def two_stages():
    """A forward, its message, the next stage's forward: rows by role, stream and start."""
    return replace(make_trace(ROWS, 2), critical=(0, 1, 2))


def path(figure):
    """The critical path's line."""
    (line,) = (trace for trace in traces(figure) if trace.name == "Critical path")
    return line


def test_the_path_follows_the_stages_that_it_runs_through():
    line = path(timeline(two_stages(), "light", (0, 70 * MS), critical=True).figure)
    assert list(line.x) == pytest.approx([0.0, 0.04, 0.04, 0.07])
    assert list(line.y) == [0, 0, 1, 1]


def test_with_lanes_for_communication_it_runs_through_them():
    line = path(timeline(two_stages(), "light", (0, 70 * MS), "all", critical=True).figure)
    assert list(line.x) == pytest.approx([0.0, 0.03, 0.03, 0.04, 0.04, 0.07])
    assert len(set(line.y)) == 3


def test_it_is_drawn_only_where_asked_for_and_only_in_the_window():
    figure = timeline(two_stages(), "light", (0, 70 * MS)).figure
    assert not [trace for trace in traces(figure) if trace.name == "Critical path"]
    line = path(timeline(two_stages(), "light", (50 * MS, 60 * MS), critical=True).figure)
    assert list(line.x) == pytest.approx([0.05, 0.06])


def test_shares_of_the_path_are_of_its_own_time():
    assert critical_shares(two_stages()) == pytest.approx({"forward": 6 / 7, "pipeline": 1 / 7})
    assert "85.7 % forward" in overview(two_stages(), "light", critical=True).caption


def test_a_trace_without_a_path_says_so():
    caption = overview(trace_of(2, 2), "light", critical=True).caption
    assert "knows no critical path" in caption


def test_long_stays_of_the_path_survive_when_short_ones_are_too_many_to_draw():
    """A thousand hops of a microsecond, then a second on stage 1: the line ends there."""
    hops = 1_000
    spans = replace(
        make_trace(ROWS, 2).spans,
        role=np.array([at % 2 for at in range(hops)] + [1], np.int32),
        stream=np.zeros(hops + 1, np.int8),
        name=np.zeros(hops + 1, np.int32),
        chunk=np.zeros(hops + 1, np.int32),
        microbatch=np.zeros(hops + 1, np.int32),
        start=np.array([at * 1_000 for at in range(hops + 1)], np.int64),
        end=np.array([(at + 1) * 1_000 for at in range(hops)] + [10**9], np.int64),
    )
    trace = replace(make_trace(ROWS, 2), spans=spans, critical=tuple(range(hops + 1)))
    line = path(timeline(trace, "light", (0, 10**9), critical=True).figure)
    assert len(line.x) < hops
    assert (line.x[-1], line.y[-1]) == (pytest.approx(1.0), 1)
    assert line.x[-1] - line.x[-2] == pytest.approx(1.0 - (hops - 1) / 10**6)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("forward", "forward"),
        ("backward", "backward"),
        ("backward_input", "backward"),
        ("backward_weight", "weight"),
        ("recompute", "recompute"),
    ],
)
def test_both_halves_of_a_backward_have_their_colour(name, expected):
    assert meaning("compute", name) == expected


def test_pairs_are_told_from_passes_in_turn():
    one_by_one = [(0, "compute", "forward", 0, 0, 0, 10), (0, "compute", "backward", 1, 1, 10, 20)]
    in_turn = [
        (0, "compute", "forward", 0, 0, 0, 10),
        (0, "compute", "backward", 1, 1, 10, 20),
        (0, "compute", "forward", 0, 0, 20, 30),
        (0, "compute", "backward", 1, 1, 30, 40),
    ]
    for rows, expected in ((one_by_one, False), (in_turn, True)):
        bars = drawn(make_trace(rows, 1), (0, 40 * MS), frozenset([0]))
        assert paired(bars) is expected
        caption = timeline(make_trace(rows, 1), "light", (0, 40 * MS)).caption
        assert ("run as a pair" in caption) is expected


def test_plans_side_by_side_share_one_axis_and_a_budget():
    fast, slow = trace_of(2, 2), trace_of(4, 4)
    picture = side_by_side([("fast", fast), ("slow", slow)], "light", budget=200)
    assert bar_count(picture.figure) <= 200
    assert layout(picture.figure).xaxis.range[1] == slow.step_ns / 1e9
    assert layout(picture.figure).yaxis.ticktext == ("fast", "slow")
    assert picture.title.startswith("fast finishes first")
    assert "before slow" in picture.title


def test_side_by_side_areas_are_the_time_that_is_computed():
    runs = [("a", trace_of(2, 3)), ("b", trace_of(3, 2))]
    figure = side_by_side(runs, "light").figure
    drawn_seconds = sum(
        float((np.array(trace.x) * np.array(trace.width)).sum()) / 0.86 for trace in traces(figure)
    )
    computed = sum(
        float((spans.end - spans.start)[spans.stream == 0].sum()) / 1e9
        for spans in (trace.spans for _, trace in runs)
    )
    assert drawn_seconds == pytest.approx(computed, rel=1e-6)


def test_repetitions_are_hatched_and_what_follows_stands_at_its_true_time():
    trace = trace_of(1, 4, segments=1, repeats=3, window_start=24 * MS, window_end=48 * MS)
    whole = replace(trace, step_ns=played_ns(trace) + 2 * 24 * MS)
    figure = side_by_side([("a", whole)], "light").figure
    (hatched,) = (one for one in traces(figure) if one.name == "Repetitions")
    assert (hatched.base[0], hatched.x[0]) == (0.048, pytest.approx(0.048))
    last = max(float((np.array(t.base) + np.array(t.x)).max()) for t in traces(figure))
    assert last == pytest.approx(whole.step_ns / 1e9, rel=0.02)
