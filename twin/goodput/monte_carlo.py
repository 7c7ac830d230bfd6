"""Runs with failures, simulated with seeds: what the closed form cannot tell, the spread, and what
happens when spares run out.

Every interruption is one event or a few; the saves between two of them are counted, not played, so
54 days of 16,384 GPUs are some hundred events. All causes together are one Poisson process, whose
events belong to a cause in proportion to its rate, which is the same as a process for each. Time is
integer nanoseconds, so progress and losses sum to the wall time exactly.

A run stops when its work is done or its time is over; work that nothing has undone by then is
progress. A job that waits for a node does not fail, and planned interruptions that fall into a
restart are part of it.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from math import isinf
from typing import Final

import numpy as np
from simpy import Environment, Event

from twin.goodput.closed import LOSSES, Conditions, Loss

_NS: Final = 1e9
_NEVER: Final = 2**62
_AHEAD: Final = 512
"""Failures that are drawn at once."""

Events = Generator[Event, object, None]


@dataclass(slots=True)
class Tally:
    """What came of one run, in nanoseconds; `strikes` counts interruptions by cause."""

    strikes: list[int]
    useful: int = 0
    losses: dict[Loss, int] = field(default_factory=lambda: dict.fromkeys(LOSSES, 0))

    @property
    def wall(self) -> int:
        """All of its time."""
        return self.useful + sum(self.losses.values())


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds of work after which a run is done, and of time after which it is over."""

    work: float
    time: float = float("inf")


def play(conditions: Conditions, limits: Limits, seed: int) -> Tally:
    """One run with the failures of one seed."""
    run = _Run(conditions, limits, seed)
    run.env.run(until=run.env.process(run.live()))
    return run.tally


class _Failures:
    """The interruptions of one seed: the same times whatever the run does about them."""

    def __init__(self, conditions: Conditions, seed: int) -> None:
        rates = np.array([one.per_second for one in conditions.hazards])
        self._planned = [one.planned for one in conditions.hazards]
        self._rate = float(rates.sum())
        self._unplanned = any(one.per_second > 0 and not one.planned for one in conditions.hazards)
        self._shares = rates.cumsum() / self._rate if self._rate else rates
        self._draws = np.random.default_rng((seed, 0))
        self._times: list[int] = []
        self._causes: list[int] = []
        self._next = self._found = 0

    def after(self, now: int, *, planned: bool) -> tuple[int, int]:
        """When the next one strikes, and which cause it is; planned ones only where asked for."""
        if not self._rate or not (planned or self._unplanned):
            return _NEVER, 0
        while True:
            for index in range(self._next, len(self._times)):
                at, cause = self._times[index], self._causes[index]
                if at < now:
                    self._next = index + 1
                elif planned or not self._planned[cause]:
                    self._found = index
                    return at, cause
            self._draw()

    def strike(self) -> None:
        """The one that was told last has come, and those before it are over."""
        self._next = self._found + 1

    def _draw(self) -> None:
        """Further ones behind those that are not over."""
        gaps = self._draws.exponential(_NS / self._rate, _AHEAD)
        last = self._times[-1] if self._times else 0
        kinds = np.searchsorted(self._shares, self._draws.random(_AHEAD), side="right")
        times = (last + np.rint(gaps).astype(np.int64).cumsum()).tolist()
        self._times = [*self._times[self._next :], *times]
        kinds = np.minimum(kinds, len(self._planned) - 1).tolist()
        self._causes = [*self._causes[self._next :], *kinds]
        self._next = 0


class _Spares:
    """Nodes that stand by, and those in repair, which are spare ones after it."""

    def __init__(self, env: Environment, nodes: int, repair: int) -> None:
        self._env, self._free, self._repair = env, nodes, repair
        self._wanted: Event | None = None

    def swap(self) -> Event | None:
        """A node leaves and a spare is taken; where there is none, the event of its coming."""
        repaired = self._env.timeout(self._repair)
        repaired.callbacks.append(self._come)  # pyright: ignore[reportUnknownMemberType]
        if self._free:
            self._free -= 1
            return None
        self._wanted = self._env.event()
        return self._wanted

    def _come(self, _: Event) -> None:
        if self._wanted is None:
            self._free += 1
        else:
            self._wanted.succeed()
            self._wanted = None


