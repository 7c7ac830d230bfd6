"""Over how many nodes and ranks the experts of one token spread: what an all-to-all that sends one
copy per place has to carry.

Experts sit on ranks in order, as many on each. Uniform routing draws `top_k` of them without
replacement, so that a place with a of E experts is missed with C(E - a, k) / C(E, k). Group-limited
routing first keeps the `top_groups` groups of experts with the best expert in them: as if experts
were drawn one by one, those of a new group being refused once so many groups are seen. DeepSeek-V3
ranks groups by the sum of their two best; a simulation of 8 groups of 32, 4 kept, differs by less
than 2 %.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from itertools import accumulate, repeat
from math import comb, prod
from operator import add, mul
from typing import Final

from twin.network.placement import Placement
from twin.routing import chance

_MOST: Final = 0.999
"""No expert is chosen by more tokens than this share of them, so that odds stay finite."""
_EXACT: Final = 16_384
"""Experts x choices up to which choices exclude each other; beyond, each expert is chosen or not by
itself, which differs by less than 2 % where so many are."""
_ROUNDS: Final = 40
"""Rounds that fit odds to loads; each takes off most of what is left."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Expected places of one token's `top_k` experts: distinct `nodes` and `ranks` that hold at
    least one, its own included; and how many times the mean the fullest of each receives."""

    top_k: int
    nodes: float
    ranks: float
    fullest_node: float = 1.0
    fullest_rank: float = 1.0


@lru_cache
def spread(
    experts: int,
    top_k: int,
    placement: Placement,
    groups: int | None = None,
    top_groups: int | None = None,
    probabilities: tuple[float, ...] | None = None,
) -> Spread:
    """The spread of a router's choice over the ranks of an expert group.

    `probabilities` is the share of all choices that goes to each expert (they sum to 1; None:
    uniform). Uniform routing is exact, with groups too where ranks and groups of experts divide one
    another; else a place is priced between its neighbours that do. Unequal shares are those of the
    conditional Poisson design that has them (Chen, Dempster and Liu 1994), exact where they are
    equal; for successive draws (Zipf, exponent 1, 384 experts, 64 ranks) it is within 1 %. With
    unequal shares and groups, each place is corrected by what groups change in uniform routing.

    Raises:
        ValueError: the groups kept have fewer than `top_k` experts.
    """
    limited = groups is not None and top_groups is not None and top_groups < groups
    free = _uniform(experts, top_k)
    missed = free
    if limited and groups and top_groups:
        missed = _limited(experts, top_k, groups, top_groups)
    hits: list[float] = []
    fullest: list[float] = []
    for places in (placement.nodes, placement.size):
        held = experts / places
        hit = 1 - missed(held)
        if probabilities is None:
            hits.append(places * hit)
            fullest.append(1.0)
            continue
        each = _hits(probabilities, top_k, places)
        hits.append(sum(each) * hit / (1 - free(held)))
        fullest.append(max(each) * places / sum(each))
    return Spread(top_k, hits[0], hits[1], fullest[0], fullest[1])


def by_chance(even: Spread, placement: Placement, tokens: float) -> Spread:
    """The spread of experts that are chosen by chance, where so many tokens choose in an exchange:
    a token reaches a place or does not, and the fullest place is reached by more than its share."""
    hit = (even.nodes / placement.nodes, even.ranks / placement.size)
    node, rank = (
        chance.fullest(places, tokens, one, one * (1 - one))
        for places, one in zip((placement.nodes, placement.size), hit, strict=True)
    )
    return replace(even, fullest_node=node, fullest_rank=rank)


def _uniform(experts: int, top_k: int) -> Callable[[float], float]:
    """Probability that a place with so many of the experts is missed."""

    def missed(held: float) -> float:
        return comb(experts - round(held), top_k) / comb(experts, top_k)

    return missed


def _limited(experts: int, top_k: int, groups: int, kept: int) -> Callable[[float], float]:
    """The same under a limit of groups: a place is a part of a group, or some groups."""
    size = experts // groups
    if kept * size < top_k:
        raise ValueError(f"{kept} groups of {size} experts have fewer than {top_k} experts")
    seen, chosen = _drawn(size, top_k, groups, kept)

    def whole(count: int) -> float:
        return sum(p * comb(groups - count, n) / comb(groups, n) for n, p in seen.items())

    def missed(held: float) -> float:
        if held <= size:
            left = size - round(held)
            return sum(p * comb(left, n) / comb(size, n) for n, p in chosen.items())
        count, rest = divmod(held, size)
        below, above = whole(int(count)), whole(min(groups, int(count) + 1))
        return below + (above - below) * rest / size

    return missed


def _drawn(
    size: int, top_k: int, groups: int, kept: int
) -> tuple[dict[int, float], dict[int, float]]:
    """Draws experts one by one; the probability of each number of groups seen, and of each number
    of experts chosen in one given group."""
    states: dict[tuple[int, int], float] = {(0, 0): 1.0}
    for drawn in range(top_k):
        after: dict[tuple[int, int], float] = defaultdict(float)
        for (seen, own), p in states.items():
            old = seen * size - drawn
            new = (groups - seen) * size if seen < kept else 0
            mine = size - own if own else (size if new else 0)
            fresh = 0 if own else mine
            moves = (
                ((seen + bool(fresh), own + 1), mine),
                ((seen, own), old - (mine if own else 0)),
                ((seen + 1, own), new - fresh),
            )
            for state, ways in moves:
                if ways > 0:
                    after[state] += p * ways / (old + new)
        states = after
    seen_groups: dict[int, float] = defaultdict(float)
    of_one: dict[int, float] = defaultdict(float)
    for (seen, own), p in states.items():
        seen_groups[seen] += p
        of_one[own] += p
    return seen_groups, of_one


def _hits(probabilities: tuple[float, ...], top_k: int, places: int) -> list[float]:
    """Probability that each place holds at least one chosen expert, for shares of the choices."""
    loads = _loads(probabilities, top_k)
    held = len(loads) // places
    if len(loads) * top_k > _EXACT:
        missed = [1 - one for one in loads]
        return [1 - prod(missed[at * held : (at + 1) * held]) for at in range(places)]
    odds = _odds(loads, top_k)
    own = [_symmetric(odds[at * held : (at + 1) * held], top_k) for at in range(places)]
    before = list(accumulate(own, _times, initial=_one(top_k)))
    after = list(accumulate(reversed(own), _times, initial=_one(top_k)))
    missed = [_times(before[at], after[places - 1 - at])[top_k] for at in range(places)]
    return [1 - one / before[places][top_k] for one in missed]


def _loads(shares: Sequence[float], top_k: int) -> list[float]:
    """Probability that a token chooses each expert, which sums to `top_k`; what an expert cannot
    take, the others do."""
    least = sum(shares) * 1e-12
    shares = [max(one, least) for one in shares]
    full: set[int] = set()
    while True:
        rest = sum(one for at, one in enumerate(shares) if at not in full)
        left = (top_k - _MOST * len(full)) / rest if rest else 0.0
        loads = [_MOST if at in full else left * one for at, one in enumerate(shares)]
        over = {at for at, one in enumerate(loads) if one > _MOST}
        if not over:
            return loads
        full |= over


def _odds(loads: list[float], top_k: int) -> list[float]:
    """Odds of independent choices that, where exactly `top_k` are made, have these loads."""
    target = [one / (1 - one) for one in loads]
    odds = _around_one(target)
    for _ in range(_ROUNDS):
        found = [min(one, _MOST) for one in _chosen(odds, top_k)]
        wanted = zip(odds, target, found, strict=True)
        odds = _around_one([one * goal * (1 - now) / now for one, goal, now in wanted])
    return odds


def _chosen(odds: list[float], top_k: int) -> list[float]:
    """Probability of each of some independent choices, where exactly `top_k` are made. What the
    others add comes from both sides of each: taking one out of the whole by subtraction loses all
    digits where odds are large."""
    before = list(accumulate(odds, _with, initial=_one(top_k)))
    after = list(accumulate(reversed(odds), _with, initial=_one(top_k)))[-2::-1]
    whole = before[-1][top_k]
    pairs = zip(odds, before, after, strict=False)
    return [one * sum(map(mul, low, high[top_k - 1 :: -1])) / whole for one, low, high in pairs]


def _around_one(odds: list[float]) -> list[float]:
    mean = sum(odds) / len(odds)
    return [one / mean for one in odds]


def _one(top_k: int) -> list[float]:
    return [1.0] + [0.0] * top_k


def _times(a: list[float], b: list[float]) -> list[float]:
    """The product of two polynomials, up to their degree."""
    return [sum(a[i] * b[n - i] for i in range(n + 1)) for n in range(len(a))]


def _symmetric(odds: list[float], top_k: int) -> list[float]:
    """Elementary symmetric polynomials of the odds, of degree 0 to `top_k`."""
    return reduce(_with, odds, _one(top_k))


def _with(found: list[float], odds: float) -> list[float]:
    """The same with one more."""
    more = map(mul, found, repeat(odds))
    return [found[0], *map(add, found[1:], more)]
