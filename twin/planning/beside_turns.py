"""What works beside the kernels of turns, for many splits at once: times are in nanoseconds, as
[kinds of turns, splits], or as [turns, splits]. Turns come level by level."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.int64]


class Level(NamedTuple):
    """Turns that wait for earlier levels only: which, their kinds, the turns before them on their
    stages, and of each the last turns before it with a forward and with a backward pass."""

    turns: slice
    kind: Numbers
    before: Numbers
    forward: Numbers
    backward: Numbers


class Beside(Protocol):
    """A part of a rank that works beside its kernels."""

    def begin(self, shape: tuple[int, int]) -> None:
        """Of so many turns and splits."""
        ...

    def hold(self, level: Level, begun: Numbers, start: Numbers, /) -> None:
        """Move when turns start; `begun`: when all turns before did."""
        ...

    def work(self, level: Level, begun: Numbers, end: Numbers, /) -> None:
        """Move when turns end."""
        ...


@dataclass(slots=True)
class Lane:
    """Works ahead of kernels, from the beginning of the turn before, or of the one before that."""

    times: Numbers
    turns_ahead: int
    worked: Numbers = field(init=False)
    begins: Numbers = field(init=False)

    def begin(self, shape: tuple[int, int]) -> None:
        """None has worked."""
        self.worked, self.begins = np.zeros(shape, np.int64), np.zeros(shape, np.int64)

    def hold(self, level: Level, begun: Numbers, start: Numbers, /) -> None:
        """Turns start without it."""

    def work(self, level: Level, begun: Numbers, end: Numbers, /) -> None:
        """Turns do not end before it has done what is theirs."""
        since = begun if self.turns_ahead == 1 else self.begins
        took = np.maximum(self.worked[level.before], since[level.before])
        took += self.times[level.kind]
        self.worked[level.turns] = took
        self.begins[level.turns] = begun[level.before]
        np.maximum(end, took, out=end)


@dataclass(slots=True)
class Copies:
    """Activations on their way to the host, from the end of their forward on, which the forward
    after next waits for; and back, from the start of the backward before theirs on."""

    out: Numbers
    back: Numbers
    forwards: NDArray[np.bool_]
    """By kind, whether it has a forward pass, and a backward one."""
    backwards: NDArray[np.bool_]
    gone: Numbers = field(init=False)
    last: Numbers = field(init=False)
    """When the copy of the forward before is gone."""
    came: Numbers = field(init=False)

    def begin(self, shape: tuple[int, int]) -> None:
        """Nothing is on its way."""
        self.gone, self.last, self.came = (np.zeros(shape, np.int64) for _ in range(3))

    def hold(self, level: Level, begun: Numbers, start: Numbers, /) -> None:
        """Passes wait for copies."""
        held = np.where(self.forwards[level.kind, None], self.last[level.forward], 0)
        np.maximum(start, held, out=start)
        came = np.maximum(self.came[level.backward], begun[level.backward])
        came += self.back[level.kind]
        self.came[level.turns] = came
        np.maximum(start, np.where(self.backwards[level.kind, None], came, 0), out=start)

    def work(self, level: Level, _: Numbers, end: Numbers, /) -> None:
        """Forwards have something to copy."""
        before = self.gone[level.forward]
        self.last[level.turns] = before
        self.gone[level.turns] = np.maximum(before, end) + self.out[level.kind]


@dataclass(slots=True)
class Reductions:
    """Reductions of gradients that go on beside the next turn, and take half of the links from its
    gathers."""

    links: Numbers
    """In which a turn's reductions and gathers keep the links busy."""
    left: Numbers
    """Of the reductions that are left when it ends."""
    halved: Numbers
    """By which it lasts longer at most."""
    reduced: Numbers = field(init=False)

    def begin(self, shape: tuple[int, int]) -> None:
        """There are none."""
        self.reduced = np.zeros(shape, np.int64)

    def hold(self, level: Level, begun: Numbers, start: Numbers, /) -> None:
        """Turns start without them."""

    def work(self, level: Level, begun: Numbers, end: Numbers, /) -> None:
        """Gathers wait for links."""
        start, before = begun[level.turns], self.reduced[level.before]
        end += np.clip(before - start, 0, self.halved[level.kind])
        busy = np.maximum(before, start) + self.links[level.kind]
        self.reduced[level.turns] = np.maximum(busy, end + self.left[level.kind])
