"""Passes of one rank, alone or in pairs that take turns: computing under expert all-to-alls.

A paired forward and backward run on two threads of which one computes at a time. At each expert
all-to-all (`ExpertExchange`) a pass begins the transfer and hands its turn to the other, so that
the blocks of both come in turn, backward first, and one's transfer runs under the other's
computing: Kimi K2's overlap (arXiv:2507.20534, section 2.4.1) without a line of it in the model.
Every rank of an expert group takes the same turns, so that its transfers have one order.

Between two transfers lies a stretch of computing. It becomes a span of the timeline. With a `Pace`,
a file that the simulator writes, it lasts at least that long: the rank sleeps for the rest, and so
stands in for a device of another speed whose transfers are real.

Shapes: E experts of a layer, G ranks of the group, L = E / G experts of each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition
from time import sleep, time_ns
from typing import Final, TypeVar

from torch import Tensor
from torch.profiler import record_function

from reference.parallel.groups import Group
from reference.parallel.timeline import Mark, Tape, TimelineSpan, ended
from twin.errors import Problem, UsageError
from twin.schedules.base import Pass

T = TypeVar("T")
NS: Final = 1e9
_WORDS: Final = {
    "F": "forward",
    "B": "backward",
    "I": "backward_input",
    "W": "backward_weight",
}
"""Passes as annotations name them."""


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
        self._begun: Mark = 0
        self._issued = 0
        self._note: record_function | None = None

    def begin(self) -> None:
        """A stretch of computing begins."""
        self._begun, self._issued = self.tape.mark(), time_ns()
        self._note = self.tape.note(self._text)

    def end(self) -> None:
        """It ends, not before its time."""
        if self._pace:
            wanted = self._issued + self._pace[0] * NS
            if len(self._pace) > 1:
                self._pace.pop(0)
            sleep(max(0.0, (wanted - time_ns()) / NS))
        ended(self._note)
        times = self._begun, self.tape.mark()
        self.tape.span(TimelineSpan(self.tape.step, "compute", self.name, *self.place, *times))

    @property
    def _text(self) -> str:
        chunk, microbatch = self.place
        return f"{_WORDS.get(self.name, self.name)}, chunk {chunk}, micro-batch {microbatch}"


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

    def paired(self, running: Running, pair: Pair, prepare: Callable[[], Callable[[], T]]) -> T:
        """Run one pass of a pair, from its first turn on, on a thread of its own; `prepare` waits
        for what it needs."""
        pair.wait(running)
        self.running = running
        try:
            run = prepare()
            running.begin()
            try:
                return run()
            finally:
                running.end()
        finally:
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


VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of the stretches of each pass between its transfers, in order; the last stands for
    all further ones."""

    passes: Mapping[tuple[int, Pass], tuple[float, ...]] = field(default_factory=dict)
    optimizer: tuple[float, ...] = ()
    """Seconds of the update's computing, by stage; empty where nothing waits."""

    def of(self, chunk: int, kind: Pass) -> tuple[float, ...]:
        """Those of one pass of a chunk; empty where nothing waits."""
        return self.passes.get((chunk, kind), ())

    def update(self, stage: int) -> float:
        """That of one stage's update; nothing where the pace knows no such stage."""
        return self.optimizer[stage] if stage < len(self.optimizer) else 0.0


def load_pace(path: Path | None) -> Pace:
    """The pace in a file, or none. Raises UsageError where the file is none."""
    if path is None:
        return Pace()
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        _refuse_other(found["version"])
        passes = {
            (int(chunk), kind): tuple(map(float, seconds))
            for chunk, kinds in found["chunks"].items()
            for kind, seconds in kinds.items()
        }
        return Pace(passes, tuple(map(float, found["optimizer"])))
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        message = f"`{path}` is no pace: {error}"
        fix = "write one with `twin export SCENARIO --format pace`"
        raise UsageError([Problem("TW294", "train.pace", message, fix)]) from None


def _refuse_other(version: object) -> None:
    if version != VERSION:
        raise ValueError(f"version {version}, not {VERSION}")


class ExpertExchange:
    """A group of ranks that share experts; `reference.model.dispatch.Exchange`."""

    def __init__(self, group: Group, turns: Turns, *, balanced: bool = False) -> None:
        """`balanced`: every rank sends every rank as much, so that sizes are known without asking:
        for shapes without numbers, where nobody could answer."""
        self.size = group.size
        self._group = group
        self._turns = turns
        self._balanced = balanced

    def counts(self, load_E: Tensor, rows: int) -> tuple[Tensor, list[int], list[int]]:
        """What every rank sends to the experts here, [G, L], and the rows that this rank sends to
        each rank, and receives from it. The host waits for the answer, and gives no turn away: rows
        are what the other pass of a pair hides."""
        sent_GL = load_E.view(self.size, -1)
        if self._balanced:
            assert rows % self.size == 0, f"{rows} rows over {self.size} ranks"
            even = [rows // self.size] * self.size
            return self._ask(sent_GL.flatten()).view_as(sent_GL), even, even
        arriving_GL = self._ask(sent_GL.flatten()).view_as(sent_GL)
        return arriving_GL, sent_GL.sum(1).tolist(), arriving_GL.sum(1).tolist()

    def swap(self, rows: Tensor, sent: Sequence[int], received: Sequence[int], name: str) -> Tensor:
        """Send rows to every rank, in order, and get those for this one."""
        running = self._turns.running
        if running is None:
            return self._group.all_to_all(rows, sent, received, name).wait()
        running.end()
        moving = self._group.all_to_all(rows, sent, received, name).of(running.place)
        self._turns.hand_over()
        out = moving.wait()
        running.begin()
        return out

    def _ask(self, counts: Tensor) -> Tensor:
        """As many counts from every rank as go to each."""
        running = self._turns.running
        if running is None:
            return self._group.all_to_all(counts, None, None, "expert_counts").wait()
        running.end()
        moving = self._group.all_to_all(counts, None, None, "expert_counts").of(running.place)
        out = moving.wait()
        running.begin()
        return out
