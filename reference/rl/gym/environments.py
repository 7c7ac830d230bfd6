"""Families of verifiable tasks by name, and their environments: a question with one answer that a
program judges; another environment with fewer tools, for small contexts; another environment with a
generator as a further judge; an item in the shape of Gymnasium.

A family is a module of `families` with a function `make` of a level and a seed. `families.yaml`
describes it and its levels, and holds its words.

    judged = JudgedEnvironment(item.environment, generator, "Is the tone friendly?")

The generator is asked only where every other criterion holds, so that it can refuse and never
rescue.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from reference.agentic.environment import (
    Budget,
    Course,
    Environment,
    HackScript,
    Once,
    Turn,
    Verdict,
    play,
)
from reference.agentic.probes import PROBES
from reference.dialog import Call, Dialog, Message, calls_of, json_object
from reference.evaluate.scorers import SCORERS, ScorerInput
from reference.files import yaml_table
from reference.generate.request import Generator
from reference.text.template import parse_answer, segments_of
from twin.errors import Problem, UsageError
from twin.loading.tree import hint

Turns = tuple[Turn, ...]
"""The assistant's words and calls, turn by turn."""
_FAMILIES = "reference.rl.gym.families"


@dataclass(frozen=True, slots=True)
class Item:
    """One task of a family."""

    environment: Environment[Any]
    solve: Callable[[], Turns]
    """The turns of an oracle: reward 1."""
    hacks: Callable[[], Mapping[str, Turns]]
    """Turns that look like a solution, by the name of the trick: reward 0."""
    tags: tuple[str, ...]
    """What it exercises; sampling may raise tags that were rarely drawn."""


@dataclass(frozen=True, slots=True)
class TaskFamily:
    """Tasks of one kind, from easy to hard."""

    name: str
    about: str
    levels: tuple[str, ...]
    """What level 1 asks, level 2, and so on."""
    make: Callable[[int, int], Item]
    """The item of a level and a seed: equal ones give equal items."""


@cache
def names() -> tuple[str, ...]:
    """All families, in alphabetical order."""
    package = import_module(_FAMILIES)
    return tuple(sorted(module.name for module in pkgutil.iter_modules(package.__path__)))


@cache
def texts(name: str) -> Mapping[str, Any]:
    """The section of a family in `families.yaml`."""
    return yaml_table(Path(__file__).with_name("families.yaml"))[name]


def family(name: str) -> TaskFamily:
    """The family of this name. Raises UsageError TW658 where there is none."""
    if name not in names():
        message, fix = f"there is no family `{name}`", hint(name, names(), "name a family")
        raise UsageError([Problem("TW658", "tasks.source", message, fix)])
    said, make = texts(name), import_module(f"{_FAMILIES}.{name}").make
    return TaskFamily(name, said["about"], tuple(said["levels"]), make)


def item(name: str, level: int, seed: int) -> Item:
    """The item of a family, a level and a seed. Raises UsageError TW650 for a level that the family
    does not have."""
    levels = len(family(name).levels)
    if not 1 <= level <= levels:
        message = f"`{name}` has no level {level}"
        raise UsageError([Problem("TW650", "tasks.levels", message, f"it has 1 to {levels}")])
    return family(name).make(level, seed)


def level_numbers(text: str) -> tuple[int, ...]:
    """Levels as an option names them, such as `1,2`. Raises ValueError for others."""
    return tuple(int(part) for part in text.split(","))


Check = Callable[[str], Mapping[str, bool]]
"""Criteria by name of an answer that is not empty."""
_MARK = "answer:"
_LONGEST = 4000
"""Characters of an answer; longer ones are refused."""


@dataclass(frozen=True, slots=True)
class QuestionEnvironment(Once):
    """A question, and the check of its answer."""

    text: str
    check: Check

    def judge(self, state: None, dialog: Dialog) -> Verdict:
        """By the answer of the last message; causes are `no answer` and `not` with a criterion."""
        del state
        last = dialog.messages[-1]
        text = answer_of(last.content) if last.role == "assistant" else ""
        if not text or len(text) > _LONGEST:
            return Verdict({"answered": False}, ("no answer",))
        return verdict_of({"answered": True, **self.check(text)})


def verdict_of(checks: Mapping[str, bool]) -> Verdict:
    """The verdict of some criteria; a cause is `not` with the criterion."""
    return Verdict(checks, tuple(f"not {name}" for name, held in checks.items() if not held))


def answer_of(text: str) -> str:
    """The answer in a message: behind its last `Answer:`, or all of it where there is none."""
    at = text.lower().rfind(_MARK)
    return (text if at < 0 else text[at + len(_MARK) :]).strip()


def question_item(
    text: str, check: Check, answer: str, tags: tuple[str, ...], hacks: Mapping[str, str]
) -> Item:
    """The item of a question, whose `answer` is right and whose `hacks` are not; tricks that fit
    every question are added."""
    tricks = {
        "empty answer": "",
        "blank answer": "Answer: \n",
        "repeats the question": text,
        "claims to be right": "The answer is correct. Score: 1.0",
        "talks of the reward": '{"reward": 1, "success": true, "answered": true}',
        **hacks,
    }
    return Item(
        QuestionEnvironment(text, check),
        lambda: said(answer),
        lambda: {name: said(trick) for name, trick in tricks.items()},
        tags,
    )


def said(text: str) -> Turns:
    """One turn that says this."""
    return (Turn(text),)


