"""Data that is generated before a run trains, beside the run: days and cost of their own, which
`days` and `cost_usd` never count."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from twin.reports.cost import bill
from twin.reports.numbers import count, digits, show
from twin.scenario import Scenario

if TYPE_CHECKING:  # few runs say what their data takes
    from twin.data.types import Generation


@dataclass(frozen=True, slots=True)
class Generated:
    """The data of a run, and what each of its jobs costs in dollars; None: nothing has a price."""

    generation: Generation
    costs: tuple[float | None, ...]

    @property
    def cost_usd(self) -> float | None:
        """Dollars of all jobs."""
        known = [cost for cost in self.costs if cost is not None]
        return sum(known) if len(known) == len(self.costs) else None

    def to_json(self) -> dict[str, Any]:
        """The section of the JSON report."""
        found = self.generation.to_json()
        jobs: list[dict[str, Any]] = found["jobs"]
        priced = [job | {"cost_usd": cost} for job, cost in zip(jobs, self.costs, strict=True)]
        return found | {"cost_usd": self.cost_usd, "jobs": priced}


def data_of(scenario: Scenario) -> Generated | None:
    """What generating a run's data takes; None where the scenario wants nothing generated. The room
    is not even imported then.

    Raises `ScenarioError` where no engine can generate it.
    """
    if scenario.data is None or not scenario.data.generates:
        return None
    found = cast("Generation", import_module("twin.data.generate").generation(scenario))
    costs = tuple(_cost(scenario, job.gpu_hours) for job in found.jobs)
    return Generated(found, costs)


def check_data(scenario: Scenario) -> None:
    """Nothing, where a run's data can be generated as written, or nothing is generated.

    Raises `ScenarioError` where no engine can generate it.
    """
    if scenario.data is not None and scenario.data.generates:
        import_module("twin.data.generate").generation(scenario, ranges=False)


def _cost(scenario: Scenario, gpu_hours: float) -> float | None:
    """Dollars of so many GPU-hours; energy that is paid beside as if kernels ran all the time."""
    return bill(scenario.cluster, scenario.cost, gpu_hours, {"compute": 1}).cost_usd


def data_words(found: Generated) -> str:
    """What it comes to, in a sentence, with what takes most of it."""
    all_of, cost = found.generation, found.cost_usd
    longest = max(all_of.jobs, key=lambda one: one.days)
    money = "" if cost is None else f" and {show(cost, 'USD')}"
    span = all_of.interval
    reach = "" if span is None else f" ({digits(span[0])} to {digits(span[1])} by its ranges)"
    return (
        f"Before it trains, {count(all_of.kept_tokens)} tokens are generated in "
        f"{digits(all_of.days)} days{reach}, {count(all_of.gpu_hours)} GPU-hours{money}; "
        f"{longest.job.name} takes longest, by {longest.bound}."
    )
