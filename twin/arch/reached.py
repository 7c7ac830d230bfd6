"""How many ranks or nodes the experts of one token lie on: what a dispatcher that merges copies
sends, where a plain one sends `top_k`."""

from __future__ import annotations

from math import comb

from twin.spec.model import Moe


def reached(moe: Moe, parts: int) -> float:
    """Expected number of `parts`, each with as many neighbouring experts, that hold at least one
    expert of a token; at most `top_k`.

    The token's experts are a random set, within `top_groups` random groups where routing is limited
    to groups. Real routers differ on both counts: popular experts meet on fewer parts, and groups
    are chosen by their best experts. Groups that `parts` neither cut evenly nor hold whole are
    passed over, which is an upper bound.

    >>> kimi_k2 = Moe(experts=384, top_k=8, width=2048)
    >>> round(reached(kimi_k2, 16), 2)
    6.49
    """
    groups, chosen = moe.groups, moe.top_groups
    if parts % groups and groups % parts:
        groups = chosen = 1
    size = moe.experts // groups
    allowed, own = chosen * size, moe.experts // parts
    if groups <= parts:
        return parts * chosen / groups * (1 - _missed(allowed, own, moe.top_k))
    whole = groups // parts  # groups of one part
    missed = sum(
        comb(whole, hit)
        * comb(groups - whole, chosen - hit)
        * _missed(allowed, hit * size, moe.top_k)
        for hit in range(min(whole, chosen) + 1)
    )
    return parts * (1 - missed / comb(groups, chosen))


def _missed(experts: int, own: int, draws: int) -> float:
    """Chance that so many different draws of `experts` are none of `own`."""
    chance = 1.0
    for drawn in range(draws):
        chance *= max(0, experts - own - drawn) / (experts - drawn)
    return chance
