"""Nodes as network namespaces of this machine, joined by links of a declared rate.

A node is a namespace; each of its ranks has a network card there: one end of a veth pair whose
other end is a port of a bridge, the switch, in a namespace of its own. A token bucket (`tc tbf`)
holds both ends to the rate, so that what a rank sends and what it is sent are bounded apart, as by
a cable. Latency is what the kernel needs; no queue discipline here adds to it. What TCP adds of its
own is held small (`CALM`): two transfers that meet on a link then share it, and a transfer alone
takes its bytes over the rate.

The namespaces have no names: descriptors of this process hold them, and the ranks in them. When
those have ended, whatever ended them, the kernel takes everything down.

Needs Linux, root and iproute2; `obstacle` says what is missing.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from twin.errors import Problem, TwinError

NEW_NETWORK: Final = 0x40000000
"""CLONE_NEWNET, see namespaces(7)."""
INTERFACE: Final = "nic{}"
"""The network card of a node's n-th rank."""
NETWORK: Final = "10.77.0.0/16"
MTU: Final = 4000
"""OURS: headers take 1.6 % of a frame instead of 4.3 % with 1,500 bytes, and a bucket of one frame
still lets no message of 100 Mbps come more than 0.35 ms early."""
TIMER: Final = 200e-6
"""Seconds of its rate that a token bucket holds: a message after a pause is so much early. OURS: as
long as a message needs at least, so that none is ahead of the rate."""
PAYLOAD: Final = MTU - 52
"""Bytes of a frame beside the headers of IP and TCP with time stamps."""
SHARE: Final = 0.5
"""Of a bucket that cards are given at once."""
BURST: Final = SHARE * TIMER
"""Seconds of a link's rate that come in one piece, where they are more than a frame."""
GSO: Final = 64 * 1024
"""Bytes that the kernel hands to a card at once, at most. Cards are given half of what a bucket
holds: what is larger is cut into frames, which halved the rate at 5 Gbps; and a bucket that is full
because a timer is late loses rate (5 % at 1 Gbps with all of it)."""
QUEUE: Final = "64mb"
"""Of a token bucket. What waits must fit: a shorter queue drops packets, and two-way traffic then
falls to half of its rate (measured with a limit of 50 ms)."""
CALM: Final = {
    "tcp_congestion_control": "reno",
    "tcp_limit_output_bytes": "131072",
    "tcp_tso_rtt_log": "0",
}
"""Settings of the nodes' TCP. Nothing is ever lost here, so that Reno just sends: two ways at once
over 100 Mbps, 4 MB took 318.5 ms of 320 with it, and from one try to the next 318 to 375 ms with
BBR and CUBIC, which measure delays. The rest bounds what one connection has in queues, and so what
a short message of another waits at 1 Gbps: 2.6 ms instead of 13 (README.md)."""
BUFFER: Final = 8e-3
"""Seconds of its link's rate that a connection may have taken from its sender and not yet brought
over: by so much a send seems shorter than it is. OURS: less, and a link stands still while a busy
machine lets the sender wait."""
LEAST_BUFFER, MOST_BUFFER = 65_536, 1_000_000


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """Nodes that are network namespaces of this machine. Every rank has a network card of its own,
    as a GPU has in a scenario; ranks of one node reach each other without it, at memory speed."""

    nodes: int
    ranks_per_node: int = 1
    rate: float | None = None
    """Bytes per second of a rank's network card, in each direction; None: not held to any."""

    @property
    def ranks(self) -> int:
        """Of all nodes."""
        return self.nodes * self.ranks_per_node

    def node_of(self, rank: int) -> int:
        """Where a rank is: neighbours share a node, as in the twin."""
        return rank // self.ranks_per_node


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a rank runs: its namespace, and its network card in it. On loopback there is none."""

    namespace: int | None
    interface: str
    address: str

    def enter(self) -> None:
        """Move the calling thread there, and with it the threads and processes that it starts."""
        if self.namespace is not None:
            _enter(self.namespace)


LOOPBACK: Final = Seat(None, "lo", "127.0.0.1")


def obstacle() -> str:
    """Why there can be no namespaces with shaped links here; empty where they can be. It tries."""
    if sys.platform != "linux":
        return f"network namespaces are Linux's, and this is {sys.platform}"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"`{' and '.join(missing)}` of iproute2 cannot be found"
    try:
        with laid_out(LocalCluster(nodes=1, rate=1e9)):
            return ""
    except TwinError as error:
        return error.problems[0].message


@contextmanager
def laid_out(cluster: LocalCluster) -> Iterator[tuple[Seat, ...]]:
    """The seats of all ranks, while the context lasts. Raises TwinError (TW320) where the system
    refuses."""
    with ExitStack() as held:
        switch = held.enter_context(_namespace())
        _configure(switch, "ip", ["link add switch type bridge", "link set switch up"])
        seats: list[Seat] = []
        for node in range(cluster.nodes):
            namespace = held.enter_context(_namespace())
            _configure(namespace, "ip", ["link set lo up"])
            _calm(namespace, cluster.rate)
            for local in range(cluster.ranks_per_node):
                seat = Seat(namespace, INTERFACE.format(local), _address(node, local))
                _plug(seat, switch, f"n{node}r{local}", cluster.rate)
                seats.append(seat)
        yield tuple(seats)


def _address(node: int, local: int) -> str:
    return f"10.77.{node + 1}.{local + 1}"  # of NETWORK


def _plug(seat: Seat, switch: int, port: str, rate: float | None) -> None:
    """Join a rank's card to a port of the switch. What the rank sends leaves by its own card, also
    where a node has several: routes are looked up by the sender's address."""
    assert seat.namespace is not None
    card, address = seat.interface, seat.address
    table = 100 + int(address.rpartition(".")[2])
    peer = f"/proc/{os.getpid()}/fd/{switch}"
    _configure(
        seat.namespace,
        "ip",
        [
            f"link add {card} mtu {MTU} type veth peer name {port} mtu {MTU} netns {peer}",
            f"addr add {address}/16 dev {card}",
            f"link set {card} up",
            f"rule add from {address} lookup {table}",
            f"route add {NETWORK} dev {card} src {address} table {table}",
        ],
    )
    _configure(switch, "ip", [f"link set {port} master switch up"])
    if rate is not None:
        _hold(seat.namespace, card, rate)
        _hold(switch, port, rate)