class _Run:
    """One run on its way."""

    def __init__(self, conditions: Conditions, limits: Limits, seed: int) -> None:
        self.env = Environment()
        self.now = 0
        """Nanoseconds since the run began."""
        self.conditions = conditions
        self.tally = Tally([0] * len(conditions.hazards))
        self.failures = _Failures(conditions, seed)
        self.paces = np.random.default_rng((seed, 1)) if conditions.slow else None
        self.work, self.end = _ns(limits.work), _ns(limits.time)
        self.every, self.blocked = max(_ns(conditions.every), 1), _ns(conditions.blocked)
        self.lag = _ns(conditions.lag)
        self.restarts = {True: _ns(conditions.planned_restart), False: _ns(conditions.restart)}
        spares, repair = conditions.spares, _ns(conditions.repair)
        self.spares = None if spares is None else _Spares(self.env, spares, repair)

    def live(self) -> Events:
        """Work and restart in turn, until the work is done or the time is over."""
        while self.now < self.end:
            pace = self._pace()
            passed, cause = self._until(pace)
            yield self.env.timeout(passed)
            self.now += passed
            if cause is None:
                self._count(passed, pace, kept=None)
                return
            self.failures.strike()
            self.tally.strikes[cause] += 1
            planned = self.conditions.hazards[cause].planned
            self._count(passed, pace, kept=None if planned else self._durable(passed))
            yield from self._down(cause)

    def _pace(self) -> float:
        """How many times longer a step takes until the next restart."""
        if self.paces is None or self.paces.random() >= self.conditions.slow:
            return 1.0
        return self.conditions.slowdown

    def _until(self, pace: float) -> tuple[int, int | None]:
        """How long work goes on, and what strikes then; None: the run ends."""
        left = round((self.work - self.tally.useful) * pace) if self.work < _NEVER else _NEVER
        saves = max(-(-left // self.every) - 1, 0)
        end = min(self.now + left + saves * self.blocked, self.end)
        at, cause = self.failures.after(self.now, planned=True)
        return (end - self.now, None) if end <= at else (at - self.now, cause)

    def _durable(self, passed: int) -> int:
        """Checkpoints that count by then."""
        cycle = self.every + self.blocked
        return max(passed - self.lag, 0) // cycle

    def _count(self, passed: int, pace: float, kept: int | None) -> None:
        """Deal the time since a restart to what it was spent on; of the work only so many intervals
        are `kept`, or all (None)."""
        cycles, rest = divmod(passed, self.every + self.blocked)
        working = cycles * self.every + min(rest, self.every)
        safe = working if kept is None else kept * self.every
        useful = min(round(safe / pace) if pace > 1.0 else safe, self.work - self.tally.useful)
        losses = self.tally.losses
        self.tally.useful += useful
        losses["stragglers"] += safe - useful
        losses["rework"] += working - safe
        losses["saving"] += passed - working

    def _down(self, cause: int) -> Events:
        """From an interruption to the first step after it; failures on the way begin it anew."""
        hazards = self.conditions.hazards
        if hazards[cause].planned:
            yield self._spend("saving", self.blocked + self.lag)
        need = self.restarts[hazards[cause].planned]
        while self.now < self.end:
            if hazards[cause].replaces_node and self.spares is not None:
                yield from self._swap(self.spares)
            at, cause = self.failures.after(self.now, planned=False)
            if at >= self.now + need:
                yield self._spend("restart", need)
                return
            yield self._spend("restart", at - self.now)
            if self.now < self.end:
                self.failures.strike()
                self.tally.strikes[cause] += 1
            need = self.restarts[False]

    def _swap(self, spares: _Spares) -> Events:
        """A spare for a node that leaves; where there is none, the job waits for a repair."""
        wanted = spares.swap()
        if wanted is None:
            return
        yield wanted | self.env.timeout(self.end - self.now)
        waited = int(self.env.now) - self.now
        self.tally.losses["waiting"] += waited
        self.now += waited

    def _spend(self, loss: Loss, duration: int) -> Event:
        """Time that is a loss, as far as there is time."""
        passed = min(duration, self.end - self.now)
        self.tally.losses[loss] += passed
        self.now += passed
        return self.env.timeout(passed)


def _ns(seconds: float) -> int:
    return _NEVER if isinf(seconds) else min(round(seconds * _NS), _NEVER)
