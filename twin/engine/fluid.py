"""Links as fluids: flows share every link they cross, max-min fair; rates change only when a flow
starts or ends.

Progressive filling (Bertsekas and Gallager, Data Networks, section 6.5.2): the link with the
smallest fair share fixes the rate of its flows, is taken out with them, and so on. Only the links
that are connected to the changed flow through shared flows are looked at. Holds for long transfers
under fair congestion control; packet effects and unfair hashing are not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import ceil

from simpy import Event

from twin.engine.clock import Clock


@dataclass(slots=True, eq=False)
class Flow:
    """Bytes on their way over `links`; `done` is called when the last one has arrived."""

    remaining: float
    links: tuple[int, ...]
    done: Callable[[], None]
    rate: float = 0.0
    updated: int = 0
    timer: int = 0


@dataclass(slots=True)
class Fluid:
    """The links of a cluster and the flows on them. Capacities are bytes per nanosecond; the clock
    is integer nanoseconds."""

    clock: Clock
    capacity: list[float]
    flows: list[list[Flow]] = field(init=False)
    shared: bool = False
    """True once two flows have met on a link: from then on times are exact to float rounding, not
    to the nanosecond."""

    def __post_init__(self) -> None:
        self.flows = [[] for _ in self.capacity]

    def start(self, size: float, links: tuple[int, ...], done: Callable[[], None]) -> None:
        """Put `size` bytes on `links` now."""
        flow = Flow(size, links, done, updated=self.clock.nanoseconds)
        alone = True
        for link in links:
            if self.flows[link]:
                alone = False
            self.flows[link].append(flow)
        if alone:
            flow.rate = min(self.capacity[link] for link in links)
            self._schedule(flow)
        else:
            self.shared = True
            self._share(self._reachable([flow]))

    def _finish(self, flow: Flow) -> None:
        neighbours = False
        for link in flow.links:
            self.flows[link].remove(flow)
            neighbours = neighbours or bool(self.flows[link])
        if neighbours:
            others = {id(f): f for link in flow.links for f in self._reachable(self.flows[link])}
            self._share(list(others.values()))
        flow.done()

    def _schedule(self, flow: Flow) -> None:
        flow.timer += 1
        version = flow.timer

        def fire(_: Event) -> None:
            if flow.timer == version:
                self._finish(flow)

        self.clock.call(max(1, ceil(flow.remaining / flow.rate - 1e-9)), fire)

    def _reachable(self, seeds: Iterable[Flow]) -> list[Flow]:
        seen = {id(f): f for f in seeds}
        stack = list(seen.values())
        while stack:
            for link in stack.pop().links:
                for other in self.flows[link]:
                    if id(other) not in seen:
                        seen[id(other)] = other
                        stack.append(other)
        return list(seen.values())

    def _share(self, flows: list[Flow]) -> None:
        """Give every flow of a connected set its max-min fair rate, and move its end
        accordingly."""
        now = self.clock.nanoseconds
        for flow in flows:
            flow.remaining -= flow.rate * (now - flow.updated)
            flow.updated = now
        for flow, rate in fair_rates(flows, self.capacity):
            if rate != flow.rate:
                flow.rate = rate
                self._schedule(flow)


def fair_rates(flows: list[Flow], capacity: list[float]) -> list[tuple[Flow, float]]:
    """Max-min fair rate of each flow, in bytes per nanosecond."""
    left = {link: capacity[link] for flow in flows for link in flow.links}
    users = {link: [f for f in flows if link in f.links] for link in left}
    open_flows = {id(f) for f in flows}
    rates: list[tuple[Flow, float]] = []
    while open_flows:
        share, link = min((left[k] / len(fs), k) for k, fs in users.items() if fs)
        for flow in users[link][:]:
            rates.append((flow, share))
            open_flows.discard(id(flow))
            for other in flow.links:
                users[other].remove(flow)
                left[other] -= share
    return rates
