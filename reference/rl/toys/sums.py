"""Reach a number by calls of one tool, then say so: several turns, a world that changes."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

from reference.agentic.environment import Verdict
from reference.dialog import Call, Dialog, Message, declared
from reference.rl.tasks import Task

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
        """What is wanted."""
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
        reminded = sum(one.role == "user" for one in dialog.messages) > 1
        return None if state == self.goal or reminded else "not yet"

    def judge(self, state: int, dialog: Dialog) -> Verdict:
        """By the number."""
        del dialog
        right = state == self.goal
        return Verdict({"number": right}, () if right else ("another number",))


def make(count: int, seed: int) -> Sequence[Task]:
    """Goals of one to 20."""
    chance = random.Random(seed)
    return [Task(f"sums-{at}", "sums", Sums(chance.randint(1, 20))) for at in range(count)]
