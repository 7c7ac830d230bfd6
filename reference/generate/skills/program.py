"""A policy for programming tasks and repositories that chooses among candidates which it is given.

It reads the dialogue only. It tries a candidate by real runs and goes on by what they print; it is
as impatient as its temperament, so that some answers are handed in although they are wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from reference.dialog import Call
from reference.generate.skill import Answer, Skill, Task

_EXAMPLE = re.compile(r"^(\w+\(.*\) == .+)$", re.MULTILINE)
_PATIENCE = 3
"""Candidates that are tried before the last one is taken as it is."""
_HASTE = 0.15
"""Chance, in each turn, to hand in without a look."""


def _answer(task: Task) -> Answer:
    calls = [call for one in task.request.messages for call in one.calls]
    given: Sequence[Any] = task.words["candidates"]
    if any(call.name == "submit" for call in calls):
        return Answer("Done.")
    names = {one["function"]["name"] for one in task.request.tools}
    return _write(task, calls, given) if "submit" in names else _mend(task, calls, given)


def _write(task: Task, calls: Sequence[Call], given: Sequence[str]) -> Answer:
    """Try candidates on the examples until one gives them all."""
    tried = len(calls)
    if tried and (_told(task).count("True") or 0) == len(_examples(task)):
        return _hand_in(task, given[tried - 1])
    if tried >= min(_PATIENCE, len(given)) or (tried and task.draw.random() < _HASTE):
        return _hand_in(task, given[tried - 1])
    lines = [f"print({one})" for one in _examples(task)]
    text = "\n".join([given[tried], *lines])
    said = "Let me try it on the examples." if not tried else "That is not right yet."
    return Answer(said, (("run_python", {"code": text}),))


def _hand_in(task: Task, text: str) -> Answer:
    if task.draw.random() < 0.3:
        return Answer(f"Here it is.\n```python\n{text}```")
    return Answer("", (("submit", {"code": text}),))


def _examples(task: Task) -> list[str]:
    first = next(one.content for one in task.request.messages if one.role == "user")
    return _EXAMPLE.findall(first)


def _told(task: Task) -> str:
    return task.request.messages[-1].content


def _mend(task: Task, calls: Sequence[Call], given: Sequence[Mapping[str, str]]) -> Answer:
    """Look, change, run the tests; a change that they refuse is taken back."""
    if not calls:
        return Answer("Let me look.", (("list_files", {}),))
    edits = [_arguments(one) for one in calls if one.name == "edit_file"]
    forward = [one for one in edits if one in [dict(patch) for patch in given]]
    match calls[-1].name:
        case "run_tests":
            return _after_tests(task, forward, given)
        case "edit_file" if edits[-1] in forward:
            hasty = task.draw.random() < _HASTE
            return Answer("That should do.") if hasty else Answer("", (("run_tests", {}),))
        case "read_file":
            return Answer("I think that it is here.", (("edit_file", dict(given[len(forward)])),))
        case _:
            return Answer("", (("read_file", {"path": given[len(forward)]["path"]}),))


def _after_tests(
    task: Task, tried: Sequence[Mapping[str, str]], given: Sequence[Mapping[str, str]]
) -> Answer:
    if "FAILED" not in _told(task):
        return Answer("The tests pass.")
    if len(tried) >= min(_PATIENCE, len(given)):
        return Answer("I leave it at that.")
    back = {**tried[-1], "old": tried[-1]["new"], "new": tried[-1]["old"]}
    return Answer("The tests fail; I take it back.", (("edit_file", back),))


def _arguments(call: Call) -> dict[str, Any]:
    found = json.loads(call.arguments)
    return found if isinstance(found, dict) else {}


SKILL = Skill(
    "program",
    "Hands in one of the answers in `candidates`: texts for a programming task, or patches (`path`,"
    " `old`, `new`) for a repository.",
    _answer,
)
