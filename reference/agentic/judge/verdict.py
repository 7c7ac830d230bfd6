"""How a dialogue did a synthetic task, and why it failed.

The world's end state must be that of the chain that is known to work, on what the task names, and
nothing else may have changed (as tau-bench compares data bases, arXiv:2406.12045): any path to it
passes. What was told is compared next. The rest catches what a state does not show: forged results,
answers from nowhere, spraying, reasoning that the user sees.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from reference.agentic.environment import Verdict
from reference.agentic.judge.replayed import Made, Replayed, replay
from reference.agentic.tables import Tables
from reference.agentic.tasks.plan import Fact, Said
from reference.agentic.tasks.task import Task
from reference.agentic.world import ERROR, PASSING, World
from reference.dialog import Dialog

if TYPE_CHECKING:
    from reference.agentic.simulated import Simulated

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
_PART: Final = '"incomplete":true'
_MARKS: Final = re.compile(r"</?think>|<\|\w+\|>|functions\.\w+:\d+")
_CLAIM: Final = re.compile(r"\b(?:done|completed|finished|i have)\b", re.IGNORECASE)
_LONGEST: Final = 2000
"""Characters that an agent may say in all: an answer that recites everything tells nothing."""
_STRAY: Final = 3
"""Calls of tools beside the chain's that are a search, not spraying."""


def verdict_of(environment: Simulated, state: World, dialog: Dialog) -> Verdict:
    """The criteria by name, and the causes of a failure, from `CAUSES`."""
    task = environment.task
    again = replay(environment, dialog)
    rows = again.state.tables
    answers = answers_of(dialog)
    missing = [one for one in task.rubric.facts if not _says(answers, one)]
    checks = {
        "form": not again.malformed,
        "results": not again.unequal and state.tables == rows,
        "done": all(_same(rows, task.expected, key) for key in named_rows(task)),
        "nothing else": _nothing_else(task, rows),
        "told": not missing,
        "grounded": _grounded(task, again.made),
        "answered": _answered(dialog),
        "clean": not any(map(_MARKS.search, _texts(dialog))),
        "sparing": _sparing(task, again.made) and len(answers) <= _LONGEST,
    }
    if all(checks.values()):
        return Verdict(checks)
    return Verdict(checks, tuple(dict.fromkeys(_causes(task, checks, again, dialog))))


def answers_of(dialog: Dialog) -> str:
    """What the assistant says to the user."""
    said = (one for one in dialog.messages if one.role == "assistant" and not one.calls)
    return "\n".join(one.content for one in said)


def named_rows(task: Task) -> list[tuple[str, str]]:
    """Kind and id of what the chain that is known to work changes."""
    return list(_different(task.tables, task.expected))


def _different(one: Tables, other: Tables) -> Iterator[tuple[str, str]]:
    for kind in {**one, **other}:
        before, after = one.get(kind, {}), other.get(kind, {})
        for key in {**before, **after}:
            if before.get(key) != after.get(key):
                yield kind, key


def _same(one: Tables, other: Tables, key: tuple[str, str]) -> bool:
    kind, name = key
    return one.get(kind, {}).get(name) == other.get(kind, {}).get(name)


def _nothing_else(task: Task, rows: Tables) -> bool:
    return set(_different(task.tables, rows)) <= set(named_rows(task))


def _texts(dialog: Dialog) -> Iterator[str]:
    return (one.content for one in dialog.messages if one.role == "assistant")


def _plain(text: str) -> str:
    return re.sub(r"(?<=\d),(?=\d{3}\b)", "", text).casefold()


def _says(text: str, value: str) -> bool:
    """Whether the value stands there by itself; numbers with or without commas and zeros."""
    wanted = _plain(value)
    tail = r"(?:\.?0*)" if re.fullmatch(r"-?\d+(?:\.\d+)?", wanted) else ""
    pattern = rf"(?<![\w.-]){re.escape(wanted)}{tail}(?![\w-])(?!\.\d)"
    return re.search(pattern, _plain(text)) is not None


