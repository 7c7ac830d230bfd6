"""A world with some of its tools, told in fewer words: what small contexts have room for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reference.agentic.environment import Environment, Verdict
from reference.dialog import Call, Dialog, Message


@dataclass(frozen=True, slots=True)
class Narrow:
    """Another environment behind another opening."""

    world: Environment[Any]
    tools: tuple[str, ...]
    """The names of those that are left."""
    said: str = ""
    """The user's first turn; empty: the world's own, without its system message."""

    @property
    def opening(self) -> Dialog:
        """What is to be done, and these tools alone."""
        told = self.world.opening
        kept = tuple(one for one in told.tools if one["function"]["name"] in self.tools)
        return Dialog((Message("user", self.said or told.messages[-1].content),), kept)

    def start(self) -> Any:
        """As the world does."""
        return self.world.start()

    def call(self, state: Any, call: Call) -> tuple[Any, str]:
        """As the world does; other tools are not there."""
        if call.name not in self.tools:
            return state, f"Error: there is no tool {call.name}; there are: {', '.join(self.tools)}"
        return self.world.call(state, call)

    def reply(self, state: Any, dialog: Dialog) -> str | None:
        """As the world does."""
        return self.world.reply(state, dialog)

    def judge(self, state: Any, dialog: Dialog) -> Verdict:
        """As the world does."""
        return self.world.judge(state, dialog)
