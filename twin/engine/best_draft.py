"""Scenario to Plan, where events decide between drafts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from twin.arch.remembered import remembered
from twin.engine.handed import hand_on, held_plan
from twin.engine.lower import lower
from twin.engine.observed import observed
from twin.engine.simulate import step_ns
from twin.loading import scenario_hash
from twin.planning.compile import Arranger, Draft, possible
from twin.planning.split_search import Split
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
    arranger = possible(scenario)
    made = arranger.drafts()
    first = made[0].plan
    alone = len(made) == 1 and not (_splits(scenario) and len(first.layers_per_part) > 1)
    if alone or not first.memory.fits:
        return first
    best = _best(_Drafts(scenario_hash(scenario), arranger, made))
    if not isinstance(best, tuple):
        return made[best].plan
    return held_plan(scenario) or arranger.drafts(best)[0].plan


def _splits(scenario: Scenario) -> bool:
    """Whether the split of layers, and nothing else, is left out. What a slow GPU costs is asked of
    a split that was chosen without it."""
    by_stage = isinstance(scenario.memory.by_stage, str)
    return scenario.parallel.layers is None and not by_stage and not scenario.cluster.degraded


@dataclass(frozen=True, slots=True)
class _Drafts:
    """The drafts of a scenario, known by its hash."""

    name: str
    arranger: Arranger = field(compare=False)
    every: tuple[Draft, ...] = field(compare=False)


@remembered(32)
def _best(asked: _Drafts) -> int | Split:
    """The place of the shortest step; an odd split has to be worth it. Or a split that is shorter,
    which the light model finds when events have corrected it. What was played of it is handed
    on."""
    programs = [lower(one.plan) for one in asked.every]
    played = [step_ns(one) for one in programs]
    worth = [
        length * (1 + WORTH * one.odd) for (length, _), one in zip(played, asked.every, strict=True)
    ]
    best = worth.index(min(worth))
    own, (length, part) = asked.every[best].plan, played[best]
    hand_on(own, programs[best], part)
    if not _splits(own.scenario):
        return best
    seen = observed(programs[best], *part[:2])
    split = asked.arranger.corrected(own.layers_per_part, length, seen)
    if split is None or any(split == one.plan.layers_per_part for one in asked.every):
        return best
    other = asked.arranger.drafts(split)[0].plan
    program = lower(other)
    more, part = step_ns(program)
    if more * (1 + WORTH) >= worth[best]:
        return best
    hand_on(other, program, part)
    return split
