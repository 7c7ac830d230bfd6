"""The timeline draws time as it was, never more bars than a browser bears, and says when it
left something out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.figures.made import layout, trace_of, traces
from twin.engine.program import STREAMS
from twin.figures.bars import MEANINGS, drawn, meaning
from twin.figures.plotly import bar_count
from twin.figures.timeline import played_ns, timeline

COMPUTE = frozenset([0])
EVERY = frozenset(range(len(STREAMS)))
MS = 10**6


def busy(bars, kind):
    """Nanoseconds drawn in one kind."""
    rows = bars.kind == MEANINGS.index(kind)
    return int((bars.end - bars.start)[rows].sum())


def whole(trace):
    return (0, played_ns(trace))


def test_spans_are_drawn_one_by_one_while_they_fit():
    trace = trace_of(2, 2)
    bars = drawn(trace, whole(trace), EVERY)
    assert (bars.grain, len(bars)) == ("span", len(trace.spans.start))
    assert busy(bars, "forward") == 2 * 2 * 2 * 10 * MS
    assert busy(bars, "expert") == 2 * 2 * 2 * 2 * 2 * MS


def test_one_trace_per_kind_whatever_the_number_of_spans():
    figure = timeline(trace_of(4, 8), "light", "all").figure
    assert [trace.name for trace in traces(figure)] == ["Forward", "Backward", "Expert all-to-all"]


def test_bars_stand_where_the_spans_were():
    figure = timeline(trace_of(2, 1, segments=1), "light").figure
    forward = traces(figure)[0]
    assert list(forward.base) == [0.0, 0.012]
    assert list(forward.x) == pytest.approx([0.01, 0.01])
    assert list(forward.y) == [0.0, 1.0]


def test_too_many_spans_become_passes():
    trace = trace_of(2, 4, segments=5)
    bars = drawn(trace, whole(trace), COMPUTE, budget=20)
    assert (bars.grain, len(bars)) == ("pass", 16)
    assert busy(bars, "forward") == 2 * 4 * (5 * 12 - 2) * MS


@pytest.mark.parametrize(("budget", "grain"), [(500, "span"), (80, "pass"), (30, "slice")])
def test_the_caption_says_when_bars_are_not_single_spans(budget, grain):
    trace = trace_of(4, 10, segments=4)
    caption = timeline(trace, "light", budget=budget).caption
    assert drawn(trace, whole(trace), COMPUTE, budget).grain == grain
    assert ("covers a whole pass" in caption) == (grain == "pass")
    assert ("each slice of" in caption) == (grain == "slice")


@given(budget=st.integers(8, 400), stages=st.integers(1, 4), batches=st.integers(1, 12))
def test_no_figure_exceeds_its_budget(budget, stages, batches):
    trace = trace_of(stages, batches, 3)
    picture = timeline(trace, "light", "all", budget=budget)
    assert bar_count(picture.figure) <= budget


@given(start=st.integers(0, 300), length=st.integers(1, 300), budget=st.sampled_from([20, 5000]))
def test_nothing_is_drawn_outside_the_window(start, length, budget):
    window = (start * MS, (start + length) * MS)
    bars = drawn(trace_of(3, 4, 3), window, EVERY, budget)
    assert np.all(bars.start >= window[0])
    assert np.all(bars.end <= window[1])
    assert np.all(bars.end > bars.start)


def test_slices_keep_the_time_of_each_kind_to_about_a_slice_per_edge():
    trace = trace_of(2, 30, segments=1)
    bars = drawn(trace, whole(trace), COMPUTE, budget=100)
    exact = drawn(trace, whole(trace), COMPUTE)
    assert bars.grain == "slice"
    for kind in ("forward", "backward"):
        assert busy(bars, kind) == pytest.approx(busy(exact, kind) * 12 / 10, rel=0.15)


def test_a_slice_less_than_half_filled_stays_empty():
    trace = trace_of(1, 1, segments=1)
    bars = drawn(trace, (0, 100 * MS), EVERY, budget=1)
    assert len(bars) == 0


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
    picture = timeline(trace, "light")
    (band,) = layout(picture.figure).shapes
    assert (band.x0, band.x1) == (0.02, 0.04)
    assert "runs 31 times" in layout(picture.figure).annotations[0].text
    assert "happens 600 ms later than the axis says" in picture.caption


def test_a_step_played_in_full_has_no_mark():
    picture = timeline(trace_of(2, 2), "light")
    assert not layout(picture.figure).shapes
    assert "drawn once" not in picture.caption


def test_the_title_names_the_bubble_and_who_waits_longest():
    title = timeline(trace_of(2, 2), "light").title
    assert "The bubble takes" in title
    assert "stage 0 waits longest" in title
