"""The environment of a synthetic task: simulated tools, a simulated user, a judge by state.

A generator plays the user: rules by the skill `user`, a model by the persona. It sees the messages
of both sides, but no calls, results or reasoning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from reference.agentic.environment import Verdict
from reference.agentic.judge import verdict_of
from reference.agentic.operations.base import FromResult, Source, Stated
from reference.agentic.spec import ChanceSpec
from reference.agentic.task import ToolTask
from reference.agentic.world import World, act
from reference.dialog import Call, Dialog, Message
from reference.generate.request import ChatRequest, Generator, Sampling
from reference.generate.rules import RuleGenerator

END: Final = "<END>"
"""The user's last word; the agent never sees it."""
_REASONING: Final = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Simulated:
    """A task as an environment."""

    task: ToolTask
    chance: ChanceSpec | None = None
    """How tools fail; None: never."""
    user: Generator = field(default_factory=RuleGenerator, compare=False)
    terse: bool = False

    @property
    def opening(self) -> Dialog:
        """The agent's system message, the first goal, the agent's tools."""
        system = Message("system", self.task.agent.system)
        first = Message("user", self.task.goals[0].words)
        tools = tuple(tool.declaration() for tool in self.task.agent.tools)
        return Dialog((system, first), tools)

    def start(self) -> World:
        """The task's rows."""
        return World(self.task.tables)

    def call(self, state: World, call: Call) -> tuple[World, str]:
        """The world after the tool's effect, and its result or error."""
        return act(state, call, self.task.tools, self.chance, self.task.seed)

    def reply(self, state: World, dialog: Dialog) -> str | None:  # noqa: ARG002  the contract
        """The simulated user's reply. Raises TwinError if the generator has none."""
        said = self.user.complete(request_of(self.task, dialog)).text.strip()
        return None if not said or END in said else said

    def judge(self, state: World, dialog: Dialog) -> Verdict:
        """The verdict by the rows, a replay of every call, and what was told."""
        return verdict_of(self, state, dialog)

    @property
    def hints(self) -> Mapping[str, Any]:
        """Metadata for rules that play the agent: the plan without any value of the world."""
        task = self.task
        return {
            "kind": "act",
            "terse": self.terse,
            "steps": [
                {
                    "tool": step.tool,
                    "purpose": step.purpose,
                    "does": task.tools[step.tool].effect != "read",
                    "arguments": {name: _hint(given) for name, given in step.arguments.items()},
                }
                for step in task.steps
            ],
            "goals": [
                {
                    "words": goal.words,
                    "steps": list(goal.steps),
                    "facts": [
                        {"label": fact.label, "step": fact.step, "place": list(fact.place)}
                        for fact in goal.facts
                    ],
                }
                for goal in task.goals
            ],
        }


def _hint(source: Source) -> dict[str, Any]:
    if isinstance(source, Stated):
        return {
            "said": source.slot,
            "text": source.text,
            "label": source.label,
            "value": source.value,
        }
    if isinstance(source, FromResult):
        return {"found": [source.step, *source.place]}
    return {"value": source.value}


def visible(text: str) -> str:
    """A message without its reasoning."""
    return _REASONING.sub("", text).strip()


def request_of(task: ToolTask, dialog: Dialog) -> ChatRequest:
    """The request to the user's generator: the dialogue with exchanged roles."""
    turns = [Message("system", _brief(task))]
    for message in dialog.messages:
        if message.role == "user":
            turns.append(Message("assistant", message.content))
        elif message.role == "assistant" and not message.calls:
            turns.append(Message("user", visible(message.content)))
    metadata: dict[str, Any] = {
        "kind": "user",
        "goals": [goal.words for goal in task.goals],
        "slots": {slot: [value.label, value.text] for slot, value in task.stated.items()},
        "patient": task.persona.patient,
        "end": END,
    }
    sampling = Sampling(seed=task.seed % 10**9, max_tokens=256)
    return ChatRequest(tuple(turns), (), sampling, metadata)


def _brief(task: ToolTask) -> str:
    persona = task.persona
    known = "; ".join(f"{value.label}: {value.text}" for value in task.stated.values())
    goals = " Then, once that is done: ".join(goal.words for goal in task.goals)
    return (
        f"You are {persona.name}, a customer, and you talk in a {persona.style} way with an "
        f"assistant. You want this: {goals} You know only this: {known}. Say a value only when it "
        "is asked for or was in your first words. You cannot do anything yourself and know nothing "
        f"else. When all is done or cannot be done, answer {END} and nothing else."
    )
