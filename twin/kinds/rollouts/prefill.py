"""Engines that only prefill, on the clock, and the way of caches to engines that write.

Prompts wait in one queue, in the order in which they came, of as many as one pass of each engine
takes; those before it wait without room where they will be written. An engine that is free takes as
many as one pass has tokens for (one at least). Behind the pass, each prompt's cache leaves the
group that made it for a group of the engine that gave it room: over NICs, one cache after another
out of a group and into a group (Qin et al., Mooncake, arXiv:2407.00079, section 5, and Zhong et
al., DistServe, arXiv:2401.09670, section 4.3, move caches so). A cache is sent whole once its pass
has ended; engines that send layer by layer hide a part of that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from math import log2
from typing import Any, Final, TypeAlias

from simpy import Environment, Event

from twin.inference.curve import cache_moves, prompt_seconds
from twin.inference.engine import Engine
from twin.kinds.rollouts.engine import PlayedEngine

Events: TypeAlias = Generator[Event, object, None]
_EXACT: Final = 64
"""Tokens up to which lengths are not rounded."""


@dataclass(frozen=True, slots=True, eq=False)
class Prefills:
    """The engines that prefill: how many, one of them, and seconds in which a cache moves: `start`,
    and `each` for a token."""

    engines: int
    server: Engine
    start: float
    each: float
    known: dict[tuple[int, int, int], float] = field(default_factory=dict[Any, float], repr=False)

    @property
    def gpus(self) -> int:
        """Of all engines."""
        return self.engines * self.server.spec.gpus

    def seconds(self, prompts: Sequence[Prompt]) -> float:
        """Seconds of a pass; the group with most prompts decides. Their mean length is rounded to
        3 %, so that not every pass is priced anew."""
        count = -(-len(prompts) // self.server.groups)
        new, cached = (_round(sum(one) / len(prompts)) for one in _lengths(prompts))
        key = count, new, cached
        if key not in self.known:
            self.known[key] = prompt_seconds(self.server, count, new, cached)
        return self.known[key]


def _lengths(prompts: Sequence[Prompt]) -> tuple[list[int], list[int]]:
    return [one.new for one in prompts], [one.cached for one in prompts]


def _round(tokens: float) -> int:
    """To one of the 23 sizes of each octave; small numbers as they are."""
    return round(2 ** (round(23 * log2(tokens)) / 23)) if tokens > _EXACT else round(tokens)


def prefills(server: Engine, writer: Engine, engines: int) -> Prefills:
    """So many engines of one kind, whose caches go to engines of another."""
    near, far = (cache_moves(server, tokens, writer) for tokens in (1, 100_001))
    each = (far - near) / 100_000
    return Prefills(engines, server, near - each, each)


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """Tokens to prefill for an engine that has room for them, behind `cached` ones that both sides
    have; `filled` is told when their pass has ended, `arrived` when their cache is there."""

    new: int
    cached: int
    writer: PlayedEngine
    filled: Callable[[], None]
    arrived: Callable[[], None]


@dataclass(slots=True, eq=False)
class PrefillPool:
    """Engines that prefill, under way."""

    env: Environment
    own: Prefills
    taken: Callable[[], None]
    """Told whenever prompts leave the queue."""
    queue: deque[Prompt] = field(default_factory=deque[Prompt])
    busy_ns: int = 0
    prefilled: int = 0
    moving_ns: int = 0
    """Of all caches, from the end of their pass to their arrival."""
    _idle: deque[Event] = field(default_factory=deque[Event])
    _into: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    """When a group of an engine that writes is free again."""
    _turn: int = 0

    @property
    def full(self) -> bool:
        """Whether a pass of every engine is waiting: room for further prompts would lie idle."""
        server = self.own.server
        waiting = sum(one.new for one in self.queue)
        return waiting >= self.own.engines * server.groups * server.spec.chunk

    def begin(self) -> None:
        """Start all engines."""
        for _ in range(self.own.engines):
            self.env.process(self._live())

    def put(self, prompt: Prompt) -> None:
        """A prompt comes."""
        self.queue.append(prompt)
        if self._idle:
            self._idle.popleft().succeed()

    def _live(self) -> Events:
        out = [0] * self.own.server.groups
        while True:
            while not self.queue:
                self._idle.append(self.env.event())
                yield self._idle[-1]
            taken = self._taken()
            self.taken()
            ns = round(1e9 * self.own.seconds(taken))
            yield self.env.timeout(ns)
            self.busy_ns += ns
            self.prefilled += sum(one.new for one in taken)
            for at, one in enumerate(taken):
                one.filled()
                self.env.process(self._moved(one, out, at % len(out)))

    def _taken(self) -> list[Prompt]:
        """Prompts of one pass: the group with most of them has at most as many tokens as it may."""
        taken = [self.queue.popleft()]
        tokens, server = taken[0].new, self.own.server
        while self.queue:
            count, more = len(taken) + 1, tokens + self.queue[0].new
            if -(-count // server.groups) * more > server.spec.chunk * count:
                break
            taken.append(self.queue.popleft())
            tokens = more
        return taken

    def _moved(self, one: Prompt, out: list[int], group: int) -> Events:
        """The cache on its way, once both groups have sent and got those before it."""
        self._turn += 1
        into = id(one.writer), self._turn % one.writer.table.groups
        now = int(self.env.now)
        begin = max(now, out[group], self._into.get(into, 0))
        end = begin + round(1e9 * (self.own.start + self.own.each * one.new))
        out[group] = self._into[into] = end
        self.moving_ns += end - now
        yield self.env.timeout(end - now)
        one.arrived()