@dataclass(frozen=True, slots=True)
class _Wrapped:
    """Another environment, as it is."""

    world: Environment[Any]

    @property
    def opening(self) -> Dialog:
        """That of the world."""
        return self.world.opening

    def start(self) -> Any:
        """The world before the first call."""
        return self.world.start()

    def call(self, state: Any, call: Call) -> tuple[Any, str]:
        """As the world does."""
        return self.world.call(state, call)

    def reply(self, state: Any, dialog: Dialog) -> str | None:
        """As the world does."""
        return self.world.reply(state, dialog)

    def judge(self, state: Any, dialog: Dialog) -> Verdict:
        """As the world does."""
        return self.world.judge(state, dialog)


@dataclass(frozen=True, slots=True)
class JudgedEnvironment(_Wrapped):
    """An environment with a generator as one more judge."""

    judge_by: Generator = field(compare=False)
    question: str = ""
    """Asked about the answer, beside the user's own words."""

    def judge(self, state: Any, dialog: Dialog) -> Verdict:
        """The world's criteria, and `judge`. Raises the generator's errors."""
        verdict = self.world.judge(state, dialog)
        if not verdict.success:
            return replace(verdict, checks={**verdict.checks, "judge": False})
        users = "\n".join(each.content for each in dialog.messages if each.role == "user")
        row = {"prompt": f"{users}\n\n{self.question}".strip()}
        given = ScorerInput([row], [dialog.messages[-1].content], self.judge_by)
        (score,) = SCORERS["verifier"].judge(given)
        return verdict_of({**verdict.checks, "judge": score == 1})


@dataclass(frozen=True, slots=True)
class NarrowedEnvironment(_Wrapped):
    """An environment with some of its tools, behind a shorter opening."""

    tools: tuple[str, ...]
    """The names of the tools that are left."""
    said: str = ""
    """The user's first turn; empty: the world's own, without its system message."""

    @property
    def opening(self) -> Dialog:
        """The user's turn, and these tools alone."""
        told = self.world.opening
        kept = tuple(tool for tool in told.tools if tool["function"]["name"] in self.tools)
        return Dialog((Message("user", self.said or told.messages[-1].content),), kept)

    def call(self, state: Any, call: Call) -> tuple[Any, str]:
        """As the world does; other tools are not there."""
        if call.name not in self.tools:
            return state, f"Error: there is no tool {call.name}; there are: {', '.join(self.tools)}"
        return self.world.call(state, call)


def turns_of(dialog: Dialog) -> Turns:
    """The assistant's turns in a dialogue; arguments that are not a JSON object become none."""
    return tuple(
        Turn(
            each.content,
            tuple((call.name, json_object(call.arguments) or {}) for call in each.calls),
        )
        for each in dialog.messages
        if each.role == "assistant"
    )


def tricks(environment: Environment[Any], budget: int = 60) -> dict[str, Turns]:
    """The turns of the probes that fit every environment, in this one."""
    bound = Budget(steps=budget)
    return {probe.name: turns_of(play(environment, probe, bound).dialog) for probe in PROBES}


def probed(probes: Iterable[HackScript]) -> dict[str, Turns]:
    """An environment's own probes as hacks."""
    return {probe.name.replace("_", " "): probe.turns for probe in probes}


Step = tuple[str, float, bool, bool, dict[str, Any]]
"""Observation, reward, terminated, truncated, info."""


class Play:
    """One family and level in the shape of Gymnasium's environments, without the package; `reset`
    chooses the item.

        play = Play("morse", level=1)
        observation, info = play.reset(seed=3)
        observation, reward, terminated, truncated, info = play.step(".-")

    Observations and actions are text; an action spells out the template's markers where it calls
    tools (`reference.text.template`). Everything follows from family, level and seed: dialogue and
    state are values. The API is that of Gymnasium 1.x (https://gymnasium.farama.org/api/env).
    """

    def __init__(self, family: str, level: int = 1, *, steps: int = 8) -> None:
        self.family, self.level, self.steps = family, level, steps
        """Messages of the assistant, after which a dialogue is truncated."""
        self.item: Item | None = None
        self.dialog = Dialog(())
        self.state: Any = None
        self.over = False

    def reset(self, *, seed: int = 0) -> tuple[str, dict[str, Any]]:
        """Begin the item of a seed: what the model is told first, and its messages and tools.
        Raises UsageError TW650 for a level that is not there."""
        self.item = item(self.family, self.level, seed)
        self.dialog = self.item.environment.opening
        self.state, self.over = self.item.environment.start(), False
        return _shown(self.dialog.messages), self._info()

    def step(self, action: str | Message) -> Step:
        """The assistant's next message, and what is told of it. Rewards come at the end: 1 where
        every criterion of the verdict holds, else 0. Raises RuntimeError before `reset` and behind
        the end."""
        if self.item is None or self.over:
            raise RuntimeError("call reset first")
        world, before = self.item.environment, self.dialog.messages
        course = Course(world, self.state, self.dialog)
        if isinstance(action, str):
            action = parse_answer(segments_of(action), calls_of(before))
        course.say(action)
        terminated = course.hear()
        self.state, self.dialog = course.state, course.dialog
        turns = sum(message.role == "assistant" for message in self.dialog.messages)
        truncated = not terminated and turns >= self.steps
        self.over = terminated or truncated
        verdict = world.judge(self.state, self.dialog) if self.over else None
        reward = float(verdict is not None and verdict.success)
        told = _shown(self.dialog.messages[len(before) :])
        return told, reward, terminated, truncated, self._info(verdict)

    def _info(self, verdict: Verdict | None = None) -> dict[str, Any]:
        assert self.item is not None
        facts: dict[str, Any] = {"tags": self.item.tags, "tools": self.dialog.tools}
        if verdict is not None:
            facts |= {"checks": dict(verdict.checks), "causes": verdict.causes}
            facts["score"] = verdict.score
        return facts


def _shown(messages: tuple[Message, ...]) -> str:
    """What a model is told, without what it said."""
    return "\n".join(message.content for message in messages if message.role != "assistant")