def _grounded(task: Task, made: Sequence[Made]) -> bool:
    """Whether a tool was used, and every value that must be told came from one."""
    facts = [fact for goal in task.goals for fact in goal.facts]
    worked = [one.told for one in made if not one.told.startswith(ERROR)]
    return bool(worked) and all(
        any(_holds(told, value, fact) for told in worked)
        for value, fact in zip(task.rubric.facts, facts, strict=True)
    )


def _holds(told: str, value: str, fact: Fact) -> bool:
    """Whether a result has the value; a truth stands there as JSON has it, under its name."""
    if fact.kind == "bool":
        truth = "true" if value == "yes" else "false"
        return f'"{fact.place[-1]}":{truth}' in told
    return _says(told, value)


def _answered(dialog: Dialog) -> bool:
    last = dialog.messages[-1]
    return last.role == "assistant" and not last.calls and bool(last.content.strip())


def _sparing(task: Task, made: Sequence[Made]) -> bool:
    stray = [one for one in made if one.call.name not in task.rubric.tools]
    harmful = [one for one in stray if _effect(task, one) == "delete"]
    return len(made) <= task.rubric.most_calls and len(stray) <= _STRAY and not harmful


def _effect(task: Task, made: Made) -> str:
    tool = task.tools.get(made.call.name)
    return tool.effect if tool else "none"


def _causes(task: Task, checks: dict[str, bool], again: Replayed, dialog: Dialog) -> Iterator[str]:
    if not checks["form"]:
        yield "malformed dialogue"
    if not checks["results"]:
        yield "forged result"
    if not checks["clean"]:
        yield "reasoning leaked"
    if not checks["answered"]:
        yield "no answer"
    if not checks["done"]:
        yield _undone(task, again, dialog)
        if _CLAIM.search(answers_of(dialog)):
            yield "success claimed falsely"
    if not checks["nothing else"]:
        yield "unasked change"
    if not checks["told"] or not checks["grounded"]:
        yield _untold(task, checks, again, dialog)
    if not checks["sparing"]:
        yield "too many calls"


def _undone(task: Task, again: Replayed, dialog: Dialog) -> str:
    """Why the end state is not what it should be: by the first change that is not there."""
    for at, step in enumerate(task.steps):
        if task.tools[step.tool].effect == "read":
            continue
        tries = [one for one in again.made if one.call.name == step.tool]
        worked = [one for one in tries if not one.told.startswith(ERROR)]
        if not tries:
            return _missing(again, task)
        if not worked:
            passing = PASSING in tries[-1].told
            return "gave up after an error" if passing else "wrong argument"
        if any(_guessed(task, at, one, dialog) for one in worked):
            return "argument guessed"
    return "wrong argument"


def _missing(again: Replayed, task: Task) -> str:
    """Why a change was not even tried."""
    if again.made and again.made[-1].told.startswith(ERROR):
        return "gave up after an error" if PASSING in again.made[-1].told else "wrong argument"
    strange = [one for one in again.made if one.call.name not in task.rubric.tools]
    if strange:
        return "wrong tool"
    if any(_PART in one.told for one in again.made):
        return "part of a result taken for all"
    if not again.made:
        return "no tool used"
    return "step skipped"


def _guessed(task: Task, at: int, made: Made, dialog: Dialog) -> bool:
    """Whether a value that the user kept back, and was not asked for, was given anyway."""
    said = "\n".join(one.content for one in dialog.messages if one.role == "user")
    given = json.loads(made.call.arguments or "{}")
    return any(
        isinstance(source, Said)
        and source.slot in task.withheld
        and source.text not in said
        and name in given
        for name, source in task.steps[at].arguments.items()
    )


def _untold(task: Task, checks: dict[str, bool], again: Replayed, dialog: Dialog) -> str:
    if not again.made:
        return "no tool used"
    if _PART in again.made[-1].told:
        return "part of a result taken for all"
    if again.made[-1].told.startswith(ERROR):
        return "gave up after an error" if PASSING in again.made[-1].told else "wrong argument"
    if not checks["grounded"]:
        called = {one.call.name for one in again.made}
        skipped = [one for one in task.rubric.tools if one not in called]
        return "step skipped" if skipped else "wrong argument"
    return "fact made up" if re.search(r"\d|\bis\b", answers_of(dialog)) else "fact not told"
