"""Prompts and answers of known lengths, for measuring: with `rollout.full` an answer is as long as
its kind's cap. Each kind is of one length, `lengths-64` of 64 tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reference.agentic.environment import Once, Verdict
from reference.dialog import Dialog
from reference.rl.tasks import Task


@dataclass(frozen=True, slots=True)
class Write(Once):
    """The answer must have so many characters, and begin with a letter."""

    text: str
    characters: int

    def judge(self, state: None, dialog: Dialog) -> Verdict:
        """By what was written last."""
        del state
        said = dialog.messages[-1].content
        checks = {"length": len(said) >= self.characters, "letter": said[:1].isalpha()}
        return Verdict(checks, tuple(name for name, holds in checks.items() if not holds))


def make(count: int, seed: int, *, prompt: Sequence[int], written: Sequence[int]) -> Sequence[Task]:
    """A task for each pair of a prompt's bytes and of tokens that are written, again from the first
    where `count` is larger."""
    del seed
    pairs = [*zip(prompt, written, strict=True)]
    return [
        Task(f"lengths-{at}", f"lengths-{wanted}", Write("x" * size, wanted))
        for at, (size, wanted) in enumerate(pairs[at % len(pairs)] for at in range(count))
    ]
