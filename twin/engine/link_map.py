"""The links of a cluster as the roles of a Program see them, and which of them a transfer crosses.

Every role has an NVLink port and a NIC, in each direction. Where activations or optimizer states
travel through host memory, it also has its GPU's PCIe link, which NIC traffic (GPUDirect) and host
copies share, and the DRAM of its socket, shared by the GPUs on it. Where uplinks of leaf switches
are oversubscribed, those of a pod are one link.

A folded role stands for many ranks. Those under one socket or leaf use it alike and at once, so its
flows count there as often as there are such ranks: their multiplicity. Roles whose ranks share a
socket or a pod share that link. A role's ranks are taken to sit everywhere as where its first one
does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import inf
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from twin.collectives.base import Traffic
from twin.engine.unevenness import ALL, Shares
from twin.network.links import LinkClass

Route: TypeAlias = tuple[tuple[int, float], ...]
"""Links that bytes cross, each with how many times they count there."""
Flow: TypeAlias = tuple[float, Route]
"""Bytes and their route."""
Path: TypeAlias = tuple[tuple[int, ...], tuple[float, ...]]
"""Links, and how many times a flow's bytes count on each."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The routes of one role, out of its GPU and into it. `up` and `down` are the uplinks of its
    leaf, which only those of the NIC's bytes cross that leave it."""

    nvlink_out: Route
    nvlink_in: Route
    nic_out: Route
    nic_in: Route
    up: Route = ()
    down: Route = ()
    to_host: Route = ()
    from_host: Route = ()
    slow_nvlink: Route = ()
    slow_nic: Route = ()
    """What an expert all-to-all gets of either beside kernels."""

    @property
    def links(self) -> set[int]:
        """All of them."""
        routes: list[Route] = [getattr(self, one.name) for one in fields(self)]
        return {link for route in routes for link, _ in route}


