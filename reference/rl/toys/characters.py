"""Write characters of the kind that the user names: learned from random weights, since a tenth of
what those write is right by chance."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reference.agentic.environment import Verdict
from reference.dialog import Call, Dialog, Message
from reference.rl.tasks import Task

KINDS: Final[Mapping[str, str]] = {
    "d": string.digits + string.punctuation,
    "l": string.ascii_lowercase,
    "u": string.ascii_uppercase,
}
"""What may be written, by what the user says."""
LENGTH: Final = 8
"""Characters that are looked at."""


@dataclass(frozen=True, slots=True)
class Characters:
    """The first characters of the answer must all be of a kind."""

    kind: str

    @property
    def opening(self) -> Dialog:
        """One letter."""
        return Dialog((Message("user", self.kind),))

    def start(self) -> None:
        """There is no world."""

    def call(self, state: None, call: Call) -> tuple[None, str]:
        """There is nothing to call."""
        return state, f"there is no tool `{call.name}`"

    def reply(self, state: None, dialog: Dialog) -> str | None:
        """One answer is enough."""
        del state, dialog
        return None

    def judge(self, state: None, dialog: Dialog) -> Verdict:
        """Each character for itself."""
        del state
        text, allowed = dialog.messages[-1].content, KINDS[self.kind]
        checks = {f"{at}": text[at : at + 1] in {*allowed} for at in range(LENGTH)}
        return Verdict(checks, () if all(checks.values()) else ("wrong character",))


def make(count: int, seed: int) -> Sequence[Task]:
    """So many tasks, the kinds in turn."""
    kinds = sorted(KINDS)
    return [
        Task(f"characters-{at}", "characters", Characters(kinds[(at + seed) % len(kinds)]))
        for at in range(count)
    ]
