"""Write characters of the kind that the user names: learned from random weights, since a tenth of
what those write is right by chance."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reference.agentic.environment import Once, Verdict
from reference.dialog import Dialog
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
class Characters(Once):
    """The first characters of the answer must all be of the kind that the text, a letter, names."""

    text: str

    def judge(self, state: None, dialog: Dialog) -> Verdict:
        """Each character for itself."""
        del state
        text, allowed = dialog.messages[-1].content, KINDS[self.text]
        checks = {f"{at}": text[at : at + 1] in {*allowed} for at in range(LENGTH)}
        return Verdict(checks, () if all(checks.values()) else ("wrong character",))


def make(count: int, seed: int) -> Sequence[Task]:
    """So many tasks, the kinds in turn."""
    kinds = sorted(KINDS)
    return [
        Task(f"characters-{at}", "characters", Characters(kinds[(at + seed) % len(kinds)]))
        for at in range(count)
    ]
