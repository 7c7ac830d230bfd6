"""Messages on a GPU: no schedule deadlocks under NCCL. That no stream takes a tensor before it is
made is in `tests.reference.test_ordering`."""

from __future__ import annotations

from itertools import product

import pytest

from reference.parallel.messages import channel
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
