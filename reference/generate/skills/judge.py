"""A judge of a dialogue by its rubric: how much of it was reached, and how directly."""

from __future__ import annotations

import json

from reference.generate.skill import Answer, Skill, Task


def _answer(task: Task) -> Answer:
    """The share of the expected tools that were called, in order, times how few others were."""
    wanted, called = list(task.words["wanted"]), list(task.words["called"])
    at = 0
    for name in called:
        if at < len(wanted) and name == wanted[at]:
            at += 1
    reached = at / len(wanted) if wanted else 1.0
    direct = min(1.0, len(wanted) / len(called)) if called else 1.0
    score = round(0.7 * reached + 0.3 * direct, 3)
    return Answer(json.dumps({"score": score}))


SKILL = Skill(
    "judge",
    "A score of 0 to 1 as JSON: metadata `wanted` (tools of the rubric, in order) and `called`.",
    _answer,
)
