"""Small skills: an echo, a judge of a dialogue by its rubric, and a user of an assistant."""

from __future__ import annotations

import json
from collections.abc import Mapping

from reference.dialog import texts_of
from reference.generate.rules import Skill, SkillAnswer, SkillTask

_UNABLE = ("could not", "cannot", "unable", "sorry")
_LOST = "I do not know more than I said. Please go on."
_AGAIN = "Please try once more."
_TWICE = 2


def _echo(task: SkillTask) -> SkillAnswer:
    return SkillAnswer(task.text)


def _judge(task: SkillTask) -> SkillAnswer:
    """The share of the expected tools that were called, in order, times how few others were."""
    wanted, called = list(task.words["wanted"]), list(task.words["called"])
    at = 0
    for name in called:
        if at < len(wanted) and name == wanted[at]:
            at += 1
    reached = at / len(wanted) if wanted else 1.0
    direct = min(1.0, len(wanted) / len(called)) if called else 1.0
    score = round(0.7 * reached + 0.3 * direct, 3)
    return SkillAnswer(json.dumps({"score": score}))


def _user(task: SkillTask) -> SkillAnswer:
    """Roles are exchanged: the user of this request is the assistant of the dialogue."""
    words = task.words
    own = texts_of(task.request.messages, "assistant")
    last = task.text.casefold()
    following = next((goal for goal in words["goals"] if goal not in own), None)
    said = None
    if "?" in last:
        said = _told(last, own, words["slots"])
    elif any(word in last for word in _UNABLE) and words["patient"] and _AGAIN not in own:
        said = _AGAIN
    elif last:
        said = following
    return SkillAnswer(str(words["end"]) if said is None else said)


def _told(question: str, own: list[str], slots: Mapping[str, tuple[str, str]]) -> str | None:
    """The values that a question names; None if the user was lost twice."""
    so_far = "\n".join(own)
    asked = [
        text
        for label, text in slots.values()
        if label.casefold() in question and text not in so_far
    ]
    if asked:
        return f"It is {' and '.join(dict.fromkeys(asked))}."
    return _LOST if own.count(_LOST) < _TWICE else None


SKILLS = (
    Skill("echo", "The user's last turn, unchanged.", _echo),
    Skill(
        "judge",
        "A score of 0 to 1 as JSON: metadata `wanted` (expected tools in order) and `called`.",
        _judge,
    ),
    Skill(
        "user",
        "A user: metadata `goals` (messages in turn), `slots` (label and value of answers to "
        "questions), `patient` (asks once more), `end` (ends the dialogue).",
        _user,
    ),
)
