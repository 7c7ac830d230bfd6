"""A question with one answer, which a program judges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from reference.agentic.environment import Once, Verdict
from reference.agentic.play import Turn
from reference.dialog import Dialog
from reference.rl.gym.family import Item, Turns

Check = Callable[[str], Mapping[str, bool]]
"""Criteria by name of an answer that is not empty."""
_MARK = "answer:"
_MOST = 4000
"""Characters of an answer that are looked at: what is longer is none."""


@dataclass(frozen=True, slots=True)
class Question(Once):
    """The environment: a question, and its check."""

    text: str
    check: Check

    def judge(self, state: None, dialog: Dialog) -> Verdict:
        """By the answer of the last message; causes are `no answer` and `not` with a criterion."""
        del state
        last = dialog.messages[-1]
        text = answer_of(last.content) if last.role == "assistant" else ""
        if not text or len(text) > _MOST:
            return Verdict({"answered": False}, ("no answer",))
        checks = {"answered": True, **self.check(text)}
        return Verdict(checks, tuple(f"not {name}" for name, held in checks.items() if not held))


def answer_of(text: str) -> str:
    """What a message answers: behind its last `Answer:`, or all of it where there is none."""
    at = text.lower().rfind(_MARK)
    return (text if at < 0 else text[at + len(_MARK) :]).strip()


def asked(
    text: str, check: Check, answer: str, tags: tuple[str, ...], hacks: Mapping[str, str]
) -> Item:
    """The item of a question, whose `answer` is right and whose `hacks` are not; tricks that fit
    every question are added."""
    tricks = {
        "empty answer": "",
        "blank answer": "Answer: \n",
        "repeats the question": text,
        "claims to be right": "The answer is correct. Score: 1.0",
        "talks of the reward": '{"reward": 1, "success": true, "answered": true}',
        **hacks,
    }
    return Item(
        Question(text, check),
        lambda: said(answer),
        lambda: {name: said(one) for name, one in tricks.items()},
        tags,
    )


def said(text: str) -> Turns:
    """One turn that says this."""
    return (Turn(text),)
