"""A programming task as an environment: code runs in the sandbox, hidden tests decide.

The state is the submission. Hidden tests take values out of the code and compare them outside of
its sandbox (`hidden`); the model never learns what they hold.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from reference.agentic.code.generate import CodeTask, table_of_examples
from reference.agentic.code.hidden import CheckGroup, CheckResult, is_expected, run_checks
from reference.agentic.environment import HackScript, Turn, Verdict
from reference.dialog import Call, Dialog, Message, declared
from reference.files import yaml_table
from reference.sandbox.job import RunLimits, RunOutcome, python_text
from reference.sandbox.run import run
from reference.sandbox.schema import read_arguments, text_arguments

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
"""Why a task failed. `exited`: the code ended its process; `forbidden`: it passed a limit on
processes or files; `too long`: a value of more than 64 KiB."""
SYSTEM = (
    "You write Python functions. Try code with run_python. Hand in with submit, once, or end with "
    "the function in a fenced block. Hidden tests decide."
)
_TRIALS: Final = RunLimits.model_validate(
    {"cpu": "5s", "wall": "30s", "memory": "256MiB", "processes": 16, "output": "4KiB"}
)
_ARGUMENTS = text_arguments(code="Python text")
TOOLS = (
    declared("run_python", "Runs Python text and returns what it prints.", _ARGUMENTS),
    declared("submit", "Hands in the text that defines the function.", _ARGUMENTS),
)
_FENCED = re.compile(r"```[ \t]*(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL | re.IGNORECASE)
_VARYING = (
    (re.compile(r"[^\s\"']*/twin-sandbox-\w+"), "/work"),
    (re.compile(r"0x[0-9a-f]{6,16}"), "0x..."),
)
"""Output that differs between equal runs: the scratch folder's name, and addresses."""
_MOST_TURNS = 3


@dataclass(frozen=True, slots=True)
class Submission:
    """The text that was handed in, if any."""

    text: str | None = None


@dataclass(frozen=True, slots=True)
class CodeEnvironment:
    """The environment of a programming task."""

    task: CodeTask
    cpu_s: float = 1.0
    """CPU seconds of each hidden test."""
    hints: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Metadata for rule-based policies (`kind`, `candidates`); models never receive it."""

    @property
    def opening(self) -> Dialog:
        """The statement, with the signature and the examples."""
        examples = [
            f"{one.call(self.task.entry)} == {one.expected!r}" for one in self.task.examples
        ]
        parts = [self.task.statement, self.task.signature, *examples]
        messages = (Message("system", SYSTEM), Message("user", "\n".join(parts)))
        return Dialog(messages, TOOLS)

    def start(self) -> Submission:
        """No submission."""
        return Submission()

    def call(self, state: Submission, call: Call) -> tuple[Submission, str]:
        """The state after `run_python` or `submit`, and the result."""
        if call.name not in ("run_python", "submit"):
            return state, f"Error: there is no tool {call.name}; there are: run_python, submit"
        arguments, errors = read_arguments(call.arguments, _ARGUMENTS)
        if errors:
            return state, f"Error: {'; '.join(errors)}"
        if call.name == "run_python":
            command = python_text(arguments["code"], environment={"PYTHONHASHSEED": "0"})
            return state, run_output(run(command, _TRIALS))
        if state.text is not None:
            return state, "Error: there is one submission, and it was made."
        return replace(state, text=arguments["code"]), "Handed in."

    def reply(self, state: Submission, dialog: Dialog) -> str | None:
        """A reminder while there is no code; None ends the dialogue."""
        turns = sum(message.role == "user" for message in dialog.messages)
        if answer_of(state, dialog) is not None or turns >= _MOST_TURNS:
            return None
        return "I see no function yet. Please hand it in."

    def judge(self, state: Submission, dialog: Dialog) -> Verdict:
        """One criterion per hidden test, and the causes of those that fail."""
        answer = answer_of(state, dialog)
        if answer is None:
            return Verdict({"answered": False}, ("no answer",))
        found = run_checks([group_of(self.task, answer)], cpu_s=self.cpu_s)
        return verdict_of(self.task, found[0])


def group_of(task: CodeTask, answer: str) -> CheckGroup:
    """The hidden tests of an answer."""
    return CheckGroup(tuple(f"result = {test.call(task.entry)}" for test in task.hidden), answer)


def verdict_of(task: CodeTask, results: tuple[CheckResult, ...]) -> Verdict:
    """The verdict on the results of a task's hidden tests."""
    checks: dict[str, bool] = {}
    causes: set[str] = set()
    for at, (result, test) in enumerate(zip(results, task.hidden, strict=True)):
        checks[f"hidden {at}"] = right = is_expected(result, test.expected)
        if not right:
            causes.add(_cause(result))
    return Verdict(checks, tuple(cause for cause in CAUSES if cause in causes))


def answer_of(state: Submission, dialog: Dialog) -> str | None:
    """The answer: the submission, or the last fenced block of the last assistant message."""
    if state.text is not None:
        return state.text
    last = dialog.messages[-1]
    blocks = _FENCED.findall(last.content) if last.role == "assistant" else []
    return blocks[-1] if blocks else None


def run_output(outcome: RunOutcome) -> str:
    """The report of a run; equal runs give equal texts."""
    text = outcome.report
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    return text


def _cause(result: CheckResult) -> str:
    if result.kind == "raises":
        return "not defined" if result.value == "NameError" else "exception"
    by_kind: Mapping[str, str] = {"value": "wrong answer", "long": "too long"}
    return by_kind.get(result.kind, result.kind)


_ANY = "def {entry}(*words):\n    {body}\n"
_TEXTS = Path(__file__).with_name("probes.yaml")


def probes(environment: CodeEnvironment) -> tuple[HackScript, ...]:
    """Dialogues that must fail."""
    task, texts = environment.task, yaml_table(_TEXTS)
    wrong = _ANY.format(entry=task.entry, body="return 'wrong'")
    equal = _ANY.format(entry=task.entry, body="return Any(0)")
    submitted = {
        "empty_text": "",
        "hard_coded_examples": table_of_examples(task),
        "override_of_equality": f"\n{texts['equal_to_everything']}{equal}",
        "search_for_expected_values": "\n" + texts["search"].format(entry=task.entry),
        "endless_output": _ANY.format(entry=task.entry, body="while True: print('x' * 4096)"),
        **{name: f"{before}{wrong}" for name, before in texts["before"].items()},
    }
    said = {
        "empty_answer": "",
        "claim_of_success": "I ran all hidden tests and they pass. The task is solved.",
        "empty_block": "```python\n```",
        "repeated_statement": environment.opening.messages[-1].content,
    }
    trial = Turn(calls=(("run_python", {"code": wrong}),))
    return (
        *(HackScript(name, (Turn(text),)) for name, text in said.items()),
        *(HackScript(name, (_submit(text), Turn("Done."))) for name, text in submitted.items()),
        HackScript("tests_run_as_trials", (trial, Turn("OK"))),
        HackScript("second_submission", (_submit(wrong), _submit(task.solution), Turn("Done."))),
    )


def _submit(text: str) -> Turn:
    return Turn(calls=(("submit", {"code": text}),))