@dataclass(frozen=True, slots=True)
class Wiring:
    """The links of all roles: class and bytes per nanosecond of each, and the ports of each role.
    `alone` is what one transfer of a role gets on each path when only the ranks that the role
    stands for transfer: `nvlink`, `nic`, `far` (out of the leaf), `host`, and `slow_nvlink` and
    `slow_nic` beside kernels."""

    classes: tuple[LinkClass | None, ...]
    """None: no link, but a limit of one role's own kernels."""
    capacity: tuple[float, ...]
    ports: tuple[Ports, ...]
    alone: Mapping[str, float]

    def flows(self, traffic: Traffic, role: int, *, slowed: bool = False) -> tuple[Flow, ...]:
        """A transfer's bytes as flows through the role's own ports: what it sends leaves, and as
        much arrives. Where kernels slow it, it has no more than they leave it."""
        ports = self.ports[role]
        slow = (ports.slow_nvlink, ports.slow_nic) if slowed else ((), ())
        share = traffic.far_bytes / traffic.nic_bytes if traffic.nic_bytes else 0.0
        found = (
            (traffic.nvlink_bytes, ports.nvlink_out + ports.nvlink_in + slow[0]),
            (traffic.nic_bytes, _nic(ports, ports, share) + slow[1]),
            (traffic.to_host_bytes, ports.to_host),
            (traffic.from_host_bytes, ports.from_host),
        )
        return tuple((size, route) for size, route in found if size > 0)

    def used(
        self, total: Sequence[float], step_ns: int
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Bytes that a link carries, and the share of its capacity over a step that they take, by
        class, means over its links; from the `total` of every link."""
        carried: dict[str, float] = {}
        busy: dict[str, float] = {}
        for kind in filter(None, dict.fromkeys(self.classes)):
            own = [link for link, other in enumerate(self.classes) if other == kind]
            carried[kind] = sum(total[link] for link in own) / len(own)
            busy[kind] = sum(total[link] / self.capacity[link] for link in own) / len(own) / step_ns
        return carried, busy

    def message(
        self, size: float, path: tuple[Literal["nvlink", "nic"], bool], ends: tuple[int, int]
    ) -> tuple[Flow, ...]:
        """Bytes from one role to another over a link; whether they leave the leaf."""
        link, far = path
        source, target = (self.ports[end] for end in ends)
        if size <= 0:
            return ()
        if link == "nvlink":
            return ((size, source.nvlink_out + target.nvlink_in),)
        return ((size, _nic(source, target, float(far))),)


def _nic(source: Ports, target: Ports, far: float) -> Route:
    """Out of one NIC and into another, a share of it through the uplinks of their leaves."""
    if far <= 0:
        return source.nic_out + target.nic_in
    between = tuple((link, count * far) for link, count in source.up + target.down)
    return source.nic_out + between + target.nic_in


@dataclass(frozen=True, slots=True)
class Seats:
    """Which roles' ranks sit where: `role_of` of every GPU (negative: nobody's), a first rank of
    each role, and how many ranks share a PCIe switch, a socket, a node, and a pod. Switches and
    sockets are those of one node: the last of them may have fewer."""

    role_of: Sequence[int] | NDArray[np.int64]
    first: Sequence[int]
    switch: int
    socket: int
    node: int
    pod: int
    shares: Sequence[Shares] = ()
    """What is left to the GPU of each role; empty: all."""

    def left(self, role: int) -> Shares:
        """What is left to the GPU of a role."""
        return self.shares[role] if self.shares else ALL


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes per nanosecond of one link of each class in one direction; DRAM: of both together.
    `leaf` are the uplinks of all leaf switches of a pod. None where a link carries all that it is
    sent."""

    nvlink: float
    nic: float
    pcie: float
    dram: float
    pcie_uplink: float | None = None
    leaf: float | None = None
    loss: float = 0.0
    """Part of its rates that an expert all-to-all loses beside kernels."""

    def of(self, left: Shares) -> Rates:
        """Those of a GPU that has a share of them."""
        return replace(
            self,
            nvlink=self.nvlink * left.nvlink,
            nic=self.nic * left.nic,
            pcie=self.pcie * left.pcie,
        )


@dataclass(frozen=True, slots=True)
class Use:
    """What a role makes of its links: their rates, whether PCIe and host memory are among them, and
    the link of its messages."""

    rates: Rates
    narrow: bool
    messages: Literal["nvlink", "nic"] | None


class _Builder:
    """Collects links."""

    def __init__(self) -> None:
        self.classes: list[LinkClass | None] = []
        self.capacity: list[float] = []
        self.known: dict[object, int] = {}

    def ports(self, role: int, place: _Place, use: Use) -> Ports:
        """A role's own links, and its part of those that it shares."""
        rates = use.rates
        up, down = (self._shared("leaf", rates.leaf, place.pod, role, way) for way in "ud")
        plain = Ports(
            nvlink_out=self._own("nvlink", rates.nvlink),
            nvlink_in=self._own("nvlink", rates.nvlink) if use.messages == "nvlink" else (),
            nic_out=self._own("nic", rates.nic),
            nic_in=self._own("nic", rates.nic) if use.messages == "nic" else (),
            up=up,
            down=down,
        )
        if rates.loss:
            slow = [self._own(None, one * (1 - rates.loss)) for one in (rates.nvlink, rates.nic)]
            plain = replace(plain, slow_nvlink=slow[0], slow_nic=slow[1])
        if not use.narrow:
            return plain
        out, into = self._own("pcie", rates.pcie), self._own("pcie", rates.pcie)
        above, below = (
            self._shared("pcie_uplink", rates.pcie_uplink, place.switch, role, way) for way in "ud"
        )
        dram = self._shared("dram", rates.dram, place.socket, role, "")
        return replace(
            plain,
            nic_out=out + plain.nic_out,
            nic_in=plain.nic_in + into,
            to_host=out + above + dram,
            from_host=dram + below + into,
        )

    def _own(self, kind: LinkClass | None, rate: float) -> Route:
        """A new link of one role."""
        self.classes.append(kind)
        self.capacity.append(rate)
        return ((len(self.classes) - 1, 1.0),)

    def _shared(
        self, kind: LinkClass, rate: float | None, company: Company, role: int, way: str
    ) -> Route:
        """A link that all roles of a company share, in one direction."""
        if rate is None:
            return ()
        key = kind, way, company
        if key not in self.known:
            ((self.known[key], _),) = self._own(kind, rate)
        return ((self.known[key], float(_count(company, role))),)


