"""Sequences of many lengths to micro-batches.

The sequences of an optimizer step are dealt out to replicas, the longest first, each to the one
with fewest tokens. A replica packs its own whole into micro-batches of so many tokens at most, the
longest first, each into the fullest that has room (best fit decreasing: at most 11/9 of the fewest
bins, Johnson 1974); attention stays inside of each sequence. Every replica has as many
micro-batches as the one with most: what is missing is empty. The replica with most attention
decides, so a token's mean reach there, sum(n^2) / sum(n), is what the step is played with.

Padded instead, a replica's sequences go by length into micro-batches of so many sequences, all as
long as the longest of theirs; what fills them up is computed like the rest.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from itertools import pairwise
from statistics import mean

from twin.kinds.iteration.types import Batch


@dataclass(slots=True)
class Bin:
    """One micro-batch: tokens that are computed, the sum of squares of its sequences' lengths, and
    tokens that it has room for."""

    tokens: int = 0
    squares: int = 0
    room: int = 0


Cut = Callable[[Sequence[int], int], list[Bin]]
"""The micro-batches of sequences of such lengths, each of at most so many tokens (`packed`) or
sequences (`padded`)."""


def batch(
    lengths: Sequence[int], most: int, replicas: int, steps: int, cut: Cut | None = None
) -> Batch:
    """The micro-batches of sequences of such lengths, in order, over so many optimizer steps. A
    micro-batch has at most so many tokens, or what else `cut` counts."""
    cut = cut or packed
    ends = [round(at * len(lengths) / steps) for at in range(steps + 1)]
    counts: list[int] = []
    own: list[list[Bin]] = [[] for _ in range(replicas)]
    for begin, end in pairwise(ends):
        made = [cut(share, most) for share in dealt(lengths[begin:end], replicas)]
        counts.append(max(map(len, made)))
        own = [bins + further for bins, further in zip(own, made, strict=True)]
    sums = [(sum(one.squares for one in bins), sum(one.tokens for one in bins)) for bins in own]
    squares, tokens = max(sums)
    trained, whole = sum(lengths), sum(counts)
    rooms = [one.room for bins in own for one in bins]
    return Batch(
        sequences=len(lengths),
        trained=trained,
        steps=tuple(count for count in counts if count),
        tokens=tokens / whole if whole else 0.0,
        reach=squares / tokens if tokens else 0.0,
        filled=trained / (whole * replicas * mean(rooms)) if rooms else 0.0,
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
            bins.append(Bin(room=capacity))
        bins[number].tokens += length
        bins[number].squares += length * length
        if left > length:
            insort(free, (left - length, number))
    return bins


def padded(lengths: Sequence[int], size: int) -> list[Bin]:
    """Micro-batches of `size` sequences, the shortest first and the longest in what is left, each
    as long as the longest of its own."""
    ordered = sorted(lengths)
    made: list[Bin] = []
    for first in range(0, len(ordered), size):
        own = ordered[first : first + size]
        tokens = len(own) * own[-1]
        made.append(Bin(tokens, tokens * own[-1], tokens))
    return made


def dealt(lengths: Sequence[int], replicas: int) -> list[list[int]]:
    """The sequences of each replica: the longest first, to the one with fewest tokens."""
    found: list[list[int]] = [[] for _ in range(replicas)]
    loads = [(0, number) for number in range(replicas)]
    for length in sorted(lengths, reverse=True):
        tokens, number = loads[0]
        found[number].append(length)
        heapreplace(loads, (tokens + length, number))
    return found
