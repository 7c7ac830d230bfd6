"""Dialogues in an environment: an agent, its tools and a user, with one budget of steps for all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from reference.agentic.course import Course
from reference.agentic.environment import Environment, Verdict
from reference.dialog import Call, Dialog, Message, call_id, calls_of
from reference.generate.generator import Generator
from reference.generate.request import Request, Sampling
from twin.errors import TwinError

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Budget:
    """How long a dialogue may be, and how the agent's tokens are chosen."""

    steps: int = 40
    """Messages of the agent, calls, and turns of the user behind the first, together."""
    sampling: Sampling = field(default_factory=Sampling)


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A dialogue that was played, and how it did."""

    dialog: Dialog
    verdict: Verdict
    ended: str
    """`user`, `budget`, or the error of a generator."""
    steps: int


def play(environment: Environment[State], agent: Generator, budget: Budget) -> Trajectory:
    """One dialogue. Only the user or the budget ends it; an environment may have `hints`, which go
    to the agent as metadata (rules read them, models are never sent them)."""
    opening = environment.opening
    course = Course(environment, environment.start(), opening)
    left, ended = budget.steps, "budget"
    hints: Any = getattr(environment, "hints", None) or {}
    while left > 0:
        messages = course.dialog.messages
        request = Request(messages, opening.tools, budget.sampling, hints)
        try:
            said = _renumbered(agent.complete(request).message(), calls_of(messages))
            course.say(said)
            left -= 1
            over = course.hear(left)
        except TwinError as error:
            ended = f"error: {error}"
            break
        if over:
            ended = "user"
            break
        left -= len(said.calls) or 1
    verdict = environment.judge(course.state, course.dialog)
    return Trajectory(course.dialog, verdict, ended, budget.steps - left)


def _renumbered(message: Message, first: int) -> Message:
    """The message with its calls' ids as the template has them: a server may give others."""
    calls = tuple(
        Call(call_id(call.name, first + at), call.name, call.arguments)
        for at, call in enumerate(message.calls)
    )
    return Message("assistant", message.content, calls)


def play_many(
    environments: Iterable[Environment[State]],
    agent: Generator,
    budget: Budget,
    at_once: int = 1,
    progress: Callable[[Trajectory], None] | None = None,
) -> list[Trajectory]:
    """Dialogues in the order of the environments, so many at one time, in threads: a model's agent
    waits for its server."""

    def one(environment: Environment[State]) -> Trajectory:
        found = play(environment, agent, budget)
        if progress is not None:
            progress(found)
        return found

    with ThreadPoolExecutor(at_once, "play") as pool:
        return list(pool.map(one, environments))
