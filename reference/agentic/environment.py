"""The contract of a task's world, for synthesis, evaluation and reinforcement learning.

The state of a world is a value: a call returns another state, so a dialogue can be paused, resumed,
replayed or branched by keeping the state. Random events come from the task's seed and the state:
equal calls on equal states give equal results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from reference.dialog import Call, Dialog, Message

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Verdict:
    """How well a dialogue did its task: by the world's end state and by what was said."""

    checks: Mapping[str, bool]
    """Criteria by name; all must hold."""
    causes: tuple[str, ...] = field(default=())
    """Why it failed, from a fixed list of the environment; empty on success."""

    @property
    def success(self) -> bool:
        """Whether there are criteria and all of them hold."""
        return bool(self.checks) and all(self.checks.values())

    @property
    def score(self) -> float:
        """Share of the criteria that hold; 0 without criteria."""
        return sum(self.checks.values()) / len(self.checks) if self.checks else 0.0


class Environment(Protocol[State]):
    """A task with its tools. Thread-safe: it has no state of its own."""

    @property
    def opening(self) -> Dialog:
        """The start of the dialogue: system message, first user message, tools."""
        ...

    def start(self) -> State:
        """The world before the first call."""
        ...

    def call(self, state: State, call: Call) -> tuple[State, str]:
        """The world after a call, and the result that the model reads; also for wrong calls."""
        ...

    def reply(self, state: State, dialog: Dialog) -> str | None:
        """The user's answer to an assistant message without calls; None ends the dialogue."""
        ...

    def judge(self, state: State, dialog: Dialog) -> Verdict:
        """The verdict on the whole dialogue: the end state first, then what was said."""
        ...


class Talk:
    """An environment without tools and state."""

    __slots__ = ()

    def start(self) -> Any:
        """No state."""
        return None

    def call(self, state: State, call: Call) -> tuple[State, str]:
        """An error: there are no tools."""
        return state, f"there is no tool `{call.name}`"


class Once(Talk):
    """One user message and one assistant message; no system message, which saves context."""

    __slots__ = ()
    text: str
    """The user message."""

    @property
    def opening(self) -> Dialog:
        """The user message alone."""
        return Dialog((Message("user", self.text),))

    def reply(self, state: Any, dialog: Dialog) -> str | None:
        """None: the first answer ends the dialogue."""
        del state, dialog
        return None
