"""SimPy behind one typed class: a clock in integer nanoseconds that calls back.

SimPy's environment keeps the time and the queue, in its order: by time, and of one instant in the
order in which calls were asked for. What is queued is a plain callback and its argument instead of
an event object, and the loop is `Environment.run` without what it checks for events that fail or
are waited for, of which there are none: a sixth of a step's time.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, TypeVar

from simpy import Environment

T = TypeVar("T")


class Clock(Environment):
    """Simulated time. Simultaneous calls come in the order in which they were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.nanoseconds = 0
        """Now."""
        self._calls: Any = self._queue
        self._number = 0

    def call(self, delay: int, action: Callable[[T], None], value: T) -> None:
        """Call `action` with `value` after `delay` ns."""
        self._number += 1
        heappush(self._calls, (self.nanoseconds + delay, self._number, action, value))

    def play(self) -> None:
        """Go on until nothing is left to happen."""
        calls = self._calls
        while calls:
            self.nanoseconds, _, action, value = heappop(calls)
            self._now = self.nanoseconds
            action(value)
