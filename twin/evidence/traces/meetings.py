"""Collectives that the traces of several ranks have: when the last rank came to each, and how far
the ranks' clocks are apart.

A collective ends on all its ranks at about the same time, whenever each of them came. So where the
ends of those that two ranks share differ by about as much each time, it is their clocks that do.
Hosts that agree by NTP are milliseconds apart, which is as long as what is measured.

Limits: the n-th collective of a group and name is the same on all its ranks, so their traces have
to begin at the same one. Clocks that drift within a trace are taken as constant.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from twin.evidence.traces.rank import RankTrace

Meeting = tuple[tuple[int, int], ...]
"""Place of each rank that has it, and the row there."""
LEAST_NS: Final = 100_000
"""Ends that differ by less say nothing of clocks: OURS, several times what ranks of one host do."""
FEWEST: Final = 5
"""Shared collectives below which their ends say nothing of clocks."""


@dataclass(frozen=True, slots=True)
class Meetings:
    """What ranks share."""

    ahead_ns: tuple[int, ...]
    """By how much the clock of each rank is ahead of the first one's, as far as that is known."""
    begun: tuple[NDArray[np.int64], ...]
    """Of each rank, by its own clock, when the last rank of the group came to each collective; its
    own start where nobody else's trace has it."""


def meetings(ranks: Sequence[RankTrace]) -> Meetings:
    """Of the ranks whose traces are there."""
    found = _shared(ranks)
    ahead = _ahead(ranks, found)
    begun = [rank.start.copy() for rank in ranks]
    for meeting in found:
        latest = max(int(ranks[place].start[row]) - ahead[place] for place, row in meeting)
        for place, row in meeting:
            begun[place][row] = latest + ahead[place]
    return Meetings(tuple(ahead), tuple(begun))


def _shared(ranks: Sequence[RankTrace]) -> list[Meeting]:
    """The collectives that more than one trace has."""
    calls = defaultdict[tuple[str, str, str, int], list[tuple[int, int]]](list)
    for place, rank in enumerate(ranks):
        turns = defaultdict[tuple[str, str, str], int](int)
        for row in np.flatnonzero(rank.says > 0).tolist():
            told = rank.told[int(rank.says[row])]
            key = told.group, told.ranks, told.collective
            if told.ranks and told.members > 1:
                calls[(*key, turns[key])].append((place, row))
                turns[key] += 1
    return [tuple(found) for found in calls.values() if len(found) > 1]


def _ahead(ranks: Sequence[RankTrace], found: Iterable[Meeting]) -> list[int]:
    """By how much each clock is ahead, from rank to rank along the collectives that they share."""
    apart = defaultdict[tuple[int, int], list[int]](list)
    for meeting in found:
        if not _is_message(ranks, meeting):
            for (one, here), (other, there) in pairwise(meeting):
                apart[one, other].append(int(ranks[other].end[there] - ranks[one].end[here]))
    known = {
        (one, other): 0 if _one_host(ranks[one], ranks[other]) else _steady(some)
        for (one, other), some in apart.items()
    }
    ahead: dict[int, int] = {}
    for first in range(len(ranks)):
        queue = deque([first] if first not in ahead else [])
        ahead.setdefault(first, 0)
        while queue:
            at = queue.popleft()
            for (one, other), by in known.items():
                for near, far, sign in ((one, other, 1), (other, one, -1)):
                    if near == at and far not in ahead:
                        ahead[far] = ahead[at] + sign * by
                        queue.append(far)
    return [ahead[place] for place in range(len(ranks))]


def _one_host(rank: RankTrace, other: RankTrace) -> bool:
    """Whether both say that they ran on the same host, which has one clock."""
    return bool(host := rank.head.get("host_name")) and host == other.head.get("host_name")


def _is_message(ranks: Sequence[RankTrace], meeting: Meeting) -> bool:
    """Whether it may end earlier where it is sent than where it comes."""
    place, row = meeting[0]
    told = ranks[place].told[int(ranks[place].says[row])]
    return ">" in told.ranks or "send" in told.collective or "recv" in told.collective


def _steady(apart: Sequence[int]) -> int:
    """The median of some differences; 0 where they are few or small, or their middle half lies on
    both sides of it."""
    if len(apart) < FEWEST:
        return 0
    low, middle, high = np.percentile(apart, [25, 50, 75])
    return round(middle) if abs(middle) > LEAST_NS and low * high > 0 else 0
