"""What events tell the light model, of a program worked out by hand."""

from __future__ import annotations

import pytest

from tests.engine.programs import by_hand
from twin.engine.observed import observed
from twin.engine.program import COMPUTE, StageMessage, Step
from twin.engine.simulate import step_ns
from twin.schedules.one_f_one_b import OneForwardOneBackward


@pytest.mark.parametrize("microbatches", [2, 40])
def test_events_tell_how_long_turns_and_messages_take(microbatches: int) -> None:
    """Forwards of 10 and 20, backwards of 30 and 40; messages of 50 bytes at a byte a nanosecond,
    of which none waits for another, behind 7 of latency."""
    times = {"forward": (10, 20), "backward": (30, 40)}
    program = by_hand(
        *(OneForwardOneBackward(), (2, 1, microbatches)),
        lambda chunk: (Step("forward", COMPUTE, times["forward"][chunk], ()),),
        lambda chunk: (Step("backward", COMPUTE, times["backward"][chunk], ()),),
        StageMessage(50.0, "nic", 7),
    )
    _, (graph, played, _) = step_ns(program)
    seen = observed(program, graph, played)
    assert seen.turns == {
        (("F", 0),): 10.0,
        (("F", 1),): 20.0,
        (("B", 0),): 30.0,
        (("B", 1),): 40.0,
    }
    assert seen.message == 57.0
