"""Dialogues in an environment: by a generator within a budget of steps, or by a script."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from reference.agentic.environment import Environment, Verdict
from reference.dialog import Call, Dialog, Message, call_id, calls_of, numbered
from reference.generate.request import ChatRequest, Generator, Sampling
from twin.errors import TwinError

State = TypeVar("State")


@dataclass(slots=True)
class Course(Generic[State]):
    """A dialogue in progress: the environment, its state and the messages so far. An error of the
    environment leaves the part that was done before it."""

    environment: Environment[State]
    state: State
    dialog: Dialog

    def say(self, message: Message) -> None:
        """Append a message."""
        self.dialog = replace(self.dialog, messages=(*self.dialog.messages, message))

    def hear(self, most: int | None = None) -> bool:
        """Append the answers to the assistant's last message: the results of its calls (of the
        first `most`), or the user's reply. Returns whether the user ended the dialogue."""
        calls = self.dialog.messages[-1].calls
        self.run(calls[:most])
        if calls:
            return False
        words = self.environment.reply(self.state, self.dialog)
        if words is not None:
            self.say(Message("user", words))
        return words is None

    def run(self, calls: Iterable[Call]) -> None:
        """Make the calls and append their results."""
        for call in calls:
            self.state, result = self.environment.call(self.state, call)
            self.say(Message("tool", result, answers=call.id))


@dataclass(frozen=True, slots=True)
class Budget:
    """Length limit of a dialogue, and how the agent samples."""

    steps: int = 40
    """Agent messages, calls and later user messages, together."""
    sampling: Sampling = field(default_factory=Sampling)


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A finished dialogue with its verdict."""

    dialog: Dialog
    verdict: Verdict
    ended: str
    """`user`, `budget`, or the error of a generator."""
    steps: int


def play(environment: Environment[State], agent: Generator, budget: Budget) -> Trajectory:
    """One dialogue, ended by the user or the budget. The `hints` of an environment, if any, go to
    the agent as metadata: rules read them, models never receive them."""
    opening = environment.opening
    course = Course(environment, environment.start(), opening)
    left, ended = budget.steps, "budget"
    hints: Any = getattr(environment, "hints", None) or {}
    while left > 0:
        messages = course.dialog.messages
        request = ChatRequest(messages, opening.tools, budget.sampling, hints)
        try:
            message = _renumbered(agent.complete(request).message(), calls_of(messages))
            course.say(message)
            left -= 1
            over = course.hear(left)
        except TwinError as error:
            ended = f"error: {error}"
            break
        if over:
            ended = "user"
            break
        left -= len(message.calls) or 1
    verdict = environment.judge(course.state, course.dialog)
    return Trajectory(course.dialog, verdict, ended, budget.steps - left)


def _renumbered(message: Message, first: int) -> Message:
    """The message with call ids as in the template: a server may use others."""
    calls = tuple(
        Call(call_id(call.name, first + at), call.name, call.arguments)
        for at, call in enumerate(message.calls)
    )
    return Message("assistant", message.content, calls)


@dataclass(frozen=True, slots=True)
class Turn:
    """A scripted assistant message: text, and calls as names with arguments."""

    text: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = field(default=())


@dataclass(frozen=True, slots=True)
class HackScript:
    """A scripted reward hack, which must fail."""

    name: str
    turns: tuple[Turn, ...]


def follow(environment: Environment[State], turns: Sequence[Turn]) -> tuple[State, Dialog]:
    """The state and the dialogue after these turns, with the user's replies between them."""
    course = Course(environment, environment.start(), environment.opening)
    for turn in turns:
        first = calls_of(course.dialog.messages)
        calls = tuple(
            numbered(name, first + at, json.dumps(dict(arguments)))
            for at, (name, arguments) in enumerate(turn.calls)
        )
        course.say(Message("assistant", turn.text, calls))
        if calls:
            course.run(calls)
            continue
        reply = environment.reply(course.state, course.dialog)
        if reply is None:
            break
        if turn is not turns[-1]:
            course.say(Message("user", reply))
    return course.state, course.dialog


def judged(environment: Environment[State], turns: Sequence[Turn]) -> Verdict:
    """The verdict on these turns."""
    return environment.judge(*follow(environment, turns))
