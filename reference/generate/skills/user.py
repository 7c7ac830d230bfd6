"""A user in a dialogue with an assistant: says goals in turn, answers questions, ends it."""

from __future__ import annotations

from collections.abc import Mapping

from reference.generate.skill import Answer, Skill, Task

_UNABLE = ("could not", "cannot", "unable", "sorry")
_LOST = "I do not know more than I said. Please go on."
_AGAIN = "Please try once more."
_TWICE = 2


def _answer(task: Task) -> Answer:
    """Roles are turned round: the user of this request is the assistant of the dialogue."""
    words = task.words
    own = [one.content for one in task.request.messages if one.role == "assistant"]
    last = task.text.casefold()
    following = next((one for one in words["goals"] if one not in own), None)
    said = None
    if "?" in last:
        said = _told(last, own, words["slots"])
    elif any(one in last for one in _UNABLE) and words["patient"] and _AGAIN not in own:
        said = _AGAIN
    elif last:
        said = following
    return Answer(str(words["end"]) if said is None else said)


def _told(question: str, own: list[str], slots: Mapping[str, tuple[str, str]]) -> str | None:
    """The values that a question names; nothing where the user has been lost twice."""
    so_far = "\n".join(own)
    asked = [
        text
        for label, text in slots.values()
        if label.casefold() in question and text not in so_far
    ]
    if asked:
        return f"It is {' and '.join(dict.fromkeys(asked))}."
    return _LOST if own.count(_LOST) < _TWICE else None


SKILL = Skill(
    "user",
    "A user: metadata `goals` (what is said in turn), `slots` (label and value of what is answered "
    "when asked), `patient` (asks once more), `end` (what ends the dialogue).",
    _answer,
)
