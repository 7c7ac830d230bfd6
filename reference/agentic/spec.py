"""The configuration of a synthesis: tools, agents, tasks, dialogues, output."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Strict, model_validator

from reference.text.near import NearSpec
from twin.errors import FieldError
from twin.spec.base import Count, Flag, Part, Spec, Whole


class RepositorySpec(Spec):
    """The tools."""

    tools: Count = Field(default=1000, description="tools; fewer if all others are near-duplicates")
    terse: Flag = Field(
        default=False, description="short words and plain arguments, for small models"
    )
    categories: tuple[str, ...] = Field(default=(), description="names to use [default: all]")
    most_arguments: Whole = Field(default=0, description="most arguments of a tool; 0: any")
    operations: tuple[str, ...] = Field(default=(), description="names to use [default: all]")
    near: NearSpec = Field(
        default_factory=lambda: NearSpec(shingle=1),
        description="near-duplicates; shingles of one word, since texts of tools are short and "
        "longer shingles find almost none",
    )
    mask_nouns: Flag = Field(
        default=True, description="tools that differ only in their entity are near-duplicates"
    )
    held_out: Part = Field(
        default=0.15, description="share of the applications kept out of training"
    )
    imported: tuple[str, ...] = Field(
        default=(), description="files with MCP `tools/list` answers or OpenAI `tools`"
    )


class AgentsSpec(Spec):
    """The agents."""

    count: Count = Field(default=200, description="number of agents")
    tools: tuple[Count, Count] = Field(default=(3, 12), description="least and most tools each")
    distractors: Part = Field(
        default=0.25,
        description="share of an agent's tools, beyond the first three, of other applications",
    )


class TasksSpec(Spec):
    """The tasks."""

    depths: tuple[Count, ...] = Field(
        default=(1, 2, 3, 4, 5), description="lengths of the longest chain of calls, used in turn"
    )
    second: Part = Field(default=0.25, description="share with a second goal")
    withheld: Part = Field(
        default=0.25, description="share whose user withholds a value until asked"
    )
    rows: Annotated[Count, Field(ge=3, le=20)] = Field(
        default=8, description="rows of each entity in a world"
    )
    digits: Annotated[Count, Field(ge=2, le=9)] = Field(default=4, description="digits of an id")


class ChanceSpec(Spec):
    """Failures of tools, as shares of the calls."""

    transient: Part = Field(default=0.06, description="temporary errors")
    partial: Part = Field(default=0.04, description="incomplete results, marked so")
    edge: Part = Field(default=0.03, description="results in an unusual wrapping")

    @model_validator(mode="after")
    def _possible(self) -> ChanceSpec:
        if self.transient + self.partial + self.edge > 0.9:
            message = "failures of tools are more than 0.9 of the calls"
            raise FieldError("TW561", message, "lower transient, partial or edge")
        return self


class PlaySpec(Spec):
    """The dialogues."""

    candidates: Annotated[Count, Field(le=64)] = Field(
        default=2, description="dialogues per task; the best that passes is kept"
    )
    steps: Count = Field(
        default=40, description="agent messages, calls and user messages, together"
    )
    least_rubric: Part = Field(default=0.5, description="smallest rubric score of a kept dialogue")
    temperature: Annotated[float, Strict(), Field(ge=0, le=10)] = Field(
        default=0.8, description="sampling temperature of the agent"
    )
    max_tokens: Count = Field(default=1024, description="tokens of an agent message")
    at_once: Annotated[Count, Field(le=256)] = Field(
        default=1, description="parallel tasks; more helps with a server"
    )


class SynthesisSpec(Spec):
    """A synthesis of dialogues with tools."""

    output: str = Field(default="runs/agentic", description="folder of the run")
    seed: Whole = Field(default=0, description="seed of all draws")
    kept: Count = Field(default=1000, description="number of trajectories")
    most_tasks: Count = Field(default=5000, description="largest number of tasks")
    agent: str = Field(
        default="rules",
        description="`rules`, a server's address, a run's folder or MODULE:FUNCTION",
    )
    user: str = Field(default="rules", description="generator of the user, as `agent`")
    judge: str = Field(default="rules", description="generator of rubric scores, as `agent`")
    repository: RepositorySpec = Field(default_factory=RepositorySpec, description="the tools")
    agents: AgentsSpec = Field(default_factory=AgentsSpec, description="the agents")
    tasks: TasksSpec = Field(default_factory=TasksSpec, description="the tasks")
    chance: ChanceSpec = Field(default_factory=ChanceSpec, description="failures of tools")
    play: PlaySpec = Field(default_factory=PlaySpec, description="the dialogues")
    logs: tuple[str, ...] = Field(
        default=(), description="logs to import: .jsonl, or text with Kimi K2's markers"
    )
    segments: Flag = Field(
        default=False, description="also write the rendered template with its loss mask"
    )
