"""A trace of a hundred thousand spans is drawn quickly, in few bars and little JSON."""

import time

import numpy as np
import pytest

from tests.figures.made import breakdown
from twin.engine.program import STREAMS
from twin.engine.trace import Spans, Trace
from twin.figures.plotly import bar_count
from twin.figures.timeline import overview, played_ns, side_by_side, start_window, timeline

SPANS, STAGES = 100_000, 16
MOST_SECONDS = 1.0
"""CPU seconds to build and to write out one figure; measured here: 0.1 to 0.2."""
MOST_BYTES = 1_500_000


def large():
    """Sixteen stages whose forwards and backwards of 25 segments each are followed by exchanges."""
    each = SPANS // STAGES // 2
    turn = np.arange(each)
    start = np.concatenate([turn * 200_000, turn * 200_000 + 120_000])
    end = np.concatenate([turn * 200_000 + 120_000, turn * 200_000 + 190_000])
    name = np.concatenate([turn // 25 % 2, np.full(each, 2)])
    stream = np.repeat([0, STREAMS.index("expert")], each)
    batch = np.concatenate([turn // 50, turn // 50])
    many = 2 * each
    role = np.repeat(np.arange(STAGES), many)
    spans = Spans(
        role=role.astype(np.int32),
        stream=np.tile(stream, STAGES).astype(np.int8),
        name=np.tile(name, STAGES).astype(np.int32),
        chunk=role.astype(np.int32),
        microbatch=np.tile(batch, STAGES).astype(np.int32),
        start=np.tile(start, STAGES) + role * 6_000_000,
        end=np.tile(end, STAGES) + role * 6_000_000,
    )
    step = int(spans.end.max())
    row = breakdown() | {"compute": step - step // 2, "bubble": step // 2}
    return Trace(
        spans=spans,
        names=("forward", "backward", "dispatch"),
        roles=tuple(f"stage {stage}" for stage in range(STAGES)),
        step_ns=step,
        breakdown_ns=(row,) * STAGES,
        link_bytes={},
        link_busy={},
        events=SPANS,
        played_microbatches=63,
        microbatches=63,
        critical=tuple(range(0, len(role), 3)),
    )


FIGURES = {
    "overview": lambda trace: overview(trace, "light", critical=True),
    "whole": lambda trace: timeline(trace, "light", (0, played_ns(trace)), "all", critical=True),
    "start": lambda trace: timeline(trace, "light", start_window(trace), "all", critical=True),
    "side by side": lambda trace: side_by_side([("a", trace), ("b", trace)], "light"),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_hundred_thousand_spans_are_drawn_in_time_and_in_bounds(name):
    trace = large()
    assert len(trace.spans.start) == SPANS
    begin = time.process_time()
    figure = FIGURES[name](trace).figure
    text = str(figure.to_json())
    seconds = time.process_time() - begin
    print(f"{name}: {seconds:.2f} s of CPU, {len(text) / 1e3:.0f} kB, {bar_count(figure)} bars")
    assert seconds < MOST_SECONDS
    assert len(text) < MOST_BYTES
    assert bar_count(figure) <= 5_000
