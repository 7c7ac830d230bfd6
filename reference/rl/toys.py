"""Small sources of tasks.

`characters`    write characters of the kind that the user names: learned from random weights, since
                a tenth of their characters is right by chance
`lengths`       prompts and answers of known lengths, for measuring: with `rollout.full` an answer
is
                as long as its kind's cap; each kind has one length, `lengths-64` of 64 tokens
`sums`          reach a number by calls of one tool, then say so: several turns, a changing world
`open_prompts`  prompts that no program can verify: a critic ranks the answers
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reference.agentic.chance import drawn
from reference.agentic.environment import Once, Verdict
from reference.dialog import Call, Dialog, Message, declared
from reference.rl.tasks import RlTask

CHARACTERS: Final[Mapping[str, str]] = {
    "d": string.digits + string.punctuation,
    "l": string.ascii_lowercase,
    "u": string.ascii_uppercase,
}
"""Allowed characters, by the user's letter."""
LENGTH: Final = 8
"""Characters that are judged."""


@dataclass(frozen=True, slots=True)
class Characters(Once):
    """The first characters of the answer must all be of the kind that the text, a letter, names."""

    text: str

    def judge(self, state: None, dialog: Dialog) -> Verdict:
        """Each character for itself."""
        del state
        text, allowed = dialog.messages[-1].content, CHARACTERS[self.text]
        checks = {f"{at}": text[at : at + 1] in {*allowed} for at in range(LENGTH)}
        return Verdict(checks, () if all(checks.values()) else ("wrong character",))


def characters(count: int, seed: int) -> Sequence[RlTask]:
    """Tasks of all kinds in turn."""
    kinds = sorted(CHARACTERS)
    return [
        RlTask(f"characters-{at}", "characters", Characters(kinds[(at + seed) % len(kinds)]))
        for at in range(count)
    ]


@dataclass(frozen=True, slots=True)
class Write(Once):
    """The answer must have so many characters, and begin with a letter."""

    text: str
    characters: int

    def judge(self, state: None, dialog: Dialog) -> Verdict:
        """By the last message."""
        del state
        said = dialog.messages[-1].content
        checks = {"length": len(said) >= self.characters, "letter": said[:1].isalpha()}
        return Verdict(checks, tuple(name for name, holds in checks.items() if not holds))


def lengths(
    count: int, seed: int, *, prompt: Sequence[int], written: Sequence[int]
) -> Sequence[RlTask]:
    """A task for each pair of a prompt's bytes and of tokens that are written, again from the first
    where `count` is larger."""
    del seed
    pairs = [*zip(prompt, written, strict=True)]
    return [
        RlTask(f"lengths-{at}", f"lengths-{wanted}", Write("x" * size, wanted))
        for at, (size, wanted) in enumerate(pairs[at % len(pairs)] for at in range(count))
    ]


_ADD = declared(
    "add",
    "Adds to the number.",
    {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    },
)


@dataclass(frozen=True, slots=True)
class Sums:
    """A number that begins at 0; the user wants another, and asks once more if it is not that."""

    goal: int

    @property
    def opening(self) -> Dialog:
        """The goal."""
        return Dialog((Message("user", f"make {self.goal}"),), (_ADD,))

    def start(self) -> int:
        """The number."""
        return 0

    def call(self, state: int, call: Call) -> tuple[int, str]:
        """The number afterwards."""
        try:
            step = json.loads(call.arguments)["n"]
        except (ValueError, TypeError, KeyError):
            return state, "n is missing"
        if call.name != "add" or type(step) is not int or abs(step) > 9:
            return state, "only add, up to 9"
        return state + step, str(state + step)

    def reply(self, state: int, dialog: Dialog) -> str | None:
        """Reminds once."""
        reminded = sum(message.role == "user" for message in dialog.messages) > 1
        return None if state == self.goal or reminded else "not yet"

    def judge(self, state: int, dialog: Dialog) -> Verdict:
        """By the number."""
        del dialog
        right = state == self.goal
        return Verdict({"number": right}, () if right else ("another number",))


def sums(count: int, seed: int) -> Sequence[RlTask]:
    """Goals of one to 20."""
    chance = random.Random(seed)
    return [RlTask(f"sums-{at}", "sums", Sums(chance.randint(1, 20))) for at in range(count)]


_THINGS: Final = ("rain", "bread", "the sea", "tea", "winter", "a garden")
_ASKS: Final = {
    "poem": "two lines about {thing}",
    "advice": "one tip about {thing}",
    "plain": "say something about {thing}",
}


@dataclass(frozen=True, slots=True)
class Open(Once):
    """A prompt with one answer, of which only is known whether there is one."""

    text: str

    def judge(self, state: None, dialog: Dialog) -> Verdict:
        """Whether anything was said."""
        del state
        answered = bool(dialog.messages[-1].content.strip())
        return Verdict({"answered": answered}, () if answered else ("no answer",))


def open_prompts(count: int, seed: int) -> Sequence[RlTask]:
    """Prompts; the tag `poem` or `advice` names a rubric of the task."""
    found: list[RlTask] = []
    for at in range(count):
        draw = drawn("open", seed, at)
        kind = draw.choice(sorted(_ASKS))
        text = _ASKS[kind].format(thing=draw.choice(_THINGS))
        found.append(RlTask(f"open-{at}", "open", Open(text), tags=(kind,), verifiable=False))
    return found
