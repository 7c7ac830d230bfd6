"""The environment of a synthetic task: simulated tools, a simulated user, a judge by state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reference.agentic.environment import Verdict
from reference.agentic.judge.verdict import verdict_of
from reference.agentic.spec import ChanceSpec
from reference.agentic.tasks.plan import Found, Said, Source
from reference.agentic.tasks.task import Task
from reference.agentic.user import END, request_of
from reference.agentic.world import World, act
from reference.dialog import Call, Dialog, Message
from reference.generate.generator import Generator
from reference.generate.rules import Rules


@dataclass(frozen=True, slots=True)
class Simulated:
    """A task as a world to play in."""

    task: Task
    chance: ChanceSpec | None = None
    """How tools fail; None: never."""
    user: Generator = field(default_factory=Rules, compare=False)
    terse: bool = False

    @property
    def opening(self) -> Dialog:
        """The agent's system message, the first goal, the agent's tools."""
        system = Message("system", self.task.agent.system)
        first = Message("user", self.task.goals[0].words)
        declared = tuple(one.declaration() for one in self.task.agent.tools)
        return Dialog((system, first), declared)

    def start(self) -> World:
        """The task's rows, before any call."""
        return World(self.task.tables)

    def call(self, state: World, call: Call) -> tuple[World, str]:
        """The tool's effect on the rows, and its answer, or an error that says what is wrong."""
        return act(state, call, self.task.tools, self.chance, self.task.seed)

    def reply(self, state: World, dialog: Dialog) -> str | None:  # noqa: ARG002  the contract
        """What the simulated user says. Raises TwinError where a generator has no reply."""
        said = self.user.complete(request_of(self.task, dialog)).text.strip()
        return None if not said or END in said else said

    def judge(self, state: World, dialog: Dialog) -> Verdict:
        """By the rows, by a replay of every call, by what was told."""
        return verdict_of(self, state, dialog)

    @property
    def hints(self) -> Mapping[str, Any]:
        """What rules that play the agent go by: the plan without any value of the world."""
        task = self.task
        return {
            "kind": "act",
            "terse": self.terse,
            "steps": [
                {
                    "tool": one.tool,
                    "purpose": one.purpose,
                    "does": task.tools[one.tool].effect != "read",
                    "arguments": {name: _hint(given) for name, given in one.arguments.items()},
                }
                for one in task.steps
            ],
            "goals": [
                {
                    "words": one.words,
                    "steps": list(one.steps),
                    "facts": [
                        {"label": fact.label, "step": fact.step, "place": list(fact.place)}
                        for fact in one.facts
                    ],
                }
                for one in task.goals
            ],
        }


def _hint(source: Source) -> dict[str, Any]:
    if isinstance(source, Said):
        return {
            "said": source.slot,
            "text": source.text,
            "label": source.label,
            "value": source.value,
        }
    if isinstance(source, Found):
        return {"found": [source.step, *source.place]}
    return {"value": source.value}
