"""The event player that says how: a graph on a clock in integer nanoseconds.

An operation starts when everything it waits for is done (its stream's previous operation included)
and, for a collective, when all members are ready. Compute lasts its duration; communication lasts
its latency and then until its bytes are through; while it runs it may hold SMs, and kernels beside
it run slower. Simultaneous events come in the order in which they were asked for, so the same graph
always plays the same. `twin.compiled.player` does the same over arrays.
"""

from __future__ import annotations

import numpy as np

from twin.engine.clock import Clock
from twin.engine.fluid import Fluid
from twin.engine.graph import NONE, Graph
from twin.engine.played import ANNOUNCE, Played, Progress, check_all_ended
from twin.engine.program import COMPUTE, Program
from twin.engine.sms import Multiprocessors


def play(graph: Graph, program: Program, progress: Progress | None = None) -> Played:
    """Play every operation of the graph. Raises `DeadlockError` when some never start."""
    player = _Player(graph, program, progress)
    player.run()
    columns = player.ready, player.start, player.end, player.released_by
    ready, start, end, released_by = (np.array(column, np.int64) for column in columns)
    check_all_ended(graph, end)
    shared = player.fluid.shared or player.sms.shared
    return Played(ready, start, end, released_by, player.events, shared)


class _Player:
    def __init__(self, graph: Graph, program: Program, progress: Progress | None) -> None:
        size, self.progress = len(graph), progress
        self.clock = Clock()
        self.fluid = Fluid(self.clock, [*program.wiring.capacity], self._arrived)
        self.sms = Multiprocessors(self.clock, program, self._computed)
        self.role: list[int] = graph.role.tolist()
        self.stream: list[int] = graph.stream.tolist()
        self.duration: list[int] = graph.duration.tolist()
        self.bundle: list[int] = graph.bundle.tolist()
        self.held: list[int] = graph.sms.tolist()
        self.sm_bound: list[float] = graph.sm_bound.tolist()
        self.crowded = any(self.held)
        self.after = graph.after.lists()
        self.waits: list[int] = graph.waits.tolist()
        self.flows = graph.bundles.flows
        for path in graph.bundles.paths:
            self.fluid.path(*path)
        self.group: list[int] = graph.group.tolist()
        self.members = graph.members.lists()
        self.absent = [len(members) for members in self.members]
        self.running = [*self.absent]
        self.left = [0] * size
        self.ready = [-1] * size
        self.start = [-1] * size
        self.end = [-1] * size
        self.released_by = [-1] * size
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

    def _released(self, op: int, cause: int, now: int) -> None:
        """The last thing that an operation waited for has ended."""
        self.ready[op] = now
        self.released_by[op] = cause
        group = self.group[op]
        if group == NONE:
            self._begin(op, now)
            return
        self.absent[group] -= 1
        if self.absent[group] == 0:
            for member in self.members[group]:
                self._begin(member, now)

    def _begin(self, op: int, now: int) -> None:
        self.start[op] = now
        duration = self.duration[op]
        if self.crowded:
            role = self.role[op]
            if self.held[op]:
                self.sms.hold(role, self.held[op])
            elif duration and self.stream[op] == COMPUTE:
                self.sms.compute(op, role, duration, self.sm_bound[op])
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
        bundle = self.bundle[op]
        if bundle == NONE:
            self._over(op)
            return
        flows = self.flows[bundle]
        self.left[op] = len(flows)
        for size, path in flows:
            self.fluid.begin(op, size, path)

    def _arrived(self, op: int) -> None:
        self.events += 1
        self.left[op] -= 1
        if self.left[op] == 0:
            self._over(op)
            self._settle()

    def _over(self, op: int) -> None:
        """A member of a collective is done when all are."""
        group = self.group[op]
        if group == NONE:
            self.finished.append(op)
            return
        self.running[group] -= 1
        if self.running[group] == 0:
            self.finished.extend(self.members[group])

    def _settle(self) -> None:
        """End what is over and start what that releases, until this instant has nothing more to
        give."""
        finished, waits, now = self.finished, self.waits, self.clock.nanoseconds
        ends, after, held, released = self.end, self.after, self.held, self._released
        while finished:
            op = finished.pop()
            ends[op] = now
            self.done += 1
            if held[op]:
                self.sms.hold(self.role[op], -held[op])
            for other in after[op]:
                waits[other] -= 1
                if waits[other] == 0:
                    released(other, op, now)
        if self.progress is not None and self.done >= self.announced:
            self.announced += ANNOUNCE
            self.progress(self.done / len(ends))
