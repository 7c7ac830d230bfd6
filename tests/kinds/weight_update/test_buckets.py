"""The arithmetic of buckets, checked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kinds.weight_update.updates import SMALL, planned
from twin.kinds.weight_update.checkpoint import Checkpoint
from twin.kinds.weight_update.plan import Buffers, buckets, buffers, pack, shares

GIB = 2**30


@pytest.mark.parametrize(
    ("free", "limit", "largest", "expected"),
    [
        (30 * GIB, 8 * GIB, 2 * GIB, Buffers(8 * GIB, 3)),  # the limit
        (17 * GIB, 8 * GIB, 2 * GIB, Buffers(17 * GIB // 3, 3)),  # a third of the free memory
        (60 * GIB, 8 * GIB, 10 * GIB, Buffers(10 * GIB, 3)),  # the largest tensor
        (5 * GIB, 8 * GIB, 2 * GIB, Buffers(5 * GIB // 2, 2)),  # no copy buffer: half
        (6 * GIB, 8 * GIB, 2 * GIB, Buffers(2 * GIB, 3)),  # a third just holds it
        (3 * GIB, 8 * GIB, 2 * GIB, Buffers(3 * GIB // 2, 2)),  # too small for the tensor
    ],
)
def test_a_buffer_is_the_limit_or_a_part_of_the_free_memory(free, limit, largest, expected) -> None:
    assert buffers(free, limit, largest) == expected


def test_tensors_are_dealt_out_by_count() -> None:
    assert shares(10, 4) == [range(3), range(3, 6), range(6, 9), range(9, 10)]
    assert [len(share) for share in shares(2, 4)] == [1, 1, 0, 0]


def test_a_bucket_is_closed_when_the_next_tensor_would_not_fit() -> None:
    sizes = np.array([3, 3, 3, 5, 1, 7])
    assert pack(sizes, 7) == [range(2), range(2, 3), range(3, 5), range(5, 6)]


def test_buckets_hold_whole_tensors_of_one_owner_in_turns() -> None:
    cut = np.array([0, 1, 2, 2, 2, 2], np.int8)
    made = buckets(Checkpoint(np.array([4, 4, 4, 4, 4, 4]), cut), 2, 8)
    told = [(one.owner, one.round, one.bytes, one.tensors) for one in made]
    assert told == [(0, 0, 8, 2), (1, 0, 8, 2), (0, 1, 4, 1), (1, 1, 4, 1)]
    assert (made[0].replicated, made[0].shared) == (4, 4)


def test_kimi_k2_on_16_gpus_takes_the_buffers_that_were_reported() -> None:
    """The README prints 5.89 GiB; 64.3 GB per rank in such buckets are 11 rounds."""
    plan = planned(SMALL)
    assert plan.buffers.count == 3
    assert plan.buffers.bytes / GIB == pytest.approx(5.89)
    assert plan.rounds == -(-1_029_173 // 16 // 6_324)
    assert sum(one.bytes for one in plan.buckets) == plan.payload
    assert all(one.bytes <= plan.buffers.bytes for one in plan.buckets)
