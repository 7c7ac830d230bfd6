"""What chance adds to the fullest rank where tokens choose experts independently of each other.

N tokens of a micro-batch choose. Of each a rank expects x rows with variance v, so that N tokens
bring it mu = N x with variance N v. Loads of R ranks are nearly normal and alike, and what one has
more the others have less, so that their largest is, in the mean over layers and micro-batches,

    1 + m(R) sqrt(R / (R - 1)) sqrt(N v) / mu,

with m(R) the expected largest of R independent standard normals, here the quantile of
0.5264^(1 / R) (Chen and Tyler 1999; 6 % too much at R = 2, within 1 % from 8 on). With k of E
experts chosen, x = k / R and v = x (1 - 1 / R) (E - k) / (E - 1): the load is
1 + m sqrt(R (E - k) / (N k (E - 1))). It breaks where a rank expects few rows: below 30 the largest
of counts is larger than that of normals.
"""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist


def fullest(ranks: int, tokens: float, each: float, variance: float) -> float:
    """Load of the fullest of some ranks over their mean, of so many `tokens` that bring a rank
    `each` rows with this `variance`."""
    if ranks == 1 or tokens <= 0:
        return 1.0
    most = NormalDist().inv_cdf(0.5264 ** (1 / ranks))
    return 1.0 + most * sqrt(ranks / (ranks - 1) * variance / tokens) / each


def copies(experts: int, top_k: int, ranks: int, limit: tuple[int, int] | None) -> float:
    """Variance of the rows that one token brings a rank. `limit`: of so many groups of experts a
    token's are in so many at most; ranks that are a part of a group."""
    groups, kept = limit or (1, 1)
    if kept >= groups or ranks < groups:
        groups = kept = 1
    of, held = kept * experts // groups, experts / ranks
    taken = kept / groups
    mean = top_k * held / of
    within = mean * (1 - held / of) * (of - top_k) / (of - 1) if of > 1 else 0.0
    return taken * (within + mean**2) - (taken * mean) ** 2
