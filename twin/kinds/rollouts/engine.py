"""One engine on the clock: who decodes, who joins, who is done.

All groups of an engine step together, since their experts do. Between two changes of who decodes,
any number of steps is one event; a request that comes meanwhile joins when the step under way
ends. Those that join are prefilled together, in a step of those who write where there are any; what
that adds to the step is `prefill`. Room is given in the order of arrival, for what a request will
need in the end; or, where the engine has a `limit`, for what it has now: once caches have grown to
the limit, the request that joined last is put back, and its cache is made again when it returns.

Seconds of many steps at once, for a batch that stays the same while its contexts grow.

With a fixed batch a step's seconds are two straight lines in the cached tokens, of which the higher
counts: below, the all-to-all of one half hides the kernels of the other; above, kernels decide. So
n steps, each with one more token per sequence, sum up in closed form, and how many steps fit into a
time is the root of a quadratic. The lines are measured on `twin.inference` at few batches, and lie
evenly between. Breaks by less than 2 % where the arithmetic of attention takes over from its memory
(tests/kinds/rollouts/test_rollout_pace.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import ceil, sqrt
from typing import Final, Literal, TypeAlias

from simpy import Environment, Event

from twin.arch.remembered import remembered
from twin.inference.engine import Engine
from twin.inference.host import sequence_seconds
from twin.inference.seconds import decode_pass, prefill_pass

Events: TypeAlias = Generator[Event, object, None]
Spent = Literal["decode", "prefill", "idle"]


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
    begun_ns: int = 0


@dataclass(slots=True, eq=False)
class PlayedEngine:
    """An engine under way. `ended` is told of every turn that is written to its end."""

    env: Environment
    table: StepTable
    ended: Callable[[PlayedEngine, Work], None]
    free_tokens: int
    free_sequences: int
    limit: int | None = None
    """Tokens at which the last to join is put back; None: each has room to its end."""
    most: int | None = None
    """Requests that decode at a time; None: all that have room."""
    evicted: Callable[[PlayedEngine, Work], None] | None = None
    """Told of each that is put back."""
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

    def room_for(self, now: int, whole: int) -> bool:
        """Whether a request of so many tokens, `whole` in the end, may join."""
        if self.limit is None:
            return self.free_tokens >= whole
        coming = sum(one.new + one.cached for one in self.joining)
        return self.limit - self.cached - coming > now

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
            if self.joining and (self.most is None or self.running < self.most):
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
        slots = len(self.joining) if self.most is None else self.most - self.running
        works = [self.joining.popleft() for _ in range(min(slots, len(self.joining)))]
        new, cached = sum(one.new for one in works), sum(one.cached for one in works)
        shared = bool(self.finishing)
        seconds = self.table.prefill(len(works), new, cached, shared=shared) if new else 0.0
        ns = round(1e9 * seconds)
        self.events += 1
        yield self.env.timeout(ns)
        self.spent["prefill"] += ns
        self.prefilled += new
        for work in works:
            work.begun, work.begun_ns = self.step, int(self.env.now)
            self.cached += work.new + work.cached
            heappush(self.finishing, (self.step + work.to_write, work.number, work))

    def _decode(self) -> Events:
        """To the next turn that ends, or to the end of the step in which something changes."""
        self._make_room()
        steps, running = self.finishing[0][0] - self.step, self.running
        if self.limit is not None and running > 1:
            steps = min(steps, (self.limit - self.cached) // running)
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

    def _make_room(self) -> None:
        """Put back the last to join until each of those who are left has room for a token."""
        while self.limit is not None and 1 < self.running > self.limit - self.cached:
            last = max(self.finishing, key=lambda one: (one[2].begun, one[1]))
            self.finishing.remove(last)
            heapify(self.finishing)
            work = last[2]
            work.written = self.step - work.begun
            self.cached -= work.new + work.cached + work.written
            if self.evicted is not None:
                self.evicted(self, work)

    def _ns(self, steps: int) -> int:
        return max(1, round(1e9 * self.table.seconds(self.running, self.cached, steps)))


_FAR: Final = 1e6
"""Cached tokens per group at which the upper line is measured."""
_NEAR: Final = 1.0
_GROWTH: Final = 1.12
"""Ratio of neighbouring sizes at which passes are measured."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Seconds of a step by the cached tokens x of a group: max(low + low_slope x, high + high_slope
    x)."""

    low: float
    low_slope: float
    high: float
    high_slope: float

    def between(self, other: Lines, part: float) -> Lines:
        """So far on the way to another."""
        pairs = (
            (self.low, other.low),
            (self.low_slope, other.low_slope),
            (self.high, other.high),
            (self.high_slope, other.high_slope),
        )
        return Lines(*(a + part * (b - a) for a, b in pairs))

    @property
    def kink(self) -> float:
        """Cached tokens from which on the upper line counts; 0 where it always does."""
        steeper = self.high_slope - self.low_slope
        return max(0.0, (self.low - self.high) / steeper) if steeper > 0 else 0.0


@dataclass(frozen=True, slots=True)
class StepTable:
    """Seconds of steps and of prefills on one engine of so many groups, whose requests are spread
    evenly over them."""

    groups: int
    batches: tuple[int, ...]
    lines: tuple[Lines, ...]
    prompts: tuple[int, ...]
    fresh: tuple[float, ...]
    """Seconds of a pass of so many new tokens in a group."""
    per_cached: float
    """Seconds per cached token that new ones attend to, of a group."""
    per_sequence: float = 0.0
    """Seconds of the host for each further sequence of a pass."""
    known: dict[int, Lines] = field(
        default_factory=dict[int, Lines], init=False, repr=False, compare=False
    )

    def of(self, running: int) -> Lines:
        """The lines of a step of so many sequences on the engine."""
        found = self.known.get(running)
        if found is None:
            found = self.known[running] = self._between(running)
        return found

    def _between(self, running: int) -> Lines:
        batch = max(1.0, running / self.groups)
        at = bisect_right(self.batches, batch) - 1
        if at >= len(self.batches) - 1:
            # Beyond the largest: as much longer as there are more.
            last, more = self.lines[-1], batch / self.batches[-1]
            return Lines(last.low * more, last.low_slope, last.high * more, last.high_slope)
        low, high = self.batches[at], self.batches[at + 1]
        return self.lines[at].between(self.lines[at + 1], (batch - low) / (high - low))

    def seconds(self, running: int, cached: float, steps: int) -> float:
        """Seconds of so many steps of `running` sequences that have `cached` tokens in all at the
        first of them."""
        lines, x, more = self.of(running), cached / self.groups, running / self.groups
        before = min(steps, max(0, ceil((lines.kink - x) / more))) if lines.kink > x else 0
        below = _sum(lines.low, lines.low_slope, x, more, before)
        return below + _sum(lines.high, lines.high_slope, x + before * more, more, steps - before)

    def steps(self, running: int, cached: float, seconds: float) -> int:
        """Steps that it takes until so many seconds have passed: the last of them ends then, or
        later."""
        lines, x, more = self.of(running), cached / self.groups, running / self.groups
        before = max(0, ceil((lines.kink - x) / more)) if lines.kink > x else 0
        below = _sum(lines.low, lines.low_slope, x, more, before)
        if below >= seconds:
            return _until(lines.low, lines.low_slope, x, more, seconds)
        rest = seconds - below
        return before + _until(lines.high, lines.high_slope, x + before * more, more, rest)

    def prefill(self, joining: int, new: float, cached: float, *, shared: bool) -> float:
        """Seconds that it takes to prefill `joining` requests with `new` tokens, and `cached`
        before them, in all; the group with one more than others decides. `shared`: in steps of
        those who write (Agrawal et al., Sarathi-Serve, arXiv:2403.02310, section 4), so that only
        what the tokens take beyond a pass of next to none is added."""
        busiest = ceil(joining / self.groups) / joining
        whole = self._fresh(new * busiest) + self.per_cached * cached * busiest
        whole += self.per_sequence * (ceil(joining / self.groups) - 1)
        return whole - self.fresh[0] if shared and new * busiest > self.prompts[0] else whole

    def _fresh(self, tokens: float) -> float:
        most = self.prompts[-1]
        passes, rest = divmod(tokens, most)
        found = passes * self.fresh[-1]
        if rest <= 0:
            return found
        at = max(0, bisect_right(self.prompts, rest) - 1)
        if at == len(self.prompts) - 1:
            return found + self.fresh[-1]
        low, high = self.prompts[at], self.prompts[at + 1]
        part = max(0.0, (rest - low) / (high - low))
        return found + self.fresh[at] + part * (self.fresh[at + 1] - self.fresh[at])


@remembered(16)
def step_table(engine: Engine, most: int) -> StepTable:
    """The table of an engine for up to `most` sequences in a group."""
    batches = _sizes(1, max(2, most))
    prompts = _sizes(16, max(17, engine.spec.chunk))
    fresh = tuple(prefill_pass(engine, 1, size).seconds for size in prompts)
    middle = min(4096, engine.spec.chunk)
    attended = [prefill_pass(engine, 1, 512, far).seconds for far in (middle, 3 * middle)]
    return StepTable(
        groups=engine.groups,
        batches=batches,
        lines=tuple(_lines(lambda x, b=b: decode_pass(engine, b, x / b).seconds) for b in batches),
        prompts=prompts,
        fresh=fresh,
        per_cached=(attended[1] - attended[0]) / (2 * middle),
        per_sequence=sequence_seconds(engine),
    )


def _sizes(least: int, most: int) -> tuple[int, ...]:
    found = [least]
    while found[-1] < most:
        found.append(min(most, max(found[-1] + 1, round(found[-1] * _GROWTH))))
    return tuple(found)


def _lines(seconds: Callable[[float], float]) -> Lines:
    near, nearer = seconds(_NEAR), seconds(2 * _NEAR)
    far, farther = seconds(_FAR), seconds(2 * _FAR)
    low, high = (nearer - near) / _NEAR, (farther - far) / _FAR
    return Lines(near - low * _NEAR, low, far - high * _FAR, high)


def _sum(base: float, slope: float, x: float, more: float, steps: int) -> float:
    """Of base + slope (x + k more) over k = 0 ... steps - 1."""
    return steps * (base + slope * x) + slope * more * steps * (steps - 1) / 2


def _until(base: float, slope: float, x: float, more: float, seconds: float) -> int:
    """The least number of steps, at least one, whose sum is `seconds` or more."""
    first, growth = base + slope * x, slope * more
    b = first - growth / 2
    # The other form of the root, which loses no digits where the growth is small.
    root = 2 * seconds / (b + sqrt(b * b + 2 * growth * seconds))
    return max(1, ceil(root - 1e-9))
