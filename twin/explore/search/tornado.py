"""How much the uncertain inputs of a pick move its days and its cost, and which of them flip the
decision: `twin.explore.study.influence` over the ranges of their sources, at the days that events
make of the fast path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from twin.explore.search.contenders import Contender, Contest, scenario_of
from twin.explore.search.goal import Kpis
from twin.explore.search.recommend import Progress
from twin.explore.study.influence import Ends, Influence, influence


@dataclass(frozen=True, slots=True)
class Bar:
    """One uncertain input, and what it makes of the pick at both ends of its range: [low, high]."""

    found: Influence
    days: Ends
    """Change of the run."""
    cost_usd: Ends | None
    """Change of the cost, in proportion to the days; None where nothing has a price."""
    flips: tuple[bool, bool]
    """Whether the pick no longer meets the goal there, or no longer fits."""

    def to_json(self) -> dict[str, Any]:
        """The bar in plain data."""
        one = self.found
        return {
            "path": one.path,
            "value": one.value,
            "kind": one.kind,
            "source": one.source and one.source.id,
            "low": one.low,
            "high": one.high,
            "range_from": one.range_from,
            "days": list(self.days),
            "cost_usd": None if self.cost_usd is None else list(self.cost_usd),
            "headroom_bytes": list(one.headroom_bytes),
            "flips": list(self.flips),
        }


def tornado(contest: Contest) -> tuple[Bar, ...]:
    """The uncertain inputs that move the pick, the most influential first; none without a pick."""
    pick = contest.pick
    if pick is None:
        return ()

    def told(share: float) -> None:
        if contest.progress is not None:
            contest.progress(Progress("moving uncertain inputs", round(100 * share), 100))

    found = influence(scenario_of(contest, pick), told)
    return tuple(_bar(contest, pick, one) for one in found if one.span or any(one.headroom_bytes))


def _bar(contest: Contest, pick: Contender, one: Influence) -> Bar:
    kpis = pick.now.kpis
    assert kpis is not None
    usual, paid = kpis["days"] or 0.0, kpis["cost_usd"]
    low, high = (pick.ratio * change for change in one.days)
    at_low, at_high = (
        _flips(contest, pick, kpis, (change, room))
        for change, room in zip((low, high), one.headroom_bytes, strict=True)
    )
    cost = None if paid is None else (paid * low / usual, paid * high / usual)
    return Bar(one, (low, high), cost, (at_low, at_high))


def _flips(contest: Contest, pick: Contender, kpis: Kpis, change: tuple[float, float]) -> bool:
    """Whether a change of days, and of the memory to spare, is too much."""
    usual, paid = kpis["days"] or 0.0, kpis["cost_usd"]
    days, room = usual + change[0], pick.headroom_bytes + change[1]
    cost = None if paid is None else paid * days / usual
    return room < 0 or not contest.goal.met({**kpis, "days": days, "cost_usd": cost})
