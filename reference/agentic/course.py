"""A dialogue that goes on: what the assistant's last message does to the world, and is told."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from reference.agentic.environment import Environment
from reference.dialog import Dialog, Message

State = TypeVar("State")


@dataclass(slots=True)
class Course(Generic[State]):
    """An environment, its world as it is now, and what was said. An error of the environment
    leaves it as far as it came."""

    environment: Environment[State]
    state: State
    dialog: Dialog

    def say(self, message: Message) -> None:
        """Add a message."""
        self.dialog = replace(self.dialog, messages=(*self.dialog.messages, message))

    def hear(self, most: int | None = None) -> bool:
        """Add what the assistant's last message is told: the results of its calls, of the first
        `most` of them, or the user's words. Whether the user ended it instead."""
        calls = self.dialog.messages[-1].calls
        for call in calls[:most]:
            self.state, told = self.environment.call(self.state, call)
            self.say(Message("tool", told, answers=call.id))
        if calls:
            return False
        words = self.environment.reply(self.state, self.dialog)
        if words is not None:
            self.say(Message("user", words))
        return words is None
