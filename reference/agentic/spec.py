"""What a synthesis makes: tools, agents, tasks, play, and where it goes."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Strict, model_validator

from reference.text.near import NearSpec
from twin.errors import FieldError
from twin.spec.base import Count, Flag, Part, Spec, Whole


class RepositorySpec(Spec):
    """The tools."""

    tools: Count = Field(default=1000, description="tools that are wanted; fewer where sifted out")
    terse: Flag = Field(
        default=False, description="short words, plain arguments: for models of few tokens"
    )
    categories: tuple[str, ...] = Field(default=(), description="only these; none named: all")
    most_arguments: Whole = Field(default=0, description="arguments of a tool at most; 0: any")
    operations: tuple[str, ...] = Field(default=(), description="only these; none named: all")
    near: NearSpec = Field(
        default_factory=lambda: NearSpec(shingle=1),
        description="what is a near-duplicate; of single words, since texts of tools are short and "
        "longer shingles call almost nothing alike",
    )
    mask_nouns: Flag = Field(
        default=True, description="two tools that differ in what they work on are alike, too"
    )
    held_out: Part = Field(
        default=0.15, description="share of the applications that no training dialogue sees"
    )
    imported: tuple[str, ...] = Field(
        default=(), description="files of MCP `tools/list` answers or of OpenAI's `tools`"
    )


class AgentsSpec(Spec):
    """Who is told what, with which tools."""

    count: Count = Field(default=200, description="agents")
    tools: tuple[Count, Count] = Field(default=(3, 12), description="least and most tools of one")
    distractors: Part = Field(
        default=0.25,
        description="share of an agent's tools beyond the first three that are of "
        "another application",
    )


class TasksSpec(Spec):
    """What users want."""

    depths: tuple[Count, ...] = Field(
        default=(1, 2, 3, 4, 5), description="lengths of the longest chain of calls, in turn"
    )
    second: Part = Field(default=0.25, description="share with a second goal, said later")
    withheld: Part = Field(
        default=0.25, description="share whose user keeps a value back until asked"
    )
    rows: Annotated[Count, Field(ge=3, le=20)] = Field(
        default=8, description="things of each kind in a world"
    )
    digits: Annotated[Count, Field(ge=2, le=9)] = Field(default=4, description="digits of an id")


class ChanceSpec(Spec):
    """What tools do besides what they are asked to; shares of the calls."""

    transient: Part = Field(default=0.06, description="an error that passes")
    partial: Part = Field(default=0.04, description="only a part of the result, said so")
    edge: Part = Field(default=0.03, description="the result in an unusual wrapping")

    @model_validator(mode="after")
    def _possible(self) -> ChanceSpec:
        if self.transient + self.partial + self.edge > 0.9:
            message = "failures of tools are more than 0.9 of the calls"
            raise FieldError("TW561", message, "lower transient, partial or edge")
        return self


class PlaySpec(Spec):
    """How dialogues are played."""

    candidates: Annotated[Count, Field(le=64)] = Field(
        default=2, description="dialogues per task, of which the best that passes is kept"
    )
    steps: Count = Field(
        default=40, description="messages of the agent, calls and turns of the user, together"
    )
    least_rubric: Part = Field(
        default=0.5, description="score of the rubric below which a right dialogue is not kept"
    )
    temperature: Annotated[float, Strict(), Field(ge=0, le=10)] = Field(
        default=0.8, description="of the agent's tokens"
    )
    max_tokens: Count = Field(default=1024, description="tokens of a message of the agent")
    at_once: Annotated[Count, Field(le=256)] = Field(
        default=1, description="tasks at one time; more helps where a server answers"
    )


class SynthesisSpec(Spec):
    """A synthesis of dialogues with tools."""

    output: str = Field(default="runs/agentic", description="folder of the run")
    seed: Whole = Field(default=0, description="of everything that is drawn")
    kept: Count = Field(default=1000, description="trajectories that are wanted")
    most_tasks: Count = Field(default=5000, description="tasks that are tried for them at most")
    agent: str = Field(
        default="rules", description="`rules`, the address of a server, or MODULE:FUNCTION"
    )
    user: str = Field(default="rules", description="who plays the user, as `agent`")
    judge: str = Field(default="rules", description="who applies the rubric, as `agent`")
    repository: RepositorySpec = Field(default_factory=RepositorySpec, description="the tools")
    agents: AgentsSpec = Field(default_factory=AgentsSpec, description="the agents")
    tasks: TasksSpec = Field(default_factory=TasksSpec, description="the tasks")
    chance: ChanceSpec = Field(default_factory=ChanceSpec, description="failures of tools")
    play: PlaySpec = Field(default_factory=PlaySpec, description="the dialogues")
    logs: tuple[str, ...] = Field(
        default=(), description="real logs to take over: .jsonl, or text with Kimi K2's markers"
    )
    segments: Flag = Field(
        default=False, description="write the rendered template with its loss mask, too"
    )
