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
from math import ceil, inf
from typing import Final, cast

from simpy import Event

from twin.engine.clock import Clock

ROUNDING: Final = 1e-9
"""Nanoseconds by which a float quotient may exceed the whole number that it stands for."""


@dataclass(slots=True, eq=False)
class Flow:
    """Bytes of a transfer on their way over `links`. `timer` counts how often its end was set."""

    transfer: int
    remaining: float
    links: tuple[int, ...]
    rate: float = 0.0
    updated: int = 0
    timer: int = 0


@dataclass(slots=True)
class Fluid:
    """The links of a cluster and the flows on them. Capacities are bytes per nanosecond; the clock
    is integer nanoseconds. `arrived` is called with the transfer's number when the last byte of one
    of its flows is through."""

    clock: Clock
    capacity: list[float]
    arrived: Callable[[int], None]
    flows: list[list[Flow]] = field(init=False)
    shared: bool = False
    """True once two flows have met on a link: from then on times are exact to float rounding, not
    to the nanosecond."""

    def __post_init__(self) -> None:
        self.flows = [[] for _ in self.capacity]

    def start(self, transfer: int, size: float, links: tuple[int, ...]) -> None:
        """Put `size` bytes of a transfer on `links` now."""
        flow = Flow(transfer, size, links, updated=self.clock.nanoseconds)
        alone = True
        rate = inf
        for link in links:
            users = self.flows[link]
            if users:
                alone = False
            users.append(flow)
            rate = min(rate, self.capacity[link])
        if alone:
            flow.rate = rate
            self._schedule(flow)
        else:
            self.shared = True
            self._share(self._reachable([flow]))

    def _schedule(self, flow: Flow) -> None:
        flow.timer += 1
        delay = max(0, ceil(flow.remaining / flow.rate - ROUNDING))
        self.clock.call(delay, self._ended, (flow, flow.timer))

    def _ended(self, event: Event) -> None:
        flow, timer = cast("tuple[Flow, int]", event.value)
        if flow.timer != timer:
            return  # its rate has changed since, and with it its end
        neighbours: list[Flow] = []
        for link in flow.links:
            users = self.flows[link]
            users.remove(flow)
            neighbours += users
        if neighbours:
            self._share(self._reachable(neighbours))
        self.arrived(flow.transfer)

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
