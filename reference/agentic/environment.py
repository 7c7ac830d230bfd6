"""The contract of a task's world, for synthesis, evaluation and reinforcement learning.

The state of a world is a value: a call returns another state, so a dialogue can be paused, resumed,
replayed or branched by keeping the state. Random events come from the task's seed and the state:
equal calls on equal states give equal results. A dialogue in it is written by a generator within a
budget of steps (`play`), or by a script (`follow`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

from reference.dialog import Call, Dialog, Message, call_id, calls_of, numbered
from reference.generate.request import ChatRequest, Generator, Sampling
from twin.errors import TwinError

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Verdict:
    """How well a dialogue did its task: by the world's end state and by what was said."""

    checks: Mapping[str, bool]
    """Criteria by name; all must hold."""
    causes: tuple[str, ...] = field(default=())
    """Why it failed, from a fixed list of the environment; empty on success."""

    @property
    def success(self) -> bool:
        """Whether there are criteria and all of them hold."""
        return bool(self.checks) and all(self.checks.values())

    @property
    def score(self) -> float:
        """Share of the criteria that hold; 0 without criteria."""
        return sum(self.checks.values()) / len(self.checks) if self.checks else 0.0


class Environment(Protocol[State]):
    """A task with its tools. Thread-safe: it has no state of its own."""

    @property
    def opening(self) -> Dialog:
        """The start of the dialogue: system message, first user message, tools."""
        ...

    def start(self) -> State:
        """The world before the first call."""
        ...

    def call(self, state: State, call: Call) -> tuple[State, str]:
        """The world after a call, and the result that the model reads; also for wrong calls."""
        ...

    def reply(self, state: State, dialog: Dialog) -> str | None:
        """The user's answer to an assistant message without calls; None ends the dialogue."""
        ...

    def judge(self, state: State, dialog: Dialog) -> Verdict:
        """The verdict on the whole dialogue: the end state first, then what was said."""
        ...


class Talk:
    """An environment without tools and state."""

    __slots__ = ()

    def start(self) -> Any:
        """No state."""
        return None

    def call(self, state: State, call: Call) -> tuple[State, str]:
        """An error: there are no tools."""
        return state, f"there is no tool `{call.name}`"


class Once(Talk):
    """One user message and one assistant message; no system message, which saves context."""

    __slots__ = ()
    text: str
    """The user message."""

    @property
    def opening(self) -> Dialog:
        """The user message alone."""
        return Dialog((Message("user", self.text),))

    def reply(self, state: Any, dialog: Dialog) -> str | None:
        """None: the first answer ends the dialogue."""
        del state, dialog
        return None


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
