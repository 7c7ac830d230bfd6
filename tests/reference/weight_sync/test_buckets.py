"""Buckets hold whole tensors of one owner: by hand, and as the simulator of the same thing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reference.weight_sync.layout import ALIGNED, Buffers, Unit, buckets, buffers
from twin.errors import UsageError
from twin.kinds.weight_update import plan as simulated


def unit(name: str, lines: int) -> Unit:
    """A tensor of so many times 64 bytes."""
    return Unit(name, name, None, (lines * ALIGNED,), torch.uint8, ())


def test_a_bucket_is_closed_when_the_next_tensor_would_not_fit() -> None:
    first = [unit("a", 3), unit("b", 2), unit("c", 4), unit("d", 1)]
    second = [unit("e", 5)]
    made = buckets([first, second], 5 * ALIGNED)
    names = [(one.owner, one.round, [unit.name for unit, _ in one.units]) for one in made]
    assert names == [(0, 0, ["a", "b"]), (1, 0, ["e"]), (0, 1, ["c", "d"])]
    assert [one.start for one in made] == [0, 0, 5 * ALIGNED]
    assert [offset for _, offset in made[2].units] == [0, 4 * ALIGNED]


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=30), limit=st.integers(9, 40))
def test_buckets_are_those_of_the_simulator(sizes: list[int], limit: int) -> None:
    made = buckets([[unit(str(at), size) for at, size in enumerate(sizes)]], limit * ALIGNED)
    told = simulated.pack(np.array(sizes), limit)
    assert [[int(one.name) for one, _ in each.units] for each in made] == [[*one] for one in told]


@given(st.integers(3, 10**6), st.integers(1, 10**6), st.integers(1, 10**5))
def test_buffers_are_those_of_the_simulator(free: int, limit: int, largest: int) -> None:
    told = simulated.buffers(free, limit, largest)
    if told.bytes < largest:
        with pytest.raises(UsageError):
            buffers(free, limit, largest)
    else:
        assert buffers(free, limit, largest) == Buffers(told.bytes, told.count)


def test_without_room_for_three_the_copy_buffer_is_left_out() -> None:
    assert buffers(free=300, limit=50, largest=80) == Buffers(80, 3)
    assert buffers(free=300, limit=500, largest=80) == Buffers(100, 3)
    assert buffers(free=300, limit=50, largest=120) == Buffers(120, 2)
    assert buffers(free=300, limit=500, largest=120) == Buffers(150, 2)
