"""PyTorch's caching allocator of device memory: what it holds for the tensors that it hands out.

Its rules (c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.x): sizes are rounded up to 512 bytes; up
to 1 MiB is cut out of segments of 2 MiB, more than that out of segments of 20 MiB, and from 10 MiB
on a segment is as large as the tensor, rounded up to 2 MiB. A tensor takes the smallest free block
of its stream that it fits into, which is split where more than 1 MiB would be left (small ones:
512 bytes). Freed blocks merge with free neighbours of their segment, and are kept. Blocks of one
stream are never another's.

With `expandable_segments` each stream has one segment for small and one for large tensors, which
grows at its end by 2 or 20 MiB, and every block can be split. A tensor that fits into no hole
reaches past the end.

Left out: what is given back where no memory is left, and blocks of 16 MiB that other options round.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from math import ceil
from typing import Final, TypeAlias

MIB: Final = 1 << 20
ROUND: Final = 512
"""Bytes to which sizes are rounded up (`kMinBlockSize`)."""
SMALL: Final = MIB
"""Bytes of the largest tensor of the small pool (`kSmallSize`)."""
SMALL_SEGMENT: Final = 2 * MIB
"""Bytes of its segments, and what large ones are rounded up to (`kSmallBuffer`,
`kRoundLarge`)."""
LARGE_SEGMENT: Final = 20 * MIB
"""Bytes of a segment for tensors of less than `OWN_SEGMENT` (`kLargeBuffer`)."""
OWN_SEGMENT: Final = 10 * MIB
"""Bytes of a tensor that gets a segment of its own (`kMinLargeAlloc`)."""

Stream: TypeAlias = str


@dataclass(slots=True, eq=False)
class Block:
    """Part of a segment: in use, or free and kept."""

    size: int
    pool: Pool
    number: int
    free: bool = False
    before: Block | None = field(default=None, repr=False)
    after: Block | None = field(default=None, repr=False)


@dataclass(slots=True, eq=False)
class Pool:
    """The small or the large tensors of a stream, and its free blocks by size. The free end of an
    expandable segment is `end`, which counts as larger than any hole."""

    small: bool
    free: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    blocks: dict[int, Block] = field(default_factory=dict[int, Block])
    last: Block | None = None
    """Of an expandable segment."""


@dataclass(slots=True)
class CachingAllocator:
    """The allocator of one device. `allocated` counts rounded tensors, `reserved` segments."""

    expandable: bool = False
    allocated: int = 0
    reserved: int = 0
    most_allocated: int = 0
    most_reserved: int = 0
    _pools: dict[tuple[Stream, bool], Pool] = field(default_factory=dict[tuple[str, bool], Pool])
    _count: int = 0

    def take(self, size: float, stream: Stream = "compute") -> Block:
        """A block for a tensor of so many bytes."""
        rounded = max(ROUND, ROUND * ceil(size / ROUND))
        pool = self._pool(stream, rounded <= SMALL)
        block = self._hole(pool, rounded) or self._more(pool, rounded)
        self._split(block, rounded)
        block.free = False
        self.allocated += block.size
        self.most_allocated = max(self.most_allocated, self.allocated)
        return block

    def give(self, block: Block) -> None:
        """Frees a block, which is kept for the next tensor of its stream and pool."""
        self.allocated -= block.size
        block.free = True
        for other in (block.before, block.after):
            if other is not None and other.free:
                self._leave(other)
                block = self._merged(block, other)
        self._enter(block)

    def _pool(self, stream: Stream, small: bool) -> Pool:
        key = stream, small
        if key not in self._pools:
            self._pools[key] = Pool(small)
        return self._pools[key]

    def _hole(self, pool: Pool, size: int) -> Block | None:
        """The smallest free block that is large enough, out of the list of free ones."""
        at = bisect_left(pool.free, (size, 0))
        if at == len(pool.free):
            return None
        return pool.blocks.pop(pool.free.pop(at)[1])

    def _more(self, pool: Pool, size: int) -> Block:
        """A block of new memory, with the free end of an expandable segment."""
        last = pool.last
        end = last if last is not None and last.free else None
        missing = size - (end.size if end else 0)
        if end is not None and missing <= 0:
            return end
        new = self._segment(pool, missing)
        self.reserved += new
        self.most_reserved = max(self.most_reserved, self.reserved)
        if end is not None:
            end.size += new
            return end
        block = self._block(new, pool)
        if self.expandable:
            block.before, pool.last = last, block
            if last is not None:
                last.after = block
        return block

    def _segment(self, pool: Pool, size: int) -> int:
        """Bytes asked of the driver for a tensor of so many."""
        if self.expandable:
            page = SMALL_SEGMENT if pool.small else LARGE_SEGMENT
            return page * ceil(size / page)
        if pool.small:
            return SMALL_SEGMENT
        if size < OWN_SEGMENT:
            return LARGE_SEGMENT
        return SMALL_SEGMENT * ceil(size / SMALL_SEGMENT)

    def _split(self, block: Block, size: int) -> None:
        """Cuts off and keeps what a tensor does not need of its block."""
        left = block.size - size
        least = ROUND if block.pool.small or self.expandable else SMALL + 1
        if left < least:
            return
        rest = self._block(left, block.pool)
        rest.free, rest.before, rest.after = True, block, block.after
        if block.after is not None:
            block.after.before = rest
        block.size, block.after = size, rest
        if block.pool.last is block:
            block.pool.last = rest
        self._enter(rest)

    def _block(self, size: int, pool: Pool) -> Block:
        self._count += 1
        return Block(size, pool, self._count)

    def _enter(self, block: Block) -> None:
        """Keeps a free block; the end of an expandable segment stays out of the list."""
        if block.pool.last is not block:
            insort(block.pool.free, (block.size, block.number))
            block.pool.blocks[block.number] = block

    def _leave(self, block: Block) -> None:
        if block.pool.last is not block:
            free = block.pool.free
            free.pop(bisect_left(free, (block.size, block.number)))
            del block.pool.blocks[block.number]

    def _merged(self, one: Block, other: Block) -> Block:
        """Two free neighbours as the first of them."""
        first, second = (other, one) if one.before is other else (one, other)
        first.size += second.size
        first.after = second.after
        if second.after is not None:
            second.after.before = first
        if first.pool.last is second:
            first.pool.last = first
        return first
