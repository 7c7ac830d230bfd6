"""Scenario to Plan, where events decide between drafts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from twin.arch.remembered import remembered
from twin.engine.lower import lower
from twin.engine.simulate import step_ns
from twin.loading import scenario_hash
from twin.planning.compile import Draft, drafts
from twin.planning.types import Plan
from twin.scenario import Scenario

WORTH: Final = 0.005
"""OURS: by so much a step has to be shorter for a split that is neither balanced nor even, as for
an edit of `twin improve`."""


def plan(scenario: Scenario) -> Plan:
    """The resolved run of a scenario. Where the split of layers is left out, or stages choose their
    memory policies, that is the draft with the shortest simulated step.

    Raises:
        ScenarioError: the layout is impossible; carries every problem, each with its nearest fix.
    """
    made = drafts(scenario)
    if len(made) == 1 or not made[0].plan.memory.fits:
        return made[0].plan
    return made[_best(_Drafts(scenario_hash(scenario), made))].plan


@dataclass(frozen=True, slots=True)
class _Drafts:
    """The drafts of a scenario, known by its hash."""

    name: str
    every: tuple[Draft, ...] = field(compare=False)


@remembered(32)
def _best(asked: _Drafts) -> int:
    """The place of the shortest step; an odd split has to be worth it."""
    lengths = [step_ns(lower(one.plan)) for one in asked.every]
    worth = [
        length * (1 + WORTH * one.odd) for length, one in zip(lengths, asked.every, strict=True)
    ]
    return worth.index(min(worth))
