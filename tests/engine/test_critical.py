"""The critical path: a chain without gaps from the first to the last nanosecond."""

from __future__ import annotations

import pytest

from tests.engine.programs import by_hand, segment, with_exchange
from twin.engine.program import STREAMS, StageMessage
from twin.engine.simulate import simulate
from twin.schedules.base import Schedule
from twin.schedules.dualpipe import DualPipe
from twin.schedules.interleaved import Interleaved
from twin.schedules.one_f_one_b import OneForwardOneBackward
from twin.schedules.zb_h1 import ZeroBubbleH1

pytestmark = pytest.mark.usefixtures("each_player")

K2 = Interleaved(extra_warmup=1, overlap_all_to_all=True, defer_weight_grad=True)


@pytest.mark.parametrize(
    ("schedule", "shape"),
    [
        (OneForwardOneBackward(), (4, 1, 6)),
        (K2, (4, 2, 8)),
        (ZeroBubbleH1(), (4, 1, 6)),
        (DualPipe(), (4, 1, 8)),
    ],
)
def test_each_span_starts_when_the_one_before_ends_and_all_together_are_the_step(
    schedule: Schedule, shape: tuple[int, int, int]
) -> None:
    program = by_hand(
        schedule,
        shape,
        lambda c: with_exchange(100 + c, 60.0),
        lambda c: with_exchange(190 - c, 70.0, "backward"),
        StageMessage(0.0, "nic", 9),
        lambda _: segment(80, "backward_weight"),
    )
    trace = simulate(program, extrapolate=False)
    rows = list(trace.critical)
    starts, ends = trace.spans.start[rows], trace.spans.end[rows]
    assert starts[0] == 0
    assert ends[-1] == trace.step_ns
    assert (starts[1:] == ends[:-1]).all()


def test_the_critical_path_of_1f1b_is_the_one_drawn_by_hand() -> None:
    """Two stages, two micro-batches, F = 10, B = 20, messages of 5: F0 on stage 0, message, then
    stage 1 is busy until B1, message, B1 on stage 0."""
    program = by_hand(
        OneForwardOneBackward(),
        (2, 1, 2),
        lambda _: segment(10),
        lambda _: segment(20, "backward"),
        StageMessage(0.0, "nic", 5),
    )
    trace = simulate(program)
    path = [
        (int(trace.spans.role[r]), STREAMS[trace.spans.stream[r]], int(trace.spans.microbatch[r]))
        for r in trace.critical
    ]
    assert path == [
        (0, "compute", 0),
        (0, "send_forward", 0),
        (1, "compute", 0),
        (1, "compute", 0),
        (1, "compute", 1),
        (1, "compute", 1),
        (1, "send_backward", 1),
        (0, "compute", 1),
    ]
    assert trace.step_ns == 10 + 5 + 60 + 5 + 20
