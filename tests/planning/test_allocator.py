"""PyTorch's caching allocator, by hand: rounding, segments, holes, streams, segments that grow."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twin.planning.allocator import MIB, Block, CachingAllocator


@pytest.mark.parametrize(
    ("size", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (9 * MIB, 9 * MIB, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),  # 1 MiB is not split off
    ],
)
def test_sizes_are_rounded_and_cut_out_of_segments(
    size: int, allocated: int, reserved: int
) -> None:
    memory = CachingAllocator()
    memory.take(size)
    assert (memory.allocated, memory.reserved) == (allocated, reserved)


@pytest.mark.parametrize(("size", "reserved"), [(1, 2 * MIB), (21 * MIB, 40 * MIB)])
def test_a_segment_that_grows_has_pages_of_2_or_20_mib(size: int, reserved: int) -> None:
    memory = CachingAllocator(expandable=True)
    memory.take(size)
    assert memory.reserved == reserved


def test_a_free_block_is_used_again_and_never_given_back() -> None:
    memory = CachingAllocator()
    memory.give(memory.take(100 * MIB))
    assert (memory.allocated, memory.reserved) == (0, 100 * MIB)
    memory.take(60 * MIB)
    memory.take(40 * MIB)
    assert (memory.allocated, memory.reserved) == (100 * MIB, 100 * MIB)


def test_two_holes_are_no_place_for_what_is_as_large_as_both() -> None:
    """A segment of 100 MiB with its middle in use has two holes of 40 MiB."""
    memory = CachingAllocator()
    memory.give(memory.take(100 * MIB))
    left, middle, right = (memory.take(size * MIB) for size in (40, 20, 40))
    memory.give(left)
    memory.give(right)
    large = memory.take(80 * MIB)
    assert memory.reserved == 180 * MIB
    memory.give(large)
    memory.give(middle)
    memory.take(100 * MIB)
    assert memory.reserved == 180 * MIB


def test_up_to_1_mib_of_a_large_block_is_not_split_off() -> None:
    memory = CachingAllocator()
    memory.give(memory.take(100 * MIB))
    memory.take(99 * MIB)
    assert memory.allocated == 100 * MIB


def test_a_stream_never_gets_blocks_of_another() -> None:
    memory = CachingAllocator()
    memory.give(memory.take(100 * MIB, "gather"))
    memory.take(100 * MIB)
    assert memory.reserved == 200 * MIB


def test_the_free_end_of_a_segment_grows_by_what_is_missing() -> None:
    """Holes are filled first; what fits into none reaches past the end."""
    memory = CachingAllocator(expandable=True)
    hole, end = memory.take(100 * MIB), memory.take(100 * MIB)
    memory.give(hole)
    memory.take(60 * MIB)
    assert memory.reserved == 200 * MIB
    memory.give(end)
    memory.take(160 * MIB)
    assert memory.reserved == 220 * MIB


@given(st.lists(st.tuples(st.integers(1, 50 * MIB), st.integers(0, 5)), max_size=60), st.booleans())
def test_no_more_is_allocated_than_reserved_and_all_of_it_comes_back(
    orders: Sequence[tuple[int, int]], expandable: bool
) -> None:
    memory, alive = CachingAllocator(expandable), list[Block]()
    for size, which in orders:
        if which < len(alive):
            memory.give(alive.pop(which))
        else:
            alive.append(memory.take(size, "ab"[which % 2]))
        assert sum(block.size for block in alive) == memory.allocated <= memory.reserved
    while alive:
        memory.give(alive.pop())
    before = memory.reserved
    again = [memory.take(size, "ab"[which % 2]) for size, which in orders[:1]]
    assert memory.reserved == before or not again
