"""What a search is after: a deadline, a budget, or speed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Final, TypeAlias

from twin.scenario import Scenario

DAY: Final = 86400.0
"""Seconds."""
Kpis: TypeAlias = Mapping[str, float | None]
"""The key figures of a run."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What is asked for. With `days` the cheapest layout that is done in time, with `usd` the
    fastest within the budget, with neither the fastest."""

    days: float | None = None
    usd: float | None = None

    def slowest_ns(self, scenario: Scenario) -> float:
        """The longest step that is done in time."""
        if self.days is None:
            return inf
        steps = scenario.train.tokens / scenario.train.global_batch
        return self.days * DAY / steps * 1e9

    def met(self, kpis: Kpis) -> bool:
        """Whether a run meets what is asked for. A cost that is unknown meets no budget."""
        days, usd = kpis["days"], kpis["cost_usd"]
        in_time = self.days is None or (days is not None and days <= self.days)
        return in_time and (self.usd is None or (usd is not None and usd <= self.usd))

    def worth(self, kpis: Kpis) -> tuple[float, float]:
        """Less is better: the cost where a deadline is set, else the days; the other among
        equals."""
        days, money = days_and_money(kpis)
        return (money, days) if self.days is not None else (days, money)

    @property
    def words(self) -> str:
        """The goal in words."""
        if self.days is not None and self.usd is not None:
            return f"the cheapest within {self.days:g} days and {self.usd:,.0f} USD"
        if self.days is not None:
            return f"the cheapest within {self.days:g} days"
        if self.usd is not None:
            return f"the fastest within {self.usd:,.0f} USD"
        return "the fastest"

    def to_json(self) -> dict[str, Any]:
        """The goal in plain data."""
        return {
            "target_days": self.days,
            "budget_usd": self.usd,
            "words": self.words,
            "judged_by": "days and cost without failures",
        }


def days_and_money(kpis: Kpis) -> tuple[float, float]:
    """Days and cost of a run by its key figures; GPU-hours where nothing has a price."""
    days, money = kpis["days"], kpis["cost_usd"]
    hours = kpis["gpu_hours"]
    assert days is not None  # every answered run has both
    assert hours is not None
    return days, hours if money is None else money