def _hold(namespace: int, card: str, rate: float) -> None:
    """Let a card send no faster than a rate (bytes/s). A frame passes at once after a pause, or
    what comes while a timer is late: 25 kB at 1 Gbps."""
    burst = max(1.1 * MTU, rate * TIMER)
    bucket = f"rate {rate * 8:.0f}bit burst {burst:.0f}b limit {QUEUE}"
    _configure(namespace, "tc", [f"qdisc replace dev {card} root tbf {bucket}"])
    _configure(namespace, "ip", [f"link set {card} gso_max_size {min(GSO, SHARE * burst):.0f}"])


def _calm(namespace: int, rate: float | None) -> None:
    buffer = MOST_BUFFER if rate is None else rate * BUFFER
    most = round(max(LEAST_BUFFER, min(MOST_BUFFER, buffer)))
    with _returning():
        _enter(namespace)
        for name, value in {**CALM, "tcp_wmem": f"4096 16384 {most}"}.items():
            setting = Path("/proc/sys/net/ipv4", name)
            if setting.exists():  # some are younger than others
                setting.write_text(value, encoding="ascii")


@contextmanager
def _namespace() -> Iterator[int]:
    """A new network namespace, as the descriptor that holds it."""
    with _returning():
        if _libc().unshare(NEW_NETWORK):
            raise _refused(f"a new network namespace: {os.strerror(ctypes.get_errno())}")
        namespace = _current()
    try:
        yield namespace
    finally:
        os.close(namespace)


def _configure(namespace: int, tool: str, lines: Sequence[str]) -> None:
    """Run lines of `ip` or `tc` in a namespace."""
    with _returning():
        _enter(namespace)
        ran = subprocess.run(
            [tool, "-batch", "-"],
            input="\n".join(lines),
            text=True,
            capture_output=True,
            check=False,
        )
    if ran.returncode:
        raise _refused(f"`{tool} {lines[0]}`: {ran.stderr.strip()}")


@contextmanager
def _returning() -> Iterator[None]:
    """Back to where the calling thread was."""
    own = _current()
    try:
        yield
    finally:
        _enter(own)
        os.close(own)


def _current() -> int:
    """The network namespace of the calling thread. Descriptors close in programs that it starts."""
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _enter(namespace: int) -> None:
    if _libc().setns(namespace, NEW_NETWORK):
        raise _refused(f"to enter a network namespace: {os.strerror(ctypes.get_errno())}")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _refused(what: str) -> TwinError:
    hint = "run as root with iproute2 installed, or over loopback: `--loopback`"
    return TwinError([Problem("TW320", "nodes", f"the system refuses {what}", hint)])
