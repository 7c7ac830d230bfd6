"""A synthetic task: a user's goals, the chain of calls that solves it, and its rubric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reference.agentic.agent import Agent
from reference.agentic.operations.base import Source, Stated, ToldFact
from reference.agentic.tables import Tables
from reference.agentic.tool_spec import ToolSpec


@dataclass(frozen=True, slots=True)
class ChainStep:
    """One call of the chain."""

    tool: str
    arguments: Mapping[str, Source]
    purpose: str = ""
    """A checkpoint of the rubric, such as `finds the parcel`."""


@dataclass(frozen=True, slots=True)
class Persona:
    """A user and their way of talking."""

    name: str
    style: str
    patient: bool
    """Asks once more if the agent gives up."""


@dataclass(frozen=True, slots=True)
class UserGoal:
    """One request of the user; the second comes after the answer to the first."""

    words: str
    steps: tuple[int, int]
    """Its first step, and the one after its last."""
    facts: tuple[ToldFact, ...]


@dataclass(frozen=True, slots=True)
class TaskRubric:
    """What a good dialogue has besides the right end state."""

    facts: tuple[str, ...]
    """Values that the answer must state, as they are said."""
    tools: tuple[str, ...]
    """Expected tools, in the order of the chain."""
    checkpoints: tuple[str, ...]
    most_calls: int
    """More calls than this count as spraying."""


@dataclass(frozen=True, slots=True)
class ToolTask:
    """One task in one world."""

    id: str
    seed: int
    agent: Agent
    depth: int
    """Length of the longest chain of calls in which each needs the result before it."""
    goals: tuple[UserGoal, ...]
    steps: tuple[ChainStep, ...]
    stated: Mapping[str, Stated]
    """All values that the user states, by slot."""
    withheld: frozenset[str]
    """Slots that the user states only when asked."""
    persona: Persona
    rubric: TaskRubric
    tables: Tables
    """The world before the task."""
    expected: Tables
    """The world after the chain."""

    @property
    def tools(self) -> Mapping[str, ToolSpec]:
        """The agent's tools by name."""
        return {tool.name: tool for tool in self.agent.tools}
