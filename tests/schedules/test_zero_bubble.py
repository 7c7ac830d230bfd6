"""ZB-H1 and ZB-H2 as published: their orders, bubbles and memory (Qi et al. 2023,
arXiv:2401.10241)."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.schedules.player import Times, most_in_flight, play
from twin.schedules import SCHEDULES
from twin.schedules.zb_h2 import ZeroBubbleH2

H2 = ZeroBubbleH2()


@given(
    stages=st.integers(1, 8),
    more=st.integers(0, 24),
    forward=st.integers(1, 9),
    inputs=st.integers(1, 9),
    weights=st.integers(1, 9),
)
def test_the_bubble_of_zb_h2_is_that_of_theory(stages, more, forward, inputs, weights):
    """(p - 1)(T_F + T_B - 2 T_W) on the first stage, and less by as much per stage: Qi et al. 2023,
    table 2, whose T_B is the input's half; from a stage's first pass to its last, since stages end
    staggered. It holds where weights take no longer than either other pass."""
    assume(weights <= min(forward, inputs))
    shape = (stages, 1, 2 * stages - 1 + more)
    step = play(H2, shape, Times(forward, inputs, weights))
    each = forward + inputs - 2 * weights
    assert step.gaps == [later * each for later in reversed(range(stages))]


def test_zb_h2_waits_for_nothing_where_passes_are_equal_and_else_for_the_others_end():
    """Eight stages: no gap in any; stages that end together lose (p - 1) F, as ZB-H1's do."""
    step = play(H2, (8, 1, 15))
    assert set(step.gaps) == {0}
    assert set(step.idle) == {7}


@given(
    shape=st.tuples(st.integers(1, 6), st.just(1), st.integers(1, 20)),
    times=st.builds(Times, *[st.integers(1, 9)] * 3, pair=st.none(), message=st.integers(0, 3)),
)
def test_staggered_steps_in_a_row_come_no_later_than_the_longest_stage_takes(shape, times):
    """What a step of a run lasts: four and five steps in a row, each stage on its way without the
    others; exactly so long where no stage has time to spare."""
    stages, _, microbatches = shape

    def steps(number: int) -> tuple[int, ...]:
        orders = tuple(
            tuple(
                replace(a, microbatch=a.microbatch + k * microbatches)
                for k in range(number)
                for a in order
            )
            for order in H2.order(*shape)
        )
        return play(H2, shape, times, orders).own

    longest = max(play(H2, shape, times).own)
    more = max(late - early for early, late in zip(steps(4), steps(5), strict=True))
    assert more <= longest
    if microbatches >= 2 * stages - 1 and times.weights <= min(times.forward, times.inputs):
        assert more == longest


PROFILED = {
    (8, 24): (18.522, 18.086, 9.337, 0.601),
    (8, 64): (29.935, 29.621, 19.388, 0.535),
    (16, 48): (11.347, 11.248, 8.132, 0.377),
    (32, 256): (10.402, 10.248, 7.698, 0.460),
}
"""Stages and micro-batches of the 1.5B, 6.2B, 14.6B and 28.3B models -> T_F, T_B, T_W, T_comm (ms):
Qi et al. 2023, table 9."""


@pytest.mark.parametrize(
    ("name", "settings", "rates"),
    [
        ("zb_h1", {}, (0.1585, 0.0554, 0.1397, 0.0594)),
        ("zb_h2", {}, (0.1083, 0.0294, 0.0672, 0.0257)),
        ("ZB-2p", {"weights_late": (4, 4, 3, 3)}, (0.0433, 0.0010, 0.0066, 0.0018)),
    ],
)
def test_bubble_rates_of_zero_bubble_schedules_are_those_published(name, settings, rates):
    """Qi et al. 2023, table 5: (cost - m (T_F + T_B + T_W)) / cost, the cost being the longest time
    of a stage. Of ZB-2p, whose orders are searched for, the nearest by hand, within 0.2 %."""
    kind = "zb_h2" if settings else name
    for number, ((stages, microbatches), measured) in enumerate(PROFILED.items()):
        own = {key: values[number] for key, values in settings.items()}
        schedule = SCHEDULES[kind].model_validate({"kind": kind} | own)
        forward, inputs, weights, message = (round(1000 * ms) for ms in measured)
        times = Times(forward, inputs, weights, message=message)
        step = play(schedule, (stages, 1, microbatches), times)
        bubble = 1 - step.busy[0] / max(step.own)
        assert bubble == pytest.approx(rates[number], abs=0.002 if settings else 0.0001)


def test_zb_h2_of_four_stages_and_eight_microbatches_is_the_one_drawn_by_hand():
    """Qi et al. 2023, figure 3: seven forwards first on the first stage, one on the last; after the
    last forward, the last stage has seven weight gradients left and the first one."""
    written = [" ".join(f"{a.kind}{a.microbatch}" for a in order) for order in H2.order(4, 1, 8)]
    assert written == [
        "F0 F1 F2 F3 F4 F5 F6 I0 W0 F7 I1 W1 I2 W2 I3 W3 I4 W4 I5 W5 I6 W6 I7 W7",
        "F0 F1 F2 F3 F4 I0 F5 I1 F6 I2 W0 F7 I3 W1 I4 W2 I5 W3 I6 W4 I7 W5 W6 W7",
        "F0 F1 F2 I0 F3 I1 F4 I2 F5 I3 F6 I4 W0 F7 I5 W1 I6 W2 I7 W3 W4 W5 W6 W7",
        "F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 F5 I5 F6 I6 W0 F7 I7 W1 W2 W3 W4 W5 W6 W7",
    ]


@given(shape=st.tuples(st.integers(1, 8), st.just(1), st.integers(1, 24)))
def test_zb_h2_keeps_twice_the_first_stage_of_1f1b_less_one(shape):
    """Qi et al. 2023, section 2.3: (2 p - 2 i + 1) M_B + (2 i - 2) M_W on worker i, from 1."""
    stages, _, microbatches = shape
    for stage, order in enumerate(H2.order(*shape)):
        assert most_in_flight(order) == min(microbatches, 2 * stages - 1)
        inputs = [replace(a, kind="B" if a.kind == "I" else a.kind) for a in order]
        before_inputs = most_in_flight(tuple(a for a in inputs if a.kind != "W"))
        assert before_inputs == min(microbatches, 2 * (stages - stage) - 1)
