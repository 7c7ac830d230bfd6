"""An oracle: collectives played step by step over symbolic data, counting what every rank sends and
receives through each port.

Written apart from `twin.collectives`: rank r sits on node r // n as GPU r % n. Ring c of a
placement visits the nodes in turn; on even nodes it enters GPU c and leaves by GPU c - 1, on odd
nodes the other way round, so that hops between nodes stay on one rail (but for the last one, when
the nodes are odd in number). Trees span nodes, and inside a node the ranks are a chain that starts
at GPU c.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise, product

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


def broadcast(size: int, per_node: int, meter: Meter) -> list[set[int]]:
    """Rank 0 sends along all rings; the channels that each rank ends with."""
    holds: list[set[int]] = [set() for _ in range(size)]
    for channel in range(per_node):
        order = ring(size, per_node, channel)
        start = order.index(0)
        chain = order[start:] + order[:start]
        holds[0].add(channel)
        for source, target in pairwise(chain):
            assert channel in holds[source]
            holds[target].add(channel)
            meter.move(source, target, Fraction(1, per_node))
    return holds


def parents(nodes: int) -> tuple[dict[int, int], dict[int, int]]:
    """Two binary trees over 0 .. nodes - 1, each as the parent of every node but its root: node i
    hangs over the nodes that share all but its lowest set bit. The second tree is the first one
    mirrored or shifted by one, so that leaves change places with the others."""
    first: dict[int, int] = {}
    for node in range(1, nodes):
        bit = node & -node
        above = (node ^ bit) | (bit << 1)
        first[node] = above if above < nodes else node ^ bit
    if nodes % 2 == 0:
        second = {nodes - 1 - node: nodes - 1 - up for node, up in first.items()}
    else:
        second = {(node + 1) % nodes: (up + 1) % nodes for node, up in first.items()}
    return first, second


def tree_all_reduce(size: int, per_node: int, meter: Meter) -> list[set[tuple[int, int, int]]]:
    """Sums go up two trees per rail and come down again; what each rank ends with, as (channel,
    tree, rank that was summed)."""
    nodes = size // per_node
    holds: list[set[tuple[int, int, int]]] = [set() for _ in range(size)]
    amount = Fraction(1, 2 * per_node)
    for channel, (number, up) in product(range(per_node), enumerate(parents(nodes))):
        chains = [
            [node * per_node + (channel + at) % per_node for at in range(per_node)]
            for node in range(nodes)
        ]
        sums = {rank: {rank} for rank in range(size)}
        edges = _upwards(chains, up)
        for source, target in edges:
            sums[target] |= sums[source]
            meter.move(source, target, amount)
        for target, source in reversed(edges):
            sums[target] = sums[source]
            meter.move(source, target, amount)
        for rank in range(size):
            holds[rank] |= {(channel, number, one) for one in sums[rank]}
    return holds


def _upwards(chains: list[list[int]], up: dict[int, int]) -> list[tuple[int, int]]:
    """The edges of one tree of ranks, every rank's own before its parent's."""

    def depth(node: int) -> int:
        return 1 + depth(up[node]) if node in up else 0

    inside = [(b, a) for chain in chains for a, b in reversed(list(pairwise(chain)))]
    across = [
        (chains[node][0], chains[up[node]][0]) for node in sorted(up, key=depth, reverse=True)
    ]
    return inside + across


def tree_broadcast(size: int, per_node: int, meter: Meter) -> list[set[tuple[int, int]]]:
    """Rank 0 sends down the two trees of the other nodes on every rail; the (channel, tree) that
    each rank ends with."""
    nodes = size // per_node
    holds: list[set[tuple[int, int]]] = [set() for _ in range(size)]
    for channel, (number, up) in product(range(per_node), enumerate(parents(nodes - 1))):
        edges: list[tuple[int, int]] = []
        for node in range(nodes):
            shift = 0 if node == 0 else channel
            chain = [node * per_node + (shift + at) % per_node for at in range(per_node)]
            edges += pairwise(chain)
        below = {node + 1: parent + 1 for node, parent in up.items()}
        roots = [node for node in range(1, nodes) if node not in below]
        edges += [(channel, root * per_node + channel) for root in roots]
        edges += [(a * per_node + channel, b * per_node + channel) for b, a in below.items()]
        holds[0].add((channel, number))
        for source, target in _reached(edges):
            holds[target].add((channel, number))
            meter.move(source, target, Fraction(1, 2 * per_node))
    return holds


def _reached(edges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Edges from rank 0 outwards."""
    there, rest = {0}, list(edges)
    while rest:
        edge = next(one for one in rest if one[0] in there)
        rest.remove(edge)
        there.add(edge[1])
        yield edge


def switch_all_reduce(size: int, meter: Meter) -> None:
    """One node whose switch reads all GPUs' shares for the owner's sum, and writes that to all;
    bytes as ports see them, the owner's own included."""
    for owner, other in product(range(size), range(size)):
        meter.sent[other, "nvlink"] += Fraction(1, size)
        meter.received[other, "nvlink"] += Fraction(1, size)
        meter.received[owner, "nvlink"] += Fraction(other == owner, size)
        meter.sent[owner, "nvlink"] += Fraction(other == owner, size)
