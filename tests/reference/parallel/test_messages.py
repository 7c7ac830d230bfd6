"""Messages on a GPU: no schedule deadlocks under NCCL. No stream takes a tensor before it is made,
or gives its memory away before it is done."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch

from reference.parallel.messages import Handover, channel
from tests.reference.parallel.in_order import Share, stuck
from tests.schedules.test_orders import SETTINGS, schedule_of


def deadlocks(name: str, share: Share) -> list[tuple[int, int, int]]:
    """Shapes of a schedule that never end: stages, chunks, micro-batches."""
    schedule, found = schedule_of(name), []
    for shape in product((2, 3, 4, 8), (1, 2, 3), (4, 8, 12, 24)):
        if not schedule.problems(*shape):
            chunk_map = schedule.chunk_map(*shape[:2])
            found += [shape] if stuck(schedule.order(*shape), chunk_map, share) else []
    return found


@pytest.mark.parametrize("name", SETTINGS)
def test_no_schedule_deadlocks_under_nccl(name: str) -> None:
    assert deadlocks(name, channel) == []


@pytest.mark.parametrize("name", ["interleaved_1f1b", "dualpipe"])
def test_one_group_for_both_ways_would_deadlock(name: str) -> None:
    """The checker finds what the trainer had: a group for each direction of the model alone."""
    assert deadlocks(name, lambda direction, *_: direction)


class Stream:
    """A stream that notes what it waits for."""

    def __init__(self) -> None:
        self.waits: list[object] = []

    def record_event(self) -> object:
        return ("made on", self)

    def wait_event(self, event: object) -> None:
        self.waits.append(event)


class OnGpu:
    """A tensor of a GPU that notes which streams use its memory."""

    is_cuda = True

    def __init__(self) -> None:
        self.used: list[object] = []

    def record_stream(self, stream: object) -> None:
        self.used.append(stream)


def test_the_takers_stream_waits_and_keeps_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    maker, taker, tensor = Stream(), Stream(), OnGpu()
    given: Any = tensor
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: maker)
    made = Handover.of(given)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: taker)
    assert made.take() is given
    assert (taker.waits, tensor.used, maker.waits) == ([("made on", maker)], [taker], [])


def test_a_cpu_hands_over_without_events() -> None:
    x = torch.ones(2)
    made = Handover.of(x)
    assert made.made is None
    assert made.take() is x
