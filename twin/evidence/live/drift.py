"""Has the step time changed? A sequential test, which may be looked at after every step.

Steps are taken in blocks of `BLOCK`, each with the median of its logarithms, so that a single slow
step is no drift. On those runs Page's cumulative sum (Biometrika 41, 1954, 100-115) in both
directions, S <- max(0, S +- z - k), which calls at S > h:

- Against the run itself, z is the self-starting statistic of Hawkins (Journal of Quality Technology
  19, 1987, 195-212): how far a block lies from the mean of those before it, in their own standard
  deviations. For independent normal blocks all z are independent standard normal, whatever mean and
  deviation are, so that nothing has to be known beforehand.
- Against a bound that was known beforehand, such as the end of a sealed interval, z is the distance
  from that bound.

k = 1/2 is best for a change of one deviation. h = 8.74 makes false calls rare: Siegmund's formula
(Sequential Analysis, 1985, section 10.2), ARL = (exp(2k b) - 2k b - 1) / (2 k^2) with b = h +
1.166, gives 40,000 blocks in each direction, one false call in 100,000 steps. OURS: both numbers,
the blocks, that z beyond three counts as three (heavy tails), that a deviation is at least 1 %
(smaller changes matter to nobody), and that it is widened by sqrt((1 + phi) / (1 - phi)), phi the
blocks' lag-1 autocorrelation, at most 0.9, since sums of correlated terms wander that much further
(Johnson and Bagshaw, Technometrics 16, 1974, 103-112).

It breaks where step times are correlated over many blocks, as on a machine that others load: what
is called then are real changes of level, of that load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import copysign, exp, log, sqrt
from statistics import median
from typing import Final

from twin.evidence.live.trainer_log import LoggedStep

BLOCK: Final = 5
"""Steps of a block."""
LEARN: Final = 8
"""Blocks before anything is called."""
K: Final = 0.5
H: Final = 8.74
WARM_UP: Final = 5
"""Steps after the start of a process or stage that belong to no block: OURS. Memory is allocated
and kernels are chosen in the first ones; the reference's first step takes 1.0 to 2.1 medians."""
_FURTHEST: Final = 3.0
_FINEST: Final = 0.01
_MOST_CORRELATED: Final = 0.9


@dataclass(frozen=True, slots=True)
class StepBlock:
    """Neighbouring steps of one stage: the first and last of them, and ln of the median seconds."""

    first: int
    last: int
    value: float


@dataclass(frozen=True, slots=True)
class StepTimeChange:
    """A change of the step time: from which step on, at which step it was called, and the median
    seconds before and since, until the next change."""

    step: int
    called: int
    before: float
    after: float

    @property
    def ratio(self) -> float:
        """Seconds since over seconds before."""
        return self.after / self.before


