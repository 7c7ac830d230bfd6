"""A programming task as a world: text is run in the sandbox, and hidden tests decide.

The state is what was handed in. Hidden tests take values out of the code and compare them outside
of its sandbox (`hidden`); nothing that they hold is told before the end, nor after it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from reference.agentic.code.hidden import LIMITS, Answer, Group, ask, same
from reference.agentic.code.task import Task
from reference.agentic.environment import Verdict
from reference.dialog import Call, Dialog, Message, declared
from reference.sandbox.command import code
from reference.sandbox.isolation import Isolation
from reference.sandbox.limits import Limits
from reference.sandbox.outcome import Outcome
from reference.sandbox.run import run
from reference.sandbox.tools.schema import errors_of

CAUSES = (
    "no answer",
    "syntax",
    "not defined",
    "exception",
    "wrong answer",
    "timeout",
    "memory",
    "exited",
    "forbidden",
    "too long",
)
"""Why a task was not done. `exited`: the code ended its process; `forbidden`: it passed a limit on
processes or files; `too long`: an answer of more than 64 KiB."""
SYSTEM = (
    "You write Python functions. Try code with run_python. Hand in with submit, once, or end with "
    "the function in a fenced block. Hidden tests decide."
)
_TRIALS = Limits.model_validate(
    {"cpu": "5s", "wall": "30s", "memory": "256MiB", "processes": 16, "output": "4KiB"}
)
_TEXT = {"type": "string", "description": "Python text"}
_ARGUMENTS: dict[str, Any] = {
    "type": "object",
    "properties": {"code": _TEXT},
    "required": ["code"],
    "additionalProperties": False,
}
TOOLS = (
    declared("run_python", "Runs Python text and returns what it prints.", _ARGUMENTS),
    declared("submit", "Hands in the text that defines the function.", _ARGUMENTS),
)
_FENCED = re.compile(r"```[ \t]*(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL | re.IGNORECASE)
_VARYING = (
    (re.compile(r"[^\s\"']*/twin-sandbox-\w+"), "/work"),
    (re.compile(r"0x[0-9a-f]{6,16}"), "0x..."),
)
"""What two equal runs print differently: the scratch folder's name, and addresses."""
_MOST_TURNS = 3


@dataclass(frozen=True, slots=True)
class Work:
    """What was handed in, if anything was."""

    submitted: str | None = None


@dataclass(frozen=True, slots=True)
class CodeEnvironment:
    """A programming task's world."""

    task: Task
    cpu_s: float = 1.0
    """CPU seconds of each hidden test."""
    limits: Limits = LIMITS
    """Of the run of all hidden tests together."""
    trials: Limits = _TRIALS
    """Of a run that the model asks for."""
    isolation: Isolation | None = None
    hints: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What rules go by in place of thought: `kind` and `candidates`; no model is told."""

    @property
    def opening(self) -> Dialog:
        """The statement, with the signature and the examples."""
        shown = [f"{one.call(self.task.entry)} == {one.expected!r}" for one in self.task.examples]
        parts = [self.task.statement, self.task.signature, *shown]
        messages = (Message("system", SYSTEM), Message("user", "\n".join(parts)))
        return Dialog(messages, TOOLS)

    def start(self) -> Work:
        """Nothing handed in."""
        return Work()

    def call(self, state: Work, call: Call) -> tuple[Work, str]:
        """The state after `run_python` or `submit`, and what the model is told."""
        text, wrong = code_of(call)
        if wrong:
            return state, f"Error: {wrong}"
        if call.name == "run_python":
            environment = {"PYTHONHASHSEED": "0"}
            command = code(text, environment=environment)
            return state, shown(run(command, self.trials, isolation=self.isolation))
        if state.submitted is not None:
            return state, "Error: there is one submission, and it was made."
        return replace(state, submitted=text), "Handed in."

    def reply(self, state: Work, dialog: Dialog) -> str | None:
        """A reminder where there is no code yet, and the end otherwise."""
        turns = sum(one.role == "user" for one in dialog.messages)
        if answer_of(state, dialog) is not None or turns >= _MOST_TURNS:
            return None
        return "I see no function yet. Please hand it in."

    def judge(self, state: Work, dialog: Dialog) -> Verdict:
        """A criterion for each hidden test; causes of those that fail."""
        answer = answer_of(state, dialog)
        if answer is None:
            return Verdict({"answered": False}, ("no answer",))
        groups = [group_of(self.task, answer)]
        answers = ask(groups, cpu_s=self.cpu_s, limits=self.limits, isolation=self.isolation)
        return verdict_of(self.task, answers[0])


def group_of(task: Task, answer: str) -> Group:
    """The hidden tests on an answer, to be asked."""
    return Group(tuple(f"result = {one.call(task.entry)}" for one in task.hidden), answer)


def verdict_of(task: Task, answers: tuple[Answer, ...]) -> Verdict:
    """What the answers to the hidden tests of a task are worth."""
    checks: dict[str, bool] = {}
    causes: set[str] = set()
    for at, (answer, test) in enumerate(zip(answers, task.hidden, strict=True)):
        checks[f"hidden {at}"] = good = same(answer, test.expected, task.tolerance)
        if not good:
            causes.add(_cause(answer))
    return Verdict(checks, tuple(one for one in CAUSES if one in causes))


def answer_of(state: Work, dialog: Dialog) -> str | None:
    """The text that counts: what was handed in, or the last fenced block of the last message."""
    if state.submitted is not None:
        return state.submitted
    last = dialog.messages[-1]
    found = _FENCED.findall(last.content) if last.role == "assistant" else []
    return found[-1] if found else None


def code_of(call: Call) -> tuple[str, str]:
    """The text of a call, and what is wrong with it."""
    if call.name not in ("run_python", "submit"):
        return "", f"there is no tool {call.name}; there are: run_python, submit"
    try:
        given = json.loads(call.arguments)
    except (ValueError, RecursionError) as error:
        return "", f"the arguments are no JSON: {error}"
    wrong = "; ".join(errors_of(given, _ARGUMENTS)) or not_text(given)
    return ("", wrong) if wrong else (given["code"], "")


def not_text(given: Mapping[str, str]) -> str:
    """What is wrong with arguments that no file can hold, such as half of a pair of surrogates."""
    try:
        "".join(given.values()).encode()
    except UnicodeEncodeError as error:
        return f"the text is not Unicode: {error.reason}"
    return ""


def shown(outcome: Outcome) -> str:
    """What a run printed, and how it ended where that is not well; equal runs, equal texts."""
    text = outcome.stdout.text
    if not outcome.ok:
        how = f"limit: {outcome.ended}"
        if outcome.ended in ("exit", "signal"):
            how = f"exit code {outcome.code}" if outcome.signal is None else "a signal"
        text = f"{text}{outcome.stderr.text}\n[ended by {how}]"
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    return text


def _cause(answer: Answer) -> str:
    if answer.kind == "raises":
        return "not defined" if answer.value == "NameError" else "exception"
    by_kind: Mapping[str, str] = {"value": "wrong answer", "long": "too long"}
    return by_kind.get(answer.kind, answer.kind)
