"""Who computes on this rank, and for how long: passes that run alone, or in pairs that take turns.

A paired forward and backward run on two threads of which one computes at a time. At each expert
all-to-all a pass begins the transfer and hands its turn to the other, so that the blocks of both
come in turn, backward first, and one's transfer runs under the other's computing: Kimi K2's overlap
(arXiv:2507.20534, section 2.4.1) without a line of it in the model. Every rank of an expert group
takes the same turns, so that its transfers have one order.

Between two transfers lies a stretch of computing. It becomes a span of the timeline, and where a
pace is given it lasts at least that long: the rank sleeps for the rest, and so stands in for a
device of another speed whose transfers are real.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Condition
from time import sleep, time_ns
from typing import Final, TypeVar

from reference.parallel.timeline import Span, Tape

T = TypeVar("T")
NS: Final = 1e9


class Running:
    """One pass that runs."""

    def __init__(
        self, tape: Tape, name: str, place: tuple[int, int], pace: Sequence[float] = ()
    ) -> None:
        """`place`: chunk and micro-batch; `pace`: seconds of each stretch, the last one's for all
        that follow."""
        self.tape, self.name = tape, name
        self.place = place
        self.pair: Pair | None = None
        self._pace = list(pace)
        self._begun = time_ns()

    def begin(self) -> None:
        """A stretch of computing begins."""
        self._begun = time_ns()

    def end(self) -> None:
        """It ends, not before its time."""
        if self._pace:
            wanted = self._begun + self._pace[0] * NS
            if len(self._pace) > 1:
                self._pace.pop(0)
            sleep(max(0.0, (wanted - time_ns()) / NS))
        self.tape.span(
            Span(
                self.tape.step,
                "compute",
                self.name,
                *self.place,
                self._begun,
                time_ns(),
            )
        )


class Turns:
    """The passes of one rank."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.running: Running | None = None
        """Whose turn it is; with one computing at a time, one answer for all threads."""

    def alone(self, running: Running, run: Callable[[], T]) -> T:
        """Run a pass by itself."""
        before, self.running = self.running, running
        running.begin()
        try:
            return run()
        finally:
            running.end()
            self.running = before

    def paired(self, running: Running, pair: Pair, run: Callable[[], T]) -> T:
        """Run one pass of a pair, from its first turn on, on a thread of its own."""
        pair.wait(running)
        self.running = running
        running.begin()
        try:
            return run()
        finally:
            running.end()
            pair.leave(running)

    def hand_over(self) -> None:
        """A transfer has begun, for which this pass has to wait: the other of its pair goes on."""
        running = self.running
        if running is not None and running.pair is not None:
            running.pair.give(running)
            self.running = running


class Pair:
    """Two passes in turn."""

    def __init__(self, first: Running, second: Running) -> None:
        self._turn = first
        self._left = [first, second]
        self._changed = Condition()
        first.pair = second.pair = self

    def give(self, running: Running) -> None:
        """Let the other go on until it gives the turn back, or is done."""
        with self._changed:
            if len(self._left) > 1:
                self._pass_on(running)
                self._changed.wait_for(lambda: self._turn is running)

    def wait(self, running: Running) -> None:
        """Until it is this one's turn."""
        with self._changed:
            self._changed.wait_for(lambda: self._turn is running)

    def leave(self, running: Running) -> None:
        """This one is done."""
        with self._changed:
            if len(self._left) > 1:
                self._pass_on(running)
            self._left.remove(running)

    def _pass_on(self, running: Running) -> None:
        self._turn = next(one for one in self._left if one is not running)
        self._changed.notify_all()
