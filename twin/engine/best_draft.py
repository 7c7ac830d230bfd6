"""Scenario to Plan, where events decide between drafts."""

from __future__ import annotations

from dataclasses import dataclass, field

from twin.arch.remembered import remembered
from twin.engine.lower import lower
from twin.engine.simulate import step_ns
from twin.loading import scenario_hash
from twin.planning.compile import drafts
from twin.planning.types import Plan
from twin.scenario import Scenario


def plan(scenario: Scenario) -> Plan:
    """The resolved run of a scenario. Where the split of layers is left out, or stages choose their
    memory policies, that is the draft with the shortest simulated step.

    Raises:
        ScenarioError: the layout is impossible; carries every problem, each with its nearest fix.
    """
    made = drafts(scenario)
    if len(made) == 1 or not made[0].memory.fits:
        return made[0]
    return made[_best(_Drafts(scenario_hash(scenario), made))]


@dataclass(frozen=True, slots=True)
class _Drafts:
    """The drafts of a scenario, known by its hash."""

    name: str
    plans: tuple[Plan, ...] = field(compare=False)


@remembered(32)
def _best(asked: _Drafts) -> int:
    """The place of the shortest step."""
    return min(range(len(asked.plans)), key=lambda at: step_ns(lower(asked.plans[at])))
