"""The event player against closed forms and steps worked out on paper."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.programs import by_hand, segment, with_exchange
from twin.engine.events import play
from twin.engine.played import DeadlockError
from twin.engine.program import StageMessage
from twin.engine.simulate import simulate
from twin.engine.unroll import unroll
from twin.schedules.base import Action, Obstacle, Schedule
from twin.schedules.gpipe import GPipe
from twin.schedules.interleaved import Interleaved
from twin.schedules.one_f_one_b import OneForwardOneBackward

pytestmark = pytest.mark.usefixtures("each_player")


@pytest.mark.parametrize("schedule", [OneForwardOneBackward(), GPipe()])
@pytest.mark.parametrize(("stages", "microbatches"), [(1, 3), (2, 2), (4, 8), (8, 8), (8, 5)])
def test_the_bubble_is_the_closed_form_when_forward_equals_backward(
    schedule: Schedule, stages: int, microbatches: int
) -> None:
    """Narayanan et al. 2021, section 2.2: (p - 1) / (m + p - 1) of the step."""
    program = by_hand(
        schedule, (stages, 1, microbatches), lambda _: segment(100), lambda _: segment(100)
    )
    trace = simulate(program)
    assert trace.step_ns == 200 * (microbatches + stages - 1)
    assert {row["bubble"] for row in trace.breakdown_ns} == {200 * (stages - 1)}


@pytest.mark.parametrize(("stages", "virtual", "microbatches"), [(2, 2, 4), (4, 3, 8), (8, 4, 16)])
def test_the_interleaved_bubble_shrinks_with_the_chunks(
    stages: int, virtual: int, microbatches: int
) -> None:
    program = by_hand(
        Interleaved(), (stages, virtual, microbatches), lambda _: segment(50), lambda _: segment(50)
    )
    trace = simulate(program)
    assert trace.step_ns == 100 * (microbatches * virtual + stages - 1)


def test_two_stages_with_a_slow_message_by_hand() -> None:
    """Two stages, one micro-batch, F = 10, B = 20, message 5 latency + 30 bytes at 1 B/ns: 10 + 35
    + 10 + 20 + 35 + 20."""
    program = by_hand(
        OneForwardOneBackward(),
        (2, 1, 1),
        lambda _: segment(10),
        lambda _: segment(20, "backward"),
        StageMessage(30.0, "nic", 5),
    )
    trace = simulate(program)
    assert trace.step_ns == 130
    first, second = trace.breakdown_ns
    assert (first["compute"], first["exposed_pipeline"], first["bubble"]) == (30, 35, 65)
    assert (second["compute"], second["exposed_pipeline"], second["bubble"]) == (30, 35, 65)


def test_an_exchange_inside_a_pass_is_exposed_for_its_whole_length() -> None:
    program = by_hand(
        OneForwardOneBackward(),
        (1, 1, 3),
        lambda _: with_exchange(10, 7.0),
        lambda _: segment(10, "backward"),
    )
    (row,) = simulate(program).breakdown_ns
    assert (row["compute"], row["exposed_expert"], row["bubble"]) == (60, 21, 0)


def test_a_message_and_an_exchange_on_one_nic_share_it() -> None:
    """Stage 0 sends 100 B when its first forward ends at 110; its next forward exchanges 100 B from
    115 on. Alone each takes 100 ns. From 115 both get 0.5 B/ns: the message, with 95 B left, ends
    at 305. Stage 1 then needs 2 ns to answer with 100 B into the port through which the exchange
    receives: of its last 5 B, 2 go alone, 3 at half rate, until 313."""
    program = by_hand(
        OneForwardOneBackward(),
        (2, 1, 2),
        lambda c: with_exchange(10, 100.0) if c == 0 else segment(1),
        lambda _: segment(1, "backward"),
        StageMessage(100.0, "nic", 0),
    )
    graph = unroll(program, 2)
    played = play(graph, program)
    sends = np.nonzero(graph.named("send_forward"))[0]
    exchanges = np.nonzero(graph.named("dispatch"))[0]
    assert (played.start[exchanges[0]], played.end[exchanges[0]]) == (5, 105)
    assert (played.start[sends[0]], played.start[exchanges[1]]) == (110, 115)
    assert (played.end[sends[0]], played.end[exchanges[1]]) == (305, 313)
    assert played.shared


def test_a_schedule_that_waits_for_itself_is_a_deadlock() -> None:
    class BackwardFirst(Schedule):
        kind: str = "backward_first"

        def stage_order(self, stage: int, *_: int) -> tuple[Action, ...]:
            order = (Action("B", stage, 0), Action("F", stage, 0))
            return order if stage == 0 else order[::-1]

        def period(self, *_: int) -> None:
            return None

        def warmup_microbatches(self, *_: int) -> int:
            return 0

        def problems(self, *_: int) -> list[Obstacle]:
            return []

    program = by_hand(BackwardFirst(), (2, 1, 1), lambda _: segment(1), lambda _: segment(1))
    with pytest.raises(DeadlockError, match="never starts"):
        simulate(program)


def test_the_same_program_plays_the_same() -> None:
    program = by_hand(
        Interleaved(),
        (4, 2, 8),
        lambda c: with_exchange(100 + c, 60.0),
        lambda c: with_exchange(200 - c, 60.0, "backward"),
        StageMessage(37.0, "nic", 2),
    )
    first, second = simulate(program), simulate(program)
    assert first.breakdown_ns == second.breakdown_ns
    assert (first.spans.start == second.spans.start).all()
    assert (first.spans.end == second.spans.end).all()
