"""SimPy behind one typed class: a clock in integer nanoseconds that calls back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simpy import Environment, Timeout


class Clock(Environment):
    """Simulated time. Simultaneous callbacks run in the order in which they were asked for."""

    def call(self, delay: int, action: Callable[[Any], None], value: object) -> None:
        """Call `action` after `delay` ns with the event, whose `value` is the given one."""
        # SimPy leaves the type of its callbacks' event open; a new event always has a list of them.
        Timeout(self, delay, value).callbacks.append(action)  # pyright: ignore[reportUnknownMemberType, reportOptionalMemberAccess]

    @property
    def nanoseconds(self) -> int:
        """Now."""
        return self._now  # pyright: ignore[reportReturnType] (every delay is a whole number)
