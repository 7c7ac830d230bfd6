"""Learning rates, tuned with equal effort for every optimizer.

All begin with one grid. In each round in which any one's best rate is the lowest or highest tried,
everybody gets one more candidate: beyond that end, or, where the best has neighbours on both sides,
between it and the better of them. Nobody gets more runs than another.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import sqrt
from typing import TypeVar

from reference.studies.outcome import Outcome

NameT = TypeVar("NameT", bound=Hashable)
Tried = Mapping[float, Outcome]
"""Outcomes by learning rate."""
Conduct = Callable[[Sequence[tuple[NameT, float]]], Mapping[tuple[NameT, float], Outcome]]
"""Runs of these optimizers at these rates."""


def tune(
    names: Sequence[NameT], rates: Sequence[float], conduct: Conduct[NameT], rounds: int
) -> dict[NameT, dict[float, Outcome]]:
    """What was tried for each, until all best rates lie inside of what was tried, or after `rounds`
    further candidates."""
    found = conduct([(name, rate) for name in names for rate in rates])
    tried = {name: {rate: found[name, rate] for rate in rates} for name in names}
    for _ in range(rounds):
        if not any(at_end(one) for one in tried.values()):
            break
        further = [(name, candidate(one)) for name, one in tried.items()]
        for (name, rate), outcome in conduct(further).items():
            tried[name][rate] = outcome
    return tried


def best(tried: Tried) -> float:
    """The rate of the lowest held-out loss; the lower rate where two are equal."""
    return min(sorted(tried), key=lambda rate: tried[rate].final)


def at_end(tried: Tried) -> bool:
    """Whether the best rate is the lowest or the highest tried, so that a better one may lie
    outside."""
    return best(tried) in (min(tried), max(tried))


def candidate(tried: Tried) -> float:
    """The rate to try next: twice or half the best at an end, else the geometric mean of the best
    and its better neighbour."""
    rates, chosen = sorted(tried), best(tried)
    if chosen == rates[-1]:
        return chosen * 2
    if chosen == rates[0]:
        return chosen / 2
    at = rates.index(chosen)
    neighbour = min(rates[at - 1], rates[at + 1], key=lambda rate: tried[rate].final)
    return sqrt(chosen * neighbour)
