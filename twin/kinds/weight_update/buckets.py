"""Who holds which tensors in host memory, and the buckets in which they travel.

As checkpoint-engine does it (`ps.py`, `examples/update.py`): tensors are dealt out in order, as
many to each rank; a bucket holds whole tensors of one owner, and is closed when the next one would
not fit. Its size is the limit, or the largest tensor where that is larger, and at most a third of
the free memory: one buffer takes the copy from the host, the halves of another are filled and
reloaded in turn. Where a third does not hold the largest tensor, the first buffer is left out, and
the other two take half of the memory each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twin.kinds.weight_update.checkpoint import CUTS, Checkpoint


@dataclass(frozen=True, slots=True)
class Buffers:
    """Bytes of one buffer, and how many there are: three, or two without one for host copies."""

    bytes: int
    count: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """Whole tensors of one owner that travel together: their bytes, those that every rank of an
    instance takes (`replicated`), and those that they share by the dense matrices' ranks."""

    owner: int
    round: int
    bytes: int
    tensors: int
    replicated: int
    shared: int


def buffers(free: float, limit: float, largest: int) -> Buffers:
    """The buffers that fit in `free` bytes. Too small ones say that the largest tensor does not
    fit: `bytes` < `largest`."""
    count = 3 if largest <= free // 3 else 2
    return Buffers(int(min(max(limit, largest), free // count)), count)


def shares(tensors: int, owners: int) -> list[range]:
    """The tensors of each owner: equal counts, the last ones fewer or none."""
    each = -(-tensors // owners)
    return [range(min(i * each, tensors), min((i + 1) * each, tensors)) for i in range(owners)]


def pack(sizes: NDArray[np.int64], limit: int) -> list[range]:
    """Tensors of these sizes in buckets of at most `limit` bytes, in order; `limit` holds every
    one of them."""
    ends = np.cumsum(sizes)
    found: list[range] = []
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + limit, side="right"))
        found.append(range(start, stop))
        start = stop
    return found


def buckets(checkpoint: Checkpoint, owners: int, limit: int) -> tuple[Bucket, ...]:
    """All buckets in the order in which they travel: the first one of every owner, then the second
    ones, and so on."""
    found: list[Bucket] = []
    for owner, own in enumerate(shares(checkpoint.tensors, owners)):
        sizes, cuts = checkpoint.bytes[own.start : own.stop], checkpoint.cut[own.start : own.stop]
        for turn, packed in enumerate(pack(sizes, limit)):
            part = slice(packed.start, packed.stop)
            found.append(_bucket(owner, turn, sizes[part], cuts[part]))
    return tuple(sorted(found, key=lambda one: (one.round, one.owner)))


def _bucket(owner: int, turn: int, sizes: NDArray[np.int64], cuts: NDArray[np.int8]) -> Bucket:
    replicated, shared = (
        int(sizes[cuts == CUTS.index(cut)].sum()) for cut in ("replicated", "tensor")
    )
    return Bucket(owner, turn, int(sizes.sum()), len(sizes), replicated, shared)
