"""SimPy behind one typed class: a clock in integer nanoseconds that calls back."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from simpy import Environment, Event
from simpy.events import NORMAL


class Clock(Environment):
    """Simulated time. Simultaneous callbacks run in the order in which they were asked for."""

    def call(self, delay: int, action: Callable[[Any], None], value: object) -> None:
        """Call `action` after `delay` ns with the event, whose `value` is the given one."""
        # `schedule`, written out: it runs for every event.
        event = _Call(self, action, value)
        heappush(self._queue, (self._now + delay, NORMAL, next(self._eid), event))

    @property
    def nanoseconds(self) -> int:
        """Now."""
        return self._now  # pyright: ignore[reportReturnType] (every delay is a whole number)

    def play(self) -> None:
        """`run` until nothing is left, without what it checks after each event: no event here
        fails, and none is waited for. A tenth of a step's time."""
        queue = self._queue
        while queue:
            self._now, _, _, event = heappop(queue)
            for action in event.callbacks or ():  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
                action(event)


class _Call(Event):
    """An event that has happened, with its one callback; made with half the work of a `Timeout`."""

    def __init__(self, clock: Clock, action: Callable[[Any], None], value: object) -> None:
        self.env = clock
        self.callbacks = [action]
        self._value, self._ok = value, True
