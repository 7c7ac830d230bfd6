"""What a search is after: a deadline, a budget, or speed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Final, TypeAlias

from twin.errors import Origin, Problem, UsageError
from twin.planning.mesh import next_to
from twin.scenario import Scenario
from twin.spec.cluster import MOST_GPUS

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


MOST_SIZES: Final = 256
"""Sizes that one search compares."""


def nodes_of(scenario: Scenario, text: str) -> tuple[int, ...]:
    """The numbers of nodes. A range goes in steps of its lower end, unless it says others. Raises
    `UsageError` for what is none, or no whole nodes."""
    per_node = scenario.cluster.node.gpus
    found = sorted({size for part in text.split(",") for size in _part(part.strip(), text)})
    if len(found) > MOST_SIZES:
        _refuse(text, f"{len(found):,} sizes are more than {MOST_SIZES}", "write larger steps")
    for size in found:
        if size % per_node:
            below = size // per_node * per_node
            near = next_to(size, [one for one in (below, below + per_node) if one])
            fix = f"nearest {' or '.join(map(str, near))}"
            _refuse(text, f"{size} GPUs do not fill nodes of {per_node}", fix)
        if size > MOST_GPUS:
            _refuse(text, f"{size:,} GPUs are more than {MOST_GPUS:,}", f"at most {MOST_GPUS}")
    return tuple(size // per_node for size in found)


def _part(part: str, text: str) -> range:
    numbers = [_number(one, text) for one in part.split(":")]
    if len(numbers) > 3:
        _refuse(text, f"`{part}` is not a range", "write LOW:HIGH or LOW:HIGH:STEP")
    low, high, step = (*numbers, numbers[0], numbers[0])[:3]
    if high < low:
        _refuse(text, f"{high} is less than {low}", f"write {high}:{low}")
    return range(low, high + 1, step)


def _number(written: str, text: str) -> int:
    cleaned = written.strip().replace("_", "")
    if not cleaned.isdecimal() or not int(cleaned):
        _refuse(text, f"`{written}` is not a number of GPUs", "write 256:4096, or 256,512,1024")
    return int(cleaned)


def _refuse(text: str, message: str, fix: str) -> None:
    origin = Origin("--gpus", 1, 1, text, len(text))
    raise UsageError([Problem("TW432", "", message, fix, origin)])
