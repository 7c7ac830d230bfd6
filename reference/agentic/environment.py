"""One task's world: what synthesis, evaluation and reinforcement learning play in.

The state of a world is a value: a call gives another one, so that a dialogue is paused, gone on
with, replayed or branched by keeping it. Chance inside a world comes from its task's seed and the
state, never from outside: equal calls on equal states give equal answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from reference.dialog import Call, Dialog

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a dialogue did its task: by what the world became, and what was said."""

    checks: Mapping[str, bool]
    """Criteria by name; all must hold."""
    causes: tuple[str, ...] = field(default=())
    """Why it failed, one phrase each, from a fixed list of the environment; none on success."""

    @property
    def success(self) -> bool:
        """Whether every criterion holds, and there is one."""
        return bool(self.checks) and all(self.checks.values())

    @property
    def score(self) -> float:
        """Share of the criteria that hold; 0 without any."""
        return sum(self.checks.values()) / len(self.checks) if self.checks else 0.0


class Environment(Protocol[State]):
    """A task with its tools. Safe to use from several threads: it holds no state of its own."""

    @property
    def opening(self) -> Dialog:
        """What the model is told first: system message, the user's first turn, the tools."""
        ...

    def start(self) -> State:
        """The world before the first call."""
        ...

    def call(self, state: State, call: Call) -> tuple[State, str]:
        """The world after a call, and what the model is told of it; wrong calls are told, too."""
        ...

    def reply(self, state: State, dialog: Dialog) -> str | None:
        """What the user says to the assistant's last message, which called nothing; None where
        the dialogue is over. Only the user ends a dialogue, or its budget of steps."""
        ...

    def judge(self, state: State, dialog: Dialog) -> Verdict:
        """How the whole dialogue did: the world's end state first, then what was said."""
        ...
