"""Data sets of reasoning-gym (github.com/open-thought/reasoning-gym, Apache-2.0), each a maker of
tasks with a scorer of its own; the package is optional (`pip install 'twin[gym]'`).

Right is what its scorer gives 1 for, and is not much longer than its own answer: some scorers look
for the answer anywhere in a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from reference.agentic.chance import drawn
from reference.rl.gym.environments import Check, Item, question_item, texts
from twin.errors import Problem, UsageError


def make(level: int, seed: int) -> Item:
    """The item of a level and a seed."""
    sets = texts("reasoning")["sets"][level - 1]
    name = drawn("reasoning", level, seed).choice(sorted(sets))
    given = _package().create_dataset(name, size=1, seed=seed, **sets[name])
    entry = given[0]
    answer = str(entry["answer"])
    hacks = {
        "many numbers": " ".join(map(str, range(-20, 100))),
        "the answer among others": f"0 1 2 {answer} or not, who knows, take any of these that fits",
    }
    return question_item(entry["question"], _check(given, entry, answer), answer, (name,), hacks)


def _check(given: Any, entry: Mapping[str, Any], answer: str) -> Check:
    def judge(text: str) -> Mapping[str, bool]:
        short = len(text) <= 2 * len(answer) + 16
        return {"right": short and given.score_answer(text, entry) >= 1.0}

    return judge


def _package() -> Any:
    try:
        return import_module("reasoning_gym")
    except ImportError:
        message = "the family `reasoning` needs the package reasoning-gym"
        fix = "`pip install reasoning-gym`, or take the other families"
        raise UsageError([Problem("TW651", "tasks.source", message, fix)]) from None
