"""The event player: a graph on SimPy's clock, in integer nanoseconds.

An operation starts when everything it waits for is done (its stream's previous operation included)
and, for a collective, when all members are ready. Compute lasts its duration; communication lasts
its latency and then until its bytes are through; while it runs it may hold SMs, and kernels beside
it run slower. SimPy orders simultaneous events by when they were
created, so the same graph always plays the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twin.engine.clock import Clock
from twin.engine.fluid import Fluid
from twin.engine.graph import Graph
from twin.engine.program import COMPUTE, Program
from twin.engine.sms import Multiprocessors

Progress = Callable[[float], None]
"""Called now and then with the share of operations that are done."""


ANNOUNCE = 20_000
"""Operations between two calls of a progress callback."""


@dataclass(frozen=True, slots=True)
class Played:
    """When each operation of a graph was ready, started and ended, and which operation's end
    released it (-1: none)."""

    ready: list[int]
    start: list[int]
    end: list[int]
    released_by: list[int]
    events: int
    shared: bool
    """True when flows met on a link, or kernels and communication on SMs."""


class DeadlockError(RuntimeError):
    """Some operations can never start; a bug in a schedule, not in a scenario."""


def play(graph: Graph, program: Program, progress: Progress | None = None) -> Played:
    """Play every operation of the graph. Raises `DeadlockError` when some never start."""
    player = _Player(graph, program, progress)
    player.run()
    return Played(
        player.ready,
        player.start,
        player.end,
        player.released_by,
        player.events,
        player.fluid.shared or player.sms.shared,
    )


class _Player:
    def __init__(self, graph: Graph, program: Program, progress: Progress | None) -> None:
        size = len(graph.role)
        self.graph, self.progress = graph, progress
        self.clock = Clock()
        self.fluid = Fluid(self.clock, [*program.wiring.capacity], self._arrived)
        self.sms = Multiprocessors(self.clock, program, self._computed)
        self.crowded = any(graph.sms)
        self.sent: dict[int, list[tuple[float, int]]] = {}
        """Bytes and paths of flows, by the identity of the graph's."""
        self.waits = graph.waits.copy()
        self.left = [len(flows) for flows in graph.flows]
        self.ready = [-1] * size
        self.start = [-1] * size
        self.end = [-1] * size
        self.released_by = [-1] * size
        self.absent = {id(members): len(members) for members in graph.rendezvous.values()}
        self.running = self.absent.copy()
        self.finished: list[int] = []
        self.announced = ANNOUNCE
        self.done = 0
        self.events = 0

    def run(self) -> None:
        """Play until nothing is left to happen."""
        for op in [i for i, waits in enumerate(self.waits) if waits == 0]:
            self._released(op, -1, 0)
        self._settle()
        self.clock.play()
        if self.done != len(self.end):
            stuck, graph = self.end.index(-1), self.graph
            where = f"chunk {graph.chunk[stuck]}, micro-batch {graph.microbatch[stuck]}"
            raise DeadlockError(f"{graph.name[stuck]} of {where} never starts")

    def _released(self, op: int, cause: int, now: int) -> None:
        """The last thing that an operation waited for has ended."""
        self.ready[op] = now
        self.released_by[op] = cause
        members = self.graph.rendezvous.get(op)
        if members is None:
            self._begin(op, now)
            return
        self.absent[id(members)] -= 1
        if self.absent[id(members)] == 0:
            for member in members:
                self._begin(member, now)

    def _begin(self, op: int, now: int) -> None:
        self.start[op] = now
        graph = self.graph
        duration = graph.duration[op]
        if self.crowded:
            role = graph.role[op]
            if graph.sms[op]:
                self.sms.hold(role, graph.sms[op])
            elif duration and graph.stream[op] == COMPUTE:
                self.sms.compute(op, role, duration, graph.sm_bound[op])
                return
        if duration:
            self.clock.call(duration, self._elapsed, op)
        else:
            self._transfer(op)

    def _computed(self, op: int) -> None:
        self.events += 1
        self._over(op)
        self._settle()

    def _elapsed(self, op: int) -> None:
        self.events += 1
        self._transfer(op)
        self._settle()

    def _transfer(self, op: int) -> None:
        flows = self.graph.flows[op]
        if not flows:
            self._over(op)
            return
        # All instances of a template share their flows, so each is looked up once.
        known = self.sent.get(id(flows))
        if known is None:
            path = self.fluid.path
            known = [(size, path(links, weights)) for size, links, weights in flows]
            self.sent[id(flows)] = known
        for size, number in known:
            self.fluid.begin(op, size, number)

    def _arrived(self, op: int) -> None:
        self.events += 1
        self.left[op] -= 1
        if self.left[op] == 0:
            self._over(op)
            self._settle()

    def _over(self, op: int) -> None:
        """A member of a collective is done when all are."""
        members = self.graph.rendezvous.get(op)
        if members is None:
            self.finished.append(op)
            return
        self.running[id(members)] -= 1
        if self.running[id(members)] == 0:
            self.finished.extend(members)

    def _settle(self) -> None:
        """End what is over and start what that releases, until this instant has nothing more to
        give."""
        finished, waits, graph, now = self.finished, self.waits, self.graph, self.clock.nanoseconds
        local, remote, ends, released = graph.local, graph.remote, self.end, self._released
        while finished:
            op = finished.pop()
            ends[op] = now
            self.done += 1
            if self.crowded and graph.sms[op]:
                self.sms.hold(graph.role[op], -graph.sms[op])
            for offset in local[op]:
                after = op + offset
                waits[after] -= 1
                if waits[after] == 0:
                    released(after, op, now)
            if op in remote:
                for after in remote[op]:
                    waits[after] -= 1
                    if waits[after] == 0:
                        released(after, op, now)
        if self.progress is not None and self.done >= self.announced:
            self.announced += ANNOUNCE
            self.progress(self.done / len(ends))
