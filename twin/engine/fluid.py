"""Links as fluids: flows share every link they cross, max-min fair; rates change only when a flow
starts or ends.

Progressive filling (Bertsekas and Gallager, Data Networks, section 6.5.2): the link with the
smallest fair share fixes the rate of its flows, is taken out with them, and so on. Only the links
that are connected to the changed flow through shared flows are looked at. Holds for long transfers
under fair congestion control; packet effects and unfair hashing are not in it.

A step meets the same few sets of flows again and again, so the rates of a set are worked out once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Final

from twin.engine.link_map import Path

if TYPE_CHECKING:  # simpy is the readable player's
    from twin.engine.clock import Clock

ROUNDING: Final = 1e-9
"""Nanoseconds by which a float quotient may exceed the whole number that it stands for."""


@dataclass(slots=True, eq=False)
class _Flow:
    """Bytes of a transfer on their way. `path` is the number of their path, `places` the flows on
    each of its links, `end` when they are through at the present rate, `due` when the timer goes
    off that looks after them."""

    transfer: int
    remaining: float
    places: tuple[list[_Flow], ...]
    path: int
    updated: int
    rate: float = 0.0
    end: int = -1
    due: int = -1


@dataclass(slots=True)
class Fluid:
    """The links of a cluster and the flows on them. Capacities are bytes per nanosecond; the clock
    is integer nanoseconds. `arrived` is called with the transfer's number when the last byte of one
    of its flows is through."""

    clock: Clock
    capacity: list[float]
    arrived: Callable[[int], None]
    shared: bool = False
    """True once two flows have met on a link: from then on times are exact to float rounding, not
    to the nanosecond."""
    _flows: list[list[_Flow]] = field(init=False)
    """Per link."""
    _paths: dict[Path, int] = field(default_factory=dict[Path, int])
    _known: list[Path] = field(default_factory=list[Path])
    _alone: list[float] = field(default_factory=list[float])
    """Rate of a flow that has a path to itself, by the path's number."""
    _places: list[tuple[list[_Flow], ...]] = field(default_factory=list[tuple[list[_Flow], ...]])
    """The flows on the links of a path, by its number."""
    _rates: dict[tuple[int, ...], dict[int, float]] = field(
        default_factory=dict[tuple[int, ...], dict[int, float]]
    )
    """Rate of each path in a set of flows, by the paths of the set, ascending."""

    def __post_init__(self) -> None:
        self._flows = [[] for _ in self.capacity]

    def start(self, transfer: int, size: float, links: tuple[int, ...]) -> None:
        """Put `size` bytes of a transfer on `links` now."""
        self.begin(transfer, size, self.path(links, (1.0,) * len(links)))

    def path(self, links: tuple[int, ...], weights: tuple[float, ...]) -> int:
        """The number of a path. A flow that stands for several that do alike has their number as
        its weight on links that they share."""
        path = links, weights
        if path not in self._paths:
            self._paths[path] = len(self._known)
            self._known.append(path)
            self._alone.append(fair_rates([path], self.capacity)[0])
            self._places.append(tuple(self._flows[link] for link in links))
        return self._paths[path]

    def begin(self, transfer: int, size: float, path: int) -> None:
        """Put `size` bytes of a transfer on a path now."""
        places, now = self._places[path], self.clock.nanoseconds
        flow = _Flow(transfer, size, places, path, now)
        met = False
        for users in places:
            if users:
                met = True
            users.append(flow)
        if met:
            self.shared = True
            self._share(self._connected([flow]))
        else:
            flow.rate = self._alone[path]
            self._aim(flow, now)

    def _aim(self, flow: _Flow, now: int) -> None:
        """Say when a flow ends at its new rate, and see to a timer by then."""
        flow.end = end = now + max(0, ceil(flow.remaining / flow.rate - ROUNDING))
        if flow.due < now or end < flow.due:
            flow.due = end
            self.clock.call(end - now, self._ended, (flow, end))

    def _ended(self, timer: tuple[_Flow, int]) -> None:
        flow, due = timer
        if flow.due != due:
            return  # an earlier timer has taken over
        if flow.end > due:  # it has become slower since
            flow.due = flow.end
            self.clock.call(flow.end - due, self._ended, (flow, flow.end))
            return
        flow.due = -1  # for a second timer of this instant
        neighbours: dict[_Flow, None] = {}
        for users in flow.places:
            users.remove(flow)
            if users:
                neighbours |= dict.fromkeys(users)
        if neighbours:
            self._share(self._connected([*neighbours]))
        self.arrived(flow.transfer)

    def _connected(self, seeds: list[_Flow]) -> list[_Flow]:
        """All flows that share links with these, or with those that do."""
        found, seen = seeds, set(seeds)
        for flow in found:  # grows while it is read
            for there in flow.places:
                if len(there) > 1:
                    for other in there:
                        if other not in seen:
                            seen.add(other)
                            found.append(other)
        return found

    def _share(self, flows: list[_Flow]) -> None:
        """Give every flow of a connected set its max-min fair rate, and move its end
        accordingly."""
        now = self.clock.nanoseconds
        if len(flows) == 1:
            paths = (flows[0].path,)
        else:
            paths = tuple(sorted([flow.path for flow in flows]))
        rates = self._rates.get(paths)
        if rates is None:
            found = fair_rates([self._known[path] for path in paths], self.capacity)
            rates = self._rates[paths] = dict(zip(paths, found, strict=True))
        for flow in flows:
            rate = rates[flow.path]
            if rate != flow.rate:
                flow.remaining -= flow.rate * (now - flow.updated)
                flow.updated, flow.rate = now, rate
                self._aim(flow, now)


def fair_rates(paths: Sequence[Path], capacity: Sequence[float]) -> list[float]:
    """Max-min fair rate of a flow on each of these paths, in bytes per nanosecond. A link that
    flows cross with weights gives each of them its capacity over the sum of the weights."""
    users: dict[int, dict[int, float]] = {}
    for flow, (links, weights) in enumerate(paths):
        for link, weight in zip(links, weights, strict=True):
            users.setdefault(link, {})[flow] = weight
    left = {link: capacity[link] for link in users}
    rates = [-1.0] * len(paths)
    while users:
        share, link = min((left[k] / _total(crossing), k) for k, crossing in users.items())
        for flow in [*users[link]]:
            rates[flow] = share
            for other in paths[flow][0]:
                left[other] -= share * users[other].pop(flow)
                if not users[other]:
                    del users[other]
    return rates


def _total(crossing: dict[int, float]) -> float:
    """The sum of weights, one after the other: since Python 3.12 `sum` corrects its rounding."""
    total = 0.0
    for weight in crossing.values():
        total += weight
    return total
