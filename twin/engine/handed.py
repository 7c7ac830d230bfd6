"""What choosing a plan has lowered and played already, for whoever lowers and simulates that plan
next: nothing is done twice. One plan's is held, until it is taken, since it takes up to 100 MB."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from twin.engine.graph import Graph
from twin.engine.played import Played
from twin.engine.program import Program
from twin.engine.steady import Period
from twin.planning.types import Plan
from twin.scenario import Scenario

Part: TypeAlias = tuple[Graph, Played, Period | None]
"""What is played of a step, and the part of it that repeats."""


@dataclass(frozen=True, slots=True)
class Handed:
    """A plan, and what was made of it."""

    plan: Plan
    program: Program
    part: Part


_HELD: Final[list[Handed]] = []
"""At most one. Threads may take it from each other: then it is made again."""


def hand_on(plan: Plan, program: Program, part: Part) -> None:
    """Hold what was made of a plan, instead of another's."""
    _HELD[:] = [Handed(plan, program, part)]


def held_plan(scenario: Scenario) -> Plan | None:
    """The plan that is held, where it is of this very scenario."""
    return next((one.plan for one in _HELD if one.plan.scenario is scenario), None)


def held(of: object) -> Handed | None:
    """What is held of a plan or a program: of this very object."""
    return next((one for one in _HELD if of is one.plan or of is one.program), None)


def taken(program: Program) -> Part | None:
    """What was played of a program, which is then no longer held."""
    found = held(program)
    if found is None:
        return None
    _HELD.clear()
    return found.part
