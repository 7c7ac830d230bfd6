"""A policy for programming tasks and repositories that chooses among given candidates.

It reads only the dialogue, tries a candidate by real runs and decides by their output. It is
impatient at random, so it hands in some wrong answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from reference.dialog import Call, json_object, texts_of
from reference.generate.rules import Skill, SkillAnswer, SkillTask

_EXAMPLE = re.compile(r"^(\w+\(.*\) == .+)$", re.MULTILINE)
_PATIENCE = 3
"""Candidates to try before the last one is handed in anyway."""
_HASTE = 0.15
"""Probability per turn to hand in without a test."""


def _answer(task: SkillTask) -> SkillAnswer:
    calls = [call for message in task.request.messages for call in message.calls]
    given: Sequence[Any] = task.words["candidates"]
    if any(call.name == "submit" for call in calls):
        return SkillAnswer("Done.")
    names = {tool["function"]["name"] for tool in task.request.tools}
    return _write(task, calls, given) if "submit" in names else _mend(task, calls, given)


def _write(task: SkillTask, calls: Sequence[Call], given: Sequence[str]) -> SkillAnswer:
    """Try candidates on the examples until one passes all."""
    tried = len(calls)
    if tried and task.request.messages[-1].content.count("True") == len(_examples(task)):
        return _hand_in(task, given[tried - 1])
    if tried >= min(_PATIENCE, len(given)) or (tried and task.draw.random() < _HASTE):
        return _hand_in(task, given[tried - 1])
    lines = [f"print({example})" for example in _examples(task)]
    text = "\n".join([given[tried], *lines])
    said = "Let me try it on the examples." if not tried else "That is not right yet."
    return SkillAnswer(said, (("run_python", {"code": text}),))


def _hand_in(task: SkillTask, text: str) -> SkillAnswer:
    if task.draw.random() < 0.3:
        return SkillAnswer(f"Here it is.\n```python\n{text}```")
    return SkillAnswer("", (("submit", {"code": text}),))


def _examples(task: SkillTask) -> list[str]:
    return _EXAMPLE.findall(texts_of(task.request.messages, "user")[0])


def _mend(
    task: SkillTask, calls: Sequence[Call], given: Sequence[Mapping[str, str]]
) -> SkillAnswer:
    """Look, change, run the tests; a change that they refuse is taken back."""
    if not calls:
        return SkillAnswer("Let me look.", (("list_files", {}),))
    edits = [json_object(call.arguments) or {} for call in calls if call.name == "edit_file"]
    patches = [dict(patch) for patch in given]
    forward = [edit for edit in edits if edit in patches]
    match calls[-1].name:
        case "run_tests":
            return _after_tests(task, forward, given)
        case "edit_file" if edits[-1] in forward:
            hasty = task.draw.random() < _HASTE
            return (
                SkillAnswer("That should do.") if hasty else SkillAnswer("", (("run_tests", {}),))
            )
        case "read_file":
            return SkillAnswer(
                "I think that it is here.", (("edit_file", dict(given[len(forward)])),)
            )
        case _:
            return SkillAnswer("", (("read_file", {"path": given[len(forward)]["path"]}),))


def _after_tests(
    task: SkillTask, tried: Sequence[Mapping[str, str]], given: Sequence[Mapping[str, str]]
) -> SkillAnswer:
    if "FAILED" not in task.request.messages[-1].content:
        return SkillAnswer("The tests pass.")
    if len(tried) >= min(_PATIENCE, len(given)):
        return SkillAnswer("I leave it at that.")
    back = {**tried[-1], "old": tried[-1]["new"], "new": tried[-1]["old"]}
    return SkillAnswer("The tests fail; I take it back.", (("edit_file", back),))


SKILLS = (
    Skill(
        "program",
        "Hands in one of the `candidates`: texts for a programming task, or patches (`path`, "
        "`old`, `new`) for a repository.",
        _answer,
    ),
)
