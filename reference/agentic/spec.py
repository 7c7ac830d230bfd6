"""The configuration of a synthesis: tools, agents, tasks, dialogues, output."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Strict, model_validator

from reference.text.near import NearSpec
from twin.errors import FieldError
from twin.spec.base import Count, Flag, Part, Spec, Whole


class RepositorySpec(Spec):
    """The tools."""

    tools: Count = 1000
    """tools; fewer if all others are near-duplicates"""
    terse: Flag = False
    """short words and plain arguments, for small models"""
    categories: tuple[str, ...] = ()
    """names to use [default: all]"""
    most_arguments: Whole = 0
    """most arguments of a tool; 0: any"""
    operations: tuple[str, ...] = ()
    """names to use [default: all]"""
    near: NearSpec = NearSpec(shingle=1)
    """near-duplicates; shingles of one word, since texts of tools are short and longer shingles
    find almost none"""
    mask_nouns: Flag = True
    """tools that differ only in their entity are near-duplicates"""
    held_out: Part = 0.15
    """share of the applications kept out of training"""
    imported: tuple[str, ...] = ()
    """files with MCP `tools/list` answers or OpenAI `tools`"""


class AgentsSpec(Spec):
    """The agents."""

    count: Count = 200
    """number of agents"""
    tools: tuple[Count, Count] = (3, 12)
    """least and most tools each"""
    distractors: Part = 0.25
    """share of an agent's tools, beyond the first three, of other applications"""


class TasksSpec(Spec):
    """The tasks."""

    depths: tuple[Count, ...] = (1, 2, 3, 4, 5)
    """lengths of the longest chain of calls, used in turn"""
    second: Part = 0.25
    """share with a second goal"""
    withheld: Part = 0.25
    """share whose user withholds a value until asked"""
    rows: Annotated[Count, Field(ge=3, le=20)] = 8
    """rows of each entity in a world"""
    digits: Annotated[Count, Field(ge=2, le=9)] = 4
    """digits of an id"""


class ChanceSpec(Spec):
    """Failures of tools, as shares of the calls."""

    transient: Part = 0.06
    """temporary errors"""
    partial: Part = 0.04
    """incomplete results, marked so"""
    edge: Part = 0.03
    """results in an unusual wrapping"""

    @model_validator(mode="after")
    def _possible(self) -> ChanceSpec:
        if self.transient + self.partial + self.edge > 0.9:
            message = "failures of tools are more than 0.9 of the calls"
            raise FieldError("TW561", message, "lower transient, partial or edge")
        return self


class PlaySpec(Spec):
    """The dialogues."""

    candidates: Annotated[Count, Field(le=64)] = 2
    """dialogues per task; the best that passes is kept"""
    steps: Count = 40
    """agent messages, calls and user messages, together"""
    least_rubric: Part = 0.5
    """smallest rubric score of a kept dialogue"""
    temperature: Annotated[float, Strict(), Field(ge=0, le=10)] = 0.8
    """sampling temperature of the agent"""
    max_tokens: Count = 1024
    """tokens of an agent message"""
    at_once: Annotated[Count, Field(le=256)] = 1
    """parallel tasks; more helps with a server"""


class SynthesisSpec(Spec):
    """A synthesis of dialogues with tools."""

    output: str = "runs/agentic"
    """folder of the run"""
    seed: Whole = 0
    """seed of all draws"""
    kept: Count = 1000
    """number of trajectories"""
    most_tasks: Count = 5000
    """largest number of tasks"""
    agent: str = "rules"
    """`rules`, a server's address, a run's folder or MODULE:FUNCTION"""
    user: str = "rules"
    """generator of the user, as `agent`"""
    judge: str = "rules"
    """generator of rubric scores, as `agent`"""
    repository: RepositorySpec = RepositorySpec()
    """the tools"""
    agents: AgentsSpec = AgentsSpec()
    """the agents"""
    tasks: TasksSpec = TasksSpec()
    """the tasks"""
    chance: ChanceSpec = ChanceSpec()
    """failures of tools"""
    play: PlaySpec = PlaySpec()
    """the dialogues"""
    logs: tuple[str, ...] = ()
    """logs to import: .jsonl, or text with Kimi K2's markers"""
    segments: Flag = False
    """also write the rendered template with its loss mask"""
