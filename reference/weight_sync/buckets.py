"""Who owns which tensors, and the buckets in which they travel; the words and rules of
`twin.kinds.weight_update.checkpoint`, which simulates this.

A bucket holds whole tensors of one owner. Its size is the limit, or the largest tensor where that
is larger, and at most a third of the free memory: one buffer takes the copy from the host, the
halves of another are filled and reloaded in turn. Where a third does not hold the largest tensor,
the first buffer is left out, and the other two take half of the memory each
(MoonshotAI/checkpoint-engine, `ps.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reference.weight_sync.units import Unit
from twin.errors import Problem, UsageError
from twin.units import format_quantity

ALIGNED: Final = 64
"""Bytes; tensors begin at multiples of them, so that any type may be viewed in place."""


@dataclass(frozen=True, slots=True)
class Buffers:
    """Bytes of one buffer, and how many there are: three, or two without one for host copies."""

    bytes: int
    count: int


@dataclass(frozen=True, slots=True)
class WeightBucket:
    """Whole tensors of one owner that travel together."""

    owner: int
    round: int
    start: int
    """Where it begins in its owner's host memory (bytes)."""
    bytes: int
    """With the gaps between its tensors."""
    units: tuple[tuple[Unit, int], ...]
    """Each with its place in the bucket (bytes)."""


def padded(unit: Unit) -> int:
    """Bytes that a tensor takes, up to where the next one may begin."""
    return -(-unit.bytes // ALIGNED) * ALIGNED


def shares(
    units: Sequence[Unit], holders: Mapping[str, Sequence[int]], owners: int
) -> tuple[tuple[Unit, ...], ...]:
    """The tensors of each owner, one of those that hold them: the fullest owner has as few bytes as
    dealing the largest tensors first makes it. OURS: checkpoint-engine leaves it to the trainer."""
    filled = [0] * owners
    dealt: dict[str, int] = {}
    for unit in sorted(units, key=lambda each: -padded(each)):  # stable: equal ones in order
        owner = min(holders[unit.name], key=lambda rank: (filled[rank], rank))
        filled[owner] += padded(unit)
        dealt[unit.name] = owner
    return tuple(
        tuple(unit for unit in units if dealt[unit.name] == owner) for owner in range(owners)
    )


def buffers(free: float, limit: float, largest: int) -> Buffers:
    """The buffers that fit in `free` bytes. Raises UsageError TW622 where they do not hold the
    largest tensor."""
    count = 3 if largest <= free // 3 else 2
    found = Buffers(int(min(max(limit, largest), free // count)), count)
    if found.bytes < largest:
        shown = format_quantity(largest, "bytes", digits=4)
        message = f"the largest tensor has {shown}, and two buffers do not fit in "
        message += format_quantity(free, "bytes", digits=4)
        least = format_quantity(2 * largest, "bytes", digits=4)
        raise UsageError([Problem("TW622", "free_memory", message, f"free {least} or more")])
    return found


def buckets(owned: Sequence[Sequence[Unit]], limit: int) -> tuple[WeightBucket, ...]:
    """All buckets in the order in which they travel: the first one of every owner, then the second
    ones, and so on. `limit` holds every tensor."""
    found = [bucket for owner, own in enumerate(owned) for bucket in _packed(owner, own, limit)]
    return tuple(sorted(found, key=lambda bucket: (bucket.round, bucket.owner)))


def _packed(owner: int, own: Iterable[Unit], limit: int) -> list[WeightBucket]:
    found: list[WeightBucket] = []
    units: list[tuple[Unit, int]] = []
    start = size = 0
    for unit in own:
        if units and size + padded(unit) > limit:
            found.append(WeightBucket(owner, len(found), start, size, tuple(units)))
            start, size, units = start + size, 0, []
        units.append((unit, size))
        size += padded(unit)
    if units:
        found.append(WeightBucket(owner, len(found), start, size, tuple(units)))
    return found


def largest(units: Iterable[Unit]) -> int:
    """Bytes of the largest tensor, with its gap."""
    return max(padded(unit) for unit in units)
