"""A task: what a user wants of an agent, how it is known to be solvable, and its rubric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reference.agentic.agent import Agent
from reference.agentic.tables import Tables
from reference.agentic.tasks.plan import Fact, Said, Step


@dataclass(frozen=True, slots=True)
class Persona:
    """Who the user is, and how they talk."""

    name: str
    style: str
    patient: bool
    """Asks once more where the agent gives up."""


@dataclass(frozen=True, slots=True)
class Goal:
    """One thing that the user wants; the second is said when the first is answered."""

    words: str
    steps: tuple[int, int]
    """First of its steps, and the one behind its last."""
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Rubric:
    """What a good dialogue has, besides the end state."""

    facts: tuple[str, ...]
    """Values that the answer must say, as they are spoken."""
    tools: tuple[str, ...]
    """Expected tools, in the order of the chain that is known to work."""
    checkpoints: tuple[str, ...]
    most_calls: int
    """More than these are spraying."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task in one world."""

    id: str
    seed: int
    agent: Agent
    depth: int
    """Calls in the longest chain in which each needs what one before it found."""
    goals: tuple[Goal, ...]
    steps: tuple[Step, ...]
    said: Mapping[str, Said]
    """All values that the user says, by slot."""
    withheld: frozenset[str]
    """Slots that the user says only when asked."""
    persona: Persona
    rubric: Rubric
    tables: Tables
    """The world before."""
    expected: Tables
    """The world after the chain that is known to work."""

    @property
    def tools(self) -> Mapping[str, Any]:
        """The agent's tools by name."""
        return {one.name: one for one in self.agent.tools}
