"""One engine on the clock: who decodes, who joins, who is done.

All groups of an engine step together, since their experts do. Between two changes of who decodes,
any number of steps is one event; a request that comes meanwhile joins when the step under way
ends. Those that join are prefilled together, in a step of those who write where there are any; what
that adds to the step is `prefill`. Room is given for what a request will need in the end, in the
order of arrival, so that nobody is ever thrown out: real engines do not know that, admit more, and
make caches again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TypeAlias

from simpy import Environment, Event

from twin.kinds.rollouts.pace import StepTable
from twin.kinds.rollouts.types import Spent

Events: TypeAlias = Generator[Event, object, None]


@dataclass(slots=True, eq=False)
class Work:
    """A turn of a request on an engine: tokens to prefill, tokens cached before them, tokens to
    write; `written` counts those that are."""

    number: int
    new: int
    cached: int
    to_write: int
    written: int = 0
    begun: int = 0
    """The engine's step at which it began to write."""


@dataclass(slots=True, eq=False)
class PlayedEngine:
    """An engine under way. `ended` is told of every turn that is written to its end."""

    env: Environment
    table: StepTable
    ended: Callable[[PlayedEngine, Work], None]
    free_tokens: int
    free_sequences: int
    joining: deque[Work] = field(default_factory=deque[Work])
    finishing: list[tuple[int, int, Work]] = field(default_factory=list[tuple[int, int, Work]])
    """Those that decode: the step at which they end, their number."""
    step: int = 0
    cached: int = 0
    """Tokens in the caches of those that decode."""
    spent: dict[Spent, int] = field(default_factory=lambda: {"decode": 0, "prefill": 0, "idle": 0})
    prefilled: int = 0
    events: int = 0
    idles: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """When it had nothing to do, from and to."""
    stopping: bool = False
    woken: Event | None = None

    @property
    def running(self) -> int:
        """Requests that decode."""
        return len(self.finishing)

    def put(self, work: Work) -> None:
        """A turn that has room here joins."""
        self.joining.append(work)
        self.wake()

    def wake(self) -> None:
        """Something has changed."""
        if self.woken is not None and not self.woken.triggered:
            self.woken.succeed()

    def live(self) -> Events:
        """Step until it is told to stop; then put down all that was under way."""
        while not self.stopping:
            if self.joining:
                yield from self._prefill()
            elif self.finishing:
                yield from self._decode()
            else:
                yield from self._wait()

    def halt(self) -> list[Work]:
        """Put down all that is under way, each with what it has written."""
        left = [*self.joining, *(work for _, _, work in self.finishing)]
        for _, _, work in self.finishing:
            work.written = self.step - work.begun
        self.joining.clear()
        self.finishing.clear()
        self.cached = 0
        return left

    def _wait(self) -> Events:
        begin, self.woken = self.env.now, self.env.event()
        yield self.woken
        self.spent["idle"] += int(self.env.now - begin)
        self.idles.append((int(begin), int(self.env.now)))

    def _prefill(self) -> Events:
        works = [*self.joining]
        self.joining.clear()
        new, cached = sum(one.new for one in works), sum(one.cached for one in works)
        shared = bool(self.finishing)
        seconds = self.table.prefill(len(works), new, cached, shared=shared) if new else 0.0
        ns = round(1e9 * seconds)
        self.events += 1
        yield self.env.timeout(ns)
        self.spent["prefill"] += ns
        self.prefilled += new
        for work in works:
            work.begun = self.step
            self.cached += work.new + work.cached
            heappush(self.finishing, (self.step + work.to_write, work.number, work))

    def _decode(self) -> Events:
        """To the next turn that ends, or to the end of the step in which something changes."""
        steps, running = self.finishing[0][0] - self.step, self.running
        whole = self._ns(steps)
        begin, self.woken = int(self.env.now), self.env.event()
        timeout = self.env.timeout(whole)
        self.events += 1
        yield timeout | self.woken
        now = int(self.env.now)
        if now < begin + whole:
            # The step under way ends first.
            steps = min(steps, self.table.steps(running, self.cached, (now - begin) / 1e9))
            whole = max(now - begin, self._ns(steps))
            yield self.env.timeout(begin + whole - now)
        self.spent["decode"] += whole
        self.step += steps
        self.cached += steps * running
        while self.finishing and self.finishing[0][0] <= self.step:
            work = heappop(self.finishing)[2]
            work.written = work.to_write
            self.cached -= work.new + work.cached + work.written
            self.ended(self, work)

    def _ns(self, steps: int) -> int:
        return max(1, round(1e9 * self.table.seconds(self.running, self.cached, steps)))
