"""The environment of a synthetic task: simulated tools, a simulated user, a judge by state.

A generator plays the user: rules by the skill `user`, a model by the persona. It sees the messages
of both sides, but no calls, results or reasoning.

The verdict: the end state must equal the state after the task's chain, and nothing else may have
changed (as tau-bench compares data bases, arXiv:2406.12045); any path to it passes. What was told
is compared next. The rest catches what a state does not show: forged results, ungrounded answers,
spraying, reasoning that the user sees. The calls are replayed in a fresh world, so a forged
dialogue fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from reference.agentic.domain import Tables
from reference.agentic.environment import Environment, Verdict
from reference.agentic.operations.base import FromResult, Source, Stated, ToldFact
from reference.agentic.spec import ChanceSpec
from reference.agentic.task_writer import ToolTask
from reference.agentic.world import ERROR, PASSING, World, act
from reference.dialog import Call, Dialog, Message, call_id, json_object, texts_of
from reference.generate.request import ChatRequest, Generator, Sampling
from reference.generate.rules import RuleGenerator

CAUSES: Final = (
    "malformed dialogue",
    "forged result",
    "reasoning leaked",
    "no answer",
    "no tool used",
    "part of a result taken for all",
    "gave up after an error",
    "argument guessed",
    "wrong argument",
    "wrong tool",
    "step skipped",
    "unasked change",
    "success claimed falsely",
    "fact not told",
    "fact made up",
    "too many calls",
)
_CAUSE_OF: Final = {
    "form": "malformed dialogue",
    "results": "forged result",
    "clean": "reasoning leaked",
    "answered": "no answer",
    "done": "",
    "nothing else": "unasked change",
    "told": "",
    "grounded": "",
    "sparing": "too many calls",
}
"""The cause of each failed check, in the order of causes; empty: found out."""
_PART: Final = '"incomplete":true'
_MARKS: Final = re.compile(r"</?think>|<\|\w+\|>|functions\.\w+:\d+")
_CLAIM: Final = re.compile(r"\b(?:done|completed|finished|i have)\b", re.IGNORECASE)
_LONGEST: Final = 2000
"""Characters of all answers together: reciting everything is no answer."""
_STRAY: Final = 3
"""Calls of other tools that count as searching, not spraying."""


@dataclass(frozen=True, slots=True)
class ReplayedCall:
    """A call, and its result in the fresh world."""

    call: Call
    result: str


@dataclass(frozen=True, slots=True)
class Replay:
    """A dialogue whose calls were made again."""

    state: Any
    calls: tuple[ReplayedCall, ...]
    unequal: tuple[str, ...]
    """Ids of calls whose results differ from the world's."""
    malformed: tuple[str, ...]
    """Faults against the template."""


def replay(environment: Environment[Any], dialog: Dialog) -> Replay:
    """The calls of the dialogue from the environment's first state; results are compared byte for
    byte."""
    state = environment.start()
    calls: list[ReplayedCall] = []
    unequal: list[str] = []
    opening = environment.opening
    same = dialog.messages[: len(opening.messages)] == opening.messages
    same = same and list(dialog.tools) == list(opening.tools)
    malformed = [] if same else ["it does not begin as the task does"]
    waiting: list[Call] = []
    for message in dialog.messages:
        if message.role == "tool":
            if not waiting or waiting[0].id != message.answers:
                malformed.append(f"a result answers {message.answers or 'nothing'}")
                continue
            call = waiting.pop(0)
            state, result = environment.call(state, call)
            calls.append(ReplayedCall(call, result))
            if result != message.content:
                unequal.append(call.id)
            continue
        if waiting:
            malformed.append(f"{waiting[0].id} has no result")
            waiting = []
        if message.role == "assistant":
            malformed += _call_faults(message, len(calls))
            waiting = list(message.calls)
    if waiting:
        malformed.append(f"{waiting[0].id} has no result")
    return Replay(state, tuple(calls), tuple(unequal), tuple(malformed))


def _call_faults(message: Message, first: int) -> list[str]:
    faults: list[str] = []
    for at, call in enumerate(message.calls, first):
        if call.id != call_id(call.name, at):
            faults.append(f"the call number {at} has the id {call.id}")
        if json_object(call.arguments or "{}") is None:
            faults.append(f"the arguments of {call.id} are no JSON object")
    return faults


def verdict_of(environment: Simulated, state: World, dialog: Dialog) -> Verdict:
    """The criteria by name, and the causes of a failure from `CAUSES`."""
    task = environment.task
    again = replay(environment, dialog)
    rows, last = again.state.tables, dialog.messages[-1]
    answers, wanted = answers_of(dialog), {*named_rows(task)}
    missing = [value for value in task.rubric.facts if not _says(answers, value)]
    checks = {
        "form": not again.malformed,
        "results": not again.unequal and state.tables == rows,
        "done": not wanted & {*_different(rows, task.expected)},
        "nothing else": {*_different(task.tables, rows)} <= wanted,
        "told": not missing,
        "grounded": _grounded(task, again.calls),
        "answered": last.role == "assistant" and not last.calls and bool(last.content.strip()),
        "clean": not any(map(_MARKS.search, texts_of(dialog.messages, "assistant"))),
        "sparing": _sparing(task, again.calls) and len(answers) <= _LONGEST,
    }
    return Verdict(checks, tuple(dict.fromkeys(_causes(task, checks, again, dialog))))


