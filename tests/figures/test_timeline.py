"""The timeline draws time as it was, never more bars than a browser bears, and says when it
left something out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.figures.made import layout, make_trace, trace_of, traces
from twin.engine.program import STREAMS
from twin.figures.plotly import bar_count
from twin.figures.step import MEANINGS, drawn, meaning
from twin.figures.timeline import overview, played_ns, start_window, timeline

COMPUTE = frozenset([0])
EVERY = frozenset(range(len(STREAMS)))
MS = 10**6


def busy(bars, kind):
    """Nanoseconds that one kind takes, as the areas of its bars say."""
    rows = bars.kind == MEANINGS.index(kind)
    return float(((bars.end - bars.start) * bars.filled)[rows].sum())


def whole(trace):
    return (0, played_ns(trace))


def test_spans_are_drawn_one_by_one_while_they_fit():
    trace = trace_of(2, 2)
    bars = drawn(trace, whole(trace), EVERY)
    assert (bars.grain, len(bars)) == ("span", len(trace.spans.start))
    assert busy(bars, "forward") == 2 * 2 * 2 * 10 * MS
    assert busy(bars, "expert") == 2 * 2 * 2 * 2 * 2 * MS


def test_one_trace_per_kind_whatever_the_number_of_spans():
    figure = timeline(trace_of(4, 8), "light", (0, 10**9), "all").figure
    assert [trace.name for trace in traces(figure)] == ["Forward", "Backward", "Expert all-to-all"]


def test_bars_stand_where_the_spans_were():
    figure = timeline(trace_of(2, 1, segments=1), "light", (0, 10**9)).figure
    forward = traces(figure)[0]
    assert list(forward.base) == [0.0, 0.012]
    assert list(forward.x) == pytest.approx([0.01, 0.01])
    assert list(forward.y) == [0.0, 1.0]


def test_too_many_spans_become_passes():
    trace = trace_of(2, 4, segments=5)
    bars = drawn(trace, whole(trace), COMPUTE, budget=20)
    assert (bars.grain, len(bars)) == ("pass", 16)
    assert busy(bars, "forward") == pytest.approx(2 * 4 * 5 * 10 * MS)
    assert set(bars.end - bars.start) == {(5 * 12 - 2) * MS}


@pytest.mark.parametrize(("budget", "grain"), [(500, "span"), (80, "pass"), (30, "slice")])
def test_the_caption_says_when_bars_are_not_single_spans(budget, grain):
    trace = trace_of(4, 10, segments=4)
    caption = timeline(trace, "light", whole(trace), budget=budget).caption
    assert drawn(trace, whole(trace), COMPUTE, budget).grain == grain
    assert ("a bar is a whole pass" in caption) == (grain == "pass")
    assert ("a bar is a slice of" in caption) == (grain == "slice")


@given(budget=st.integers(24, 400), stages=st.integers(1, 4), batches=st.integers(1, 12))
def test_no_figure_exceeds_its_budget(budget, stages, batches):
    trace = trace_of(stages, batches, 3)
    picture = timeline(trace, "light", whole(trace), "all", budget)
    assert bar_count(picture.figure) <= budget
    assert bar_count(overview(trace, "light", budget).figure) <= budget


@given(start=st.integers(0, 300), length=st.integers(1, 300), budget=st.sampled_from([20, 5000]))
def test_nothing_is_drawn_outside_the_window(start, length, budget):
    window = (start * MS, (start + length) * MS)
    bars = drawn(trace_of(3, 4, 3), window, EVERY, budget)
    assert np.all(bars.start >= window[0])
    assert np.all(bars.end <= window[1])
    assert np.all(bars.end > bars.start)


@given(budget=st.integers(4, 200), segments=st.integers(1, 4))
def test_areas_stay_proportional_to_time_at_every_grain(budget, segments):
    trace = trace_of(2, 6, segments)
    coarse, exact = (drawn(trace, whole(trace), COMPUTE, limit) for limit in (budget, 10**6))
    area = ((coarse.end - coarse.start) * coarse.filled).sum()
    assert area == pytest.approx((exact.end - exact.start).sum(), rel=1e-6)
    assert np.all(coarse.filled <= 1 + 1e-9)


def test_kinds_are_stacked_in_a_slice_as_high_as_their_shares():
    rows = [(0, "compute", "forward", 0, 0, 0, 30), (0, "compute", "backward", 0, 0, 30, 80)]
    bars = drawn(make_trace(rows, 1), (0, 100 * MS), COMPUTE, budget=1)
    assert [MEANINGS[kind] for kind in bars.kind] == ["forward", "backward"]
    assert list(bars.filled) == pytest.approx([0.3, 0.5])
    assert list(bars.below) == pytest.approx([0.0, 0.3])


@pytest.mark.parametrize(
    ("stream", "name", "expected"),
    [
        ("compute", "forward", "forward"),
        ("compute", "backward", "backward"),
        ("compute", "recompute", "recompute"),
        ("compute", "optimizer", "optimizer"),
        ("compute", "pack", "compute"),
        ("expert", "dispatch", "expert"),
        ("send_forward", "send", "pipeline"),
        ("send_backward", "send", "pipeline"),
        ("data", "reduce_scatter_gradients", "data"),
        ("tensor", "gather_message", "tensor"),
    ],
)
def test_spans_mean_their_pass_or_their_axis(stream, name, expected):
    assert meaning(stream, name) == expected


def test_every_stream_of_the_engine_means_something():
    assert all(meaning(stream, "any") != "other" for stream in STREAMS)


def test_a_repeated_window_is_marked_and_named():
    trace = trace_of(2, 2, repeats=31, window_start=20 * MS, window_end=40 * MS)
    picture = overview(trace, "light")
    (band,) = layout(picture.figure).shapes
    assert (band.x0, band.x1) == (0.02, 0.04)
    assert "runs 31 times" in layout(picture.figure).annotations[0].text
    assert "happens 600 ms later than the axis says" in picture.caption


def test_a_step_played_in_full_has_no_mark():
    picture = overview(trace_of(2, 2), "light")
    assert not layout(picture.figure).shapes
    assert "drawn once" not in picture.caption


def test_a_mark_outside_the_window_is_not_drawn():
    trace = trace_of(2, 2, repeats=31, window_start=20 * MS, window_end=40 * MS)
    assert not layout(timeline(trace, "light", (50 * MS, 60 * MS)).figure).shapes


def test_the_overview_names_the_bubble_and_who_waits_longest():
    title = overview(trace_of(2, 2), "light").title
    assert "The bubble takes" in title
    assert "stage 0 waits longest" in title


def test_the_detail_says_how_much_of_its_window_is_waiting():
    rows = [(0, "compute", "forward", 0, 0, 0, 30), (1, "compute", "forward", 1, 0, 30, 60)]
    title = timeline(make_trace(rows, 2), "light", (0, 60 * MS)).title
    assert title == "From 0 s to 0.06 s the stages wait 50.0 % of the time"


def test_the_first_window_holds_about_as_many_passes_as_asked():
    trace = trace_of(1, 20, segments=1)
    assert start_window(trace, passes=10) == (0, round(played_ns(trace) * 10 / 40))
    assert start_window(trace, passes=1000) == whole(trace)
