"""What spans add up to, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from reference.weight_sync.pipeline import StageSpan, overlapped, summed, united


def span(stage: Any, start: float, end: float, owner: int = 0) -> StageSpan:
    return StageSpan(stage, 0, owner, round(start * 1e9), round(end * 1e9), 10)


def test_times_that_overlap_count_once() -> None:
    assert united([(5, 7), (0, 2), (1, 3), (3, 4)]) == [(0, 4), (5, 7)]


def test_a_broadcast_begins_when_the_first_receiver_is_there() -> None:
    senders = [span("host_copy", 0, 1), span("broadcast", 1, 6)]
    receivers = [
        span("broadcast", 3, 6),
        span("broadcast", 2, 5),
        span("reload", 6, 8),
        span("reload", 5, 7),
    ]
    found = summed(senders, receivers)
    assert found["broadcast"] == {"seconds": pytest.approx(4), "spans": 1, "bytes": 10}
    assert found["reload"] == {"seconds": pytest.approx(3), "spans": 2, "bytes": 20}
    assert found["host_copy"]["seconds"] == pytest.approx(1)


def test_overlap_is_where_two_stages_are_at_work() -> None:
    senders = [span("host_copy", 0, 2), span("host_copy", 1, 4, owner=1), span("broadcast", 3, 7)]
    receivers = [span("broadcast", 0, 7), span("reload", 6, 9)]
    assert overlapped(senders, receivers) == pytest.approx(1 + 1)