def answers_of(dialog: Dialog) -> str:
    """The assistant's messages to the user."""
    said = (one for one in dialog.messages if one.role == "assistant" and not one.calls)
    return "\n".join(message.content for message in said)


def named_rows(task: ToolTask) -> list[tuple[str, str]]:
    """Entity and id of the rows that the task's chain changes."""
    return list(_different(task.tables, task.expected))


def _different(first: Tables, second: Tables) -> Iterator[tuple[str, str]]:
    for kind in {**first, **second}:
        before, after = first.get(kind, {}), second.get(kind, {})
        for key in {**before, **after}:
            if before.get(key) != after.get(key):
                yield kind, key


def _plain(text: str) -> str:
    return re.sub(r"(?<=\d),(?=\d{3}\b)", "", text).casefold()


def _says(text: str, value: str) -> bool:
    """Whether the text states the value; numbers with or without commas and trailing zeros."""
    wanted = _plain(value)
    tail = r"(?:\.?0*)" if re.fullmatch(r"-?\d+(?:\.\d+)?", wanted) else ""
    pattern = rf"(?<![\w.-]){re.escape(wanted)}{tail}(?![\w-])(?!\.\d)"
    return re.search(pattern, _plain(text)) is not None


def _grounded(task: ToolTask, calls: Sequence[ReplayedCall]) -> bool:
    """Whether a tool was used, and every value to state came from a result."""
    facts = [fact for goal in task.goals for fact in goal.facts]
    results = [call.result for call in calls if not call.result.startswith(ERROR)]
    return bool(results) and all(
        any(_holds(result, value, fact) for result in results)
        for value, fact in zip(task.rubric.facts, facts, strict=True)
    )


def _holds(result: str, value: str, fact: ToldFact) -> bool:
    """Whether a result has the value; a truth value as JSON, under its name."""
    if fact.kind == "bool":
        truth = "true" if value == "yes" else "false"
        return f'"{fact.place[-1]}":{truth}' in result
    return _says(result, value)


def _sparing(task: ToolTask, calls: Sequence[ReplayedCall]) -> bool:
    stray = [one.call.name for one in calls if one.call.name not in task.rubric.tools]
    harmful = [name for name in stray if name in task.tools and task.tools[name].effect == "delete"]
    return len(calls) <= task.rubric.most_calls and len(stray) <= _STRAY and not harmful


def _causes(
    task: ToolTask, checks: dict[str, bool], again: Replay, dialog: Dialog
) -> Iterator[str]:
    for check in (name for name in _CAUSE_OF if not checks[name]):
        if check == "done":
            yield _undone(task, again, dialog)
            if _CLAIM.search(answers_of(dialog)):
                yield "success claimed falsely"
        elif check in ("told", "grounded"):
            yield _untold(task, checks, again, dialog)
        else:
            yield _CAUSE_OF[check]


def _undone(task: ToolTask, again: Replay, dialog: Dialog) -> str:
    """Why the end state is wrong: by the first missing change."""
    for at, step in enumerate(task.steps):
        if task.tools[step.tool].effect == "read":
            continue
        tries = [call for call in again.calls if call.call.name == step.tool]
        worked = [call for call in tries if not call.result.startswith(ERROR)]
        if not tries:
            return _missing(again, task)
        if not worked:
            passing = PASSING in tries[-1].result
            return "gave up after an error" if passing else "wrong argument"
        if any(_guessed(task, at, call, dialog) for call in worked):
            return "argument guessed"
    return "wrong argument"


def _missing(again: Replay, task: ToolTask) -> str:
    """Why a change was not tried."""
    if not again.calls:
        return "no tool used"
    if again.calls[-1].result.startswith(ERROR):
        return _after_error(again)
    if any(call.call.name not in task.rubric.tools for call in again.calls):
        return "wrong tool"
    if any(_PART in call.result for call in again.calls):
        return "part of a result taken for all"
    return "step skipped"


def _after_error(again: Replay) -> str:
    passing = PASSING in again.calls[-1].result
    return "gave up after an error" if passing else "wrong argument"


def _guessed(task: ToolTask, at: int, made: ReplayedCall, dialog: Dialog) -> bool:
    """Whether the call has a withheld value that the agent did not ask for."""
    said = "\n".join(texts_of(dialog.messages, "user"))
    given = json.loads(made.call.arguments or "{}")
    return any(
        isinstance(source, Stated)
        and source.slot in task.withheld
        and source.text not in said
        and name in given
        for name, source in task.steps[at].arguments.items()
    )


def _untold(task: ToolTask, checks: dict[str, bool], again: Replay, dialog: Dialog) -> str:
    if not again.calls:
        return "no tool used"
    if _PART in again.calls[-1].result:
        return "part of a result taken for all"
    if again.calls[-1].result.startswith(ERROR):
        return _after_error(again)
    if not checks["grounded"]:
        called = {call.call.name for call in again.calls}
        skipped = [tool for tool in task.rubric.tools if tool not in called]
        return "step skipped" if skipped else "wrong argument"
    return "fact made up" if re.search(r"\d|\bis\b", answers_of(dialog)) else "fact not told"


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