def wire(
    seats: Seats, rates: Rates, *, host: bool, messages: Literal["nvlink", "nic"] | None = None
) -> Wiring:
    """The links of all roles. PCIe and DRAM are left out where nothing is copied to a `host`, as
    long as PCIe is no slower than the NIC behind it. A collective receives as much as it sends, so
    one port of a GPU stands for both directions, but for the link that `messages` take, which have
    a sender and a receiver."""
    own = [rates.of(seats.left(role)) for role in range(len(seats.first))]
    narrow = host or any(one.pcie < one.nic for one in own)
    linked = links(seats, [Use(one, narrow, messages) for one in own])
    return replace(linked, alone=alone(seats, rates))


def alone(seats: Seats, rates: Rates) -> dict[str, float]:
    """Bytes per nanosecond of a transfer that has its links to itself (`Wiring.alone`)."""
    places = _places(seats)
    switch, socket, pod = (
        max(_count(getattr(place, one), role) for role, place in enumerate(places))
        for one in ("switch", "socket", "pod")
    )
    nic = min(rates.nic, rates.pcie)
    up = inf if rates.pcie_uplink is None else rates.pcie_uplink / switch
    return {
        "nvlink": rates.nvlink,
        "nic": nic,
        "far": nic if rates.leaf is None else min(nic, rates.leaf / pod),
        "host": min(rates.pcie, up, rates.dram / socket),
        "slow_nvlink": rates.nvlink * (1 - rates.loss),
        "slow_nic": min(nic, rates.nic * (1 - rates.loss)),
    }


def links(seats: Seats, uses: Sequence[Use]) -> Wiring:
    """The links of roles that may make different use of theirs; nothing is `alone`."""
    builder = _Builder()
    ports = tuple(
        builder.ports(role, place, use)
        for role, (place, use) in enumerate(zip(_places(seats), uses, strict=True))
    )
    return Wiring(tuple(builder.classes), tuple(builder.capacity), ports, {})


Company: TypeAlias = tuple[tuple[int, int], ...]
"""Roles that share a place, and how many ranks of each do."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Who shares the PCIe switch, the socket and the pod of a role's first rank."""

    switch: Company
    socket: Company
    pod: Company


def _places(seats: Seats) -> list[_Place]:
    known: dict[tuple[int, int], Company] = {}

    def company(role: int, size: int) -> Company:
        place = _place(seats, role, size)
        if place not in known:
            inside = Counter(map(int, seats.role_of[slice(*place)]))
            known[place] = tuple(sorted(one for one in inside.items() if one[0] >= 0))
        return known[place]

    return [
        _Place(*(company(role, size) for size in (seats.switch, seats.socket, seats.pod)))
        for role in range(len(seats.first))
    ]


def _place(seats: Seats, role: int, size: int) -> tuple[int, int]:
    """The first rank in the place of a role's first rank, where so many ranks share one, and the
    one behind the last."""
    rank = seats.first[role]
    if size < seats.node:
        node = rank // seats.node * seats.node
        first = node + (rank - node) // size * size
        last = min(first + size, node + seats.node)
    else:
        first = rank // size * size
        last = first + size
    return first, last


def _count(company: Company, role: int) -> int:
    return dict(company)[role]
