"""An oracle: collectives played step by step over symbolic data, counting what every rank sends and
receives through each port.

Written apart from `twin.collectives`: rank r sits on node r // n as GPU r % n. Ring c of a
placement visits the nodes in turn; on even nodes it enters GPU c and leaves by GPU c - 1, on odd
nodes the other way round, so that hops between nodes stay on one rail (but for the last one, when
the nodes are odd in number).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction

Port = tuple[int, str]


@dataclass
class Meter:
    """Bytes sent and received by each (rank, link), in units of the payload."""

    per_node: int
    sent: dict[Port, Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    received: dict[Port, Fraction] = field(default_factory=lambda: defaultdict(Fraction))

    def move(self, source: int, target: int, amount: Fraction) -> None:
        """One message."""
        link = "nvlink" if source // self.per_node == target // self.per_node else "nic"
        self.sent[source, link] += amount
        self.received[target, link] += amount


def ring(size: int, per_node: int, channel: int) -> list[int]:
    """Ranks in the order of one ring."""
    order: list[int] = []
    for node in range(size // per_node):
        local = [(channel + step) % per_node for step in range(per_node)]
        order += [node * per_node + gpu for gpu in (local if node % 2 == 0 else local[::-1])]
    return order


def reduce_scatter(size: int, per_node: int, meter: Meter) -> dict[tuple[int, int], set[int]]:
    """Plays all rings; (channel, share) -> the ranks summed at the rank that owns the share."""
    owned: dict[tuple[int, int], set[int]] = {}
    for channel in range(per_node):
        order = ring(size, per_node, channel)
        partial = {(place, share): {order[place]} for place in range(size) for share in range(size)}
        for step in range(size - 1):
            arriving = {}
            for place, rank in enumerate(order):
                share, after = (place - step) % size, (place + 1) % size
                arriving[after, share] = partial[place, share]
                meter.move(rank, order[after], Fraction(1, size * per_node))
            for key, summed in arriving.items():
                partial[key] = partial[key] | summed
        for share in range(size):
            owned[channel, share] = partial[(share - 1) % size, share]
    return owned


def all_gather(size: int, per_node: int, meter: Meter) -> dict[int, set[tuple[int, int]]]:
    """Plays all rings; rank -> the (channel, share) it holds at the end."""
    holds: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for channel in range(per_node):
        order = ring(size, per_node, channel)
        for place, rank in enumerate(order):
            holds[rank].add((channel, place))
        for step in range(size - 1):
            for place, rank in enumerate(order):
                target = order[(place + 1) % size]
                share = (channel, (place - step) % size)
                assert share in holds[rank]
                holds[target].add(share)
                meter.move(rank, target, Fraction(1, size * per_node))
    return holds


def all_to_all(size: int, meter: Meter) -> dict[int, set[int]]:
    """Every rank sends each rank its share; rank -> the senders it heard from."""
    heard: dict[int, set[int]] = defaultdict(set)
    for source in range(size):
        for target in range(size):
            heard[target].add(source)
            if source != target:
                meter.move(source, target, Fraction(1, size))
    return heard
