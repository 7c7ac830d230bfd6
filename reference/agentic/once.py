"""Environments of words alone: nothing can be called, so that no world changes."""

from __future__ import annotations

from typing import Any, TypeVar

from reference.dialog import Call, Dialog, Message

State = TypeVar("State")


class Talk:
    """Nothing but what is said."""

    __slots__ = ()

    def start(self) -> Any:
        """There is no world."""
        return None

    def call(self, state: State, call: Call) -> tuple[State, str]:
        """There is nothing to call."""
        return state, f"there is no tool `{call.name}`"


class Once(Talk):
    """One message of the user, one of the assistant; no system message, so that small contexts
    have room."""

    __slots__ = ()
    text: str
    """What the user says."""

    @property
    def opening(self) -> Dialog:
        """The message alone."""
        return Dialog((Message("user", self.text),))

    def reply(self, state: Any, dialog: Dialog) -> str | None:
        """One answer is enough."""
        del state, dialog
        return None
