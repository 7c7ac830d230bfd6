"""Prompts that no program can verify: what an answer is worth a critic says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reference.agentic.chance import drawn
from reference.agentic.environment import Once, Verdict
from reference.dialog import Dialog
from reference.rl.tasks import Task

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


def make(count: int, seed: int) -> Sequence[Task]:
    """So many prompts; the tag `poem` or `advice` names a rubric of the task."""
    found: list[Task] = []
    for at in range(count):
        draw = drawn("open", seed, at)
        kind = draw.choice(sorted(_ASKS))
        text = _ASKS[kind].format(thing=draw.choice(_THINGS))
        found.append(Task(f"open-{at}", "open", Open(text), tags=(kind,), verifiable=False))
    return found
