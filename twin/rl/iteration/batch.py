"""Sequences of many lengths to micro-batches of equal size.

The sequences of an optimizer step are dealt out to replicas, the longest first, each to the one
with fewest tokens. A replica packs its own whole into micro-batches of so many tokens at most, the
longest first, each into the fullest that has room (best fit decreasing: at most 11/9 of the fewest
bins, Johnson 1974); attention stays inside of each sequence. Every replica has as many
micro-batches as the one with most: what is missing is empty. The replica with most attention
decides, so a token's mean reach there, sum(n^2) / sum(n), is what the step is played with.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapreplace
from itertools import pairwise

from twin.rl.iteration.types import Batch


@dataclass(slots=True)
class Bin:
    """One micro-batch: tokens, and the sum of squares of its sequences' lengths."""

    tokens: int = 0
    squares: int = 0


def batch(lengths: Sequence[int], capacity: int, replicas: int, steps: int) -> Batch:
    """The micro-batches of sequences of such lengths, in order, over so many optimizer steps."""
    ends = [round(at * len(lengths) / steps) for at in range(steps + 1)]
    counts: list[int] = []
    own = [Bin() for _ in range(replicas)]
    for begin, end in pairwise(ends):
        shares = dealt(lengths[begin:end], replicas)
        counts.append(max(len(packed(share, capacity)) for share in shares))
        for replica, share in zip(own, shares, strict=True):
            replica.tokens += sum(share)
            replica.squares += sum(length * length for length in share)
    fullest = max(own, key=lambda one: (one.squares, one.tokens))
    trained, whole = sum(lengths), sum(counts)
    return Batch(
        sequences=len(lengths),
        trained=trained,
        steps=tuple(count for count in counts if count),
        tokens=fullest.tokens / whole if whole else 0.0,
        reach=fullest.squares / fullest.tokens if fullest.tokens else 0.0,
        filled=trained / (whole * replicas * capacity) if whole else 0.0,
    )


def packed(lengths: Sequence[int], capacity: int) -> list[Bin]:
    """As few bins as best fit decreasing needs. Lengths are at most the capacity."""
    free: list[tuple[int, int]] = []
    bins: list[Bin] = []
    for length in sorted(lengths, reverse=True):
        at = bisect_left(free, (length, 0))
        if at < len(free):
            left, number = free.pop(at)
        else:
            left, number = capacity, len(bins)
            bins.append(Bin())
        bins[number].tokens += length
        bins[number].squares += length * length
        if left > length:
            insort(free, (left - length, number))
    return bins


def dealt(lengths: Sequence[int], replicas: int) -> list[list[int]]:
    """The sequences of each replica: the longest first, to the one with fewest tokens."""
    found: list[list[int]] = [[] for _ in range(replicas)]
    loads = [(0, number) for number in range(replicas)]
    for length in sorted(lengths, reverse=True):
        tokens, number = loads[0]
        found[number].append(length)
        heapreplace(loads, (tokens + length, number))
    return found