@dataclass(slots=True)
class _Level:
    """Mean, deviation and autocorrelation of the blocks so far."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    products: float = 0.0
    last: float = 0.0

    @property
    def deviation(self) -> float:
        """Of single blocks; at least the finest."""
        spread = sqrt(self.squares / (self.count - 1)) if self.count > 1 else 0.0
        return max(spread, _FINEST)

    @property
    def widening(self) -> float:
        """How much further sums wander than those of independent blocks."""
        phi = self.products / self.squares if self.squares > 0 else 0.0
        phi = min(max(phi, 0.0), _MOST_CORRELATED)
        return sqrt((1 + phi) / (1 - phi))

    def take(self, value: float) -> None:
        """One more block (Welford's update), no further away than the furthest."""
        if self.count >= LEARN:
            reach = _FURTHEST * self.deviation
            value = min(max(value, self.mean - reach), self.mean + reach)
        self.count += 1
        before = value - self.mean
        self.mean += before / self.count
        self.squares += before * (value - self.mean)
        if self.count > 1:
            self.products += (value - self.mean) * (self.last - self.mean)
        self.last = value

    def distance(self, value: float) -> float:
        """How far a block lies from this level: standard normal where it belongs to it."""
        t = (value - self.mean) / self.deviation * sqrt(self.count / (self.count + 1))
        return _limited(_normal(t, self.count - 1) / self.widening)


def blocks(steps: Sequence[LoggedStep]) -> list[StepBlock]:
    """The steps in blocks, without those of warm-ups; what does not fill a block is left out."""
    found: list[StepBlock] = []
    taken: list[LoggedStep] = []
    for step in steps:
        if step.fresh == 0:
            taken = []
        if step.fresh < WARM_UP:
            continue
        taken.append(step)
        if len(taken) == BLOCK:
            value = log(median(one.seconds for one in taken))
            found.append(StepBlock(taken[0].step, step.step, value))
            taken = []
    return found


def changes(found: Sequence[StepBlock]) -> tuple[StepTimeChange, ...]:
    """Every change of the step time, in order. After each, the new level is learned from its
    beginning."""
    starts, calls, at = [0], list[int](), 0
    while (call := _first_call(found, at)) is not None:
        at, called = call
        starts.append(at)
        calls.append(called)
    ends = [*starts[1:], len(found)]
    levels = [_seconds(found[a:b]) for a, b in zip(starts, ends, strict=True)] if found else []
    return tuple(
        StepTimeChange(found[start].first, found[called].last, *levels[n : n + 2])
        for n, (start, called) in enumerate(zip(starts[1:], calls, strict=True))
    )


def leaves(found: Sequence[StepBlock], low: float, high: float) -> tuple[int, bool] | None:
    """The step at which the median seconds are called outside of `low` to `high`, and whether they
    are above; None where they are not."""
    level, above, below = _Level(), 0.0, 0.0
    waiting: list[StepBlock] = []
    for block in found:
        waiting.append(block)
        level.take(block.value)
        if level.count < LEARN:
            continue
        # The first blocks are judged once their deviation is known.
        for one in waiting:
            scale = level.deviation * level.widening
            above = max(0.0, above + _limited((one.value - log(high)) / scale) - K)
            below = max(0.0, below + _limited((log(low) - one.value) / scale) - K)
            if max(above, below) > H:
                return block.last, above > below
        waiting.clear()
    return None


def _first_call(found: Sequence[StepBlock], begin: int) -> tuple[int, int] | None:
    """Where the next change begins, and where it is called, as places in `found`."""
    level, sums, since = _Level(), [0.0, 0.0], [begin, begin]
    for at in range(begin, len(found)):
        value = found[at].value
        if level.count >= LEARN:
            z = level.distance(value)
            for side, signed in enumerate((z, -z)):
                if sums[side] == 0.0:
                    since[side] = at
                sums[side] = max(0.0, sums[side] + signed - K)
                if sums[side] > H:
                    return _begin(found[since[side] : at + 1], level) + since[side], at
        level.take(value)
    return None


def _begin(found: Sequence[StepBlock], level: _Level) -> int:
    """Where among these blocks the change most likely began: what maximises the likelihood of
    normal blocks with the level's mean before it and another one since (Hinkley, Biometrika 57,
    1970, 1-17, with the first mean known)."""
    best, place, total = 0.0, 0, 0.0
    for at in range(len(found) - 1, -1, -1):
        total += _limited((found[at].value - level.mean) / level.deviation)
        gain = total * total / (len(found) - at)
        if gain >= best:
            best, place = gain, at
    return place


def _seconds(found: Sequence[StepBlock]) -> float:
    return exp(median(one.value for one in found))


def _limited(z: float) -> float:
    return min(max(z, -_FURTHEST), _FURTHEST)


def _normal(t: float, freedom: int) -> float:
    """The standard normal deviate with the probability of Student's t (Wallace, Annals of
    Mathematical Statistics 30, 1959, 1124-1130, equation 5.1), within 0.02 from 7 degrees of
    freedom on."""
    size = sqrt(freedom * log(1 + t * t / freedom))
    return copysign((8 * freedom + 1) / (8 * freedom + 3) * size, t)
