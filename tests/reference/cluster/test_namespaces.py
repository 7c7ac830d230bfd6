"""Links between namespaces: their rate, what is not held to it, and what is left afterwards."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from reference.cluster.namespaces import LocalCluster, Seat, laid_out, obstacle
from tests.reference.cluster.rows import of_scenario
from twin.errors import TwinError
from twin.loading.load import load

MBPS = 1e6 / 8


def transfer(source: Seat, target: Seat, size: int) -> float:
    """Bytes per second that arrive over one connection, from the first to the last."""
    arrived, taken = 0, 0.0
    ports: list[int] = []

    def receive() -> None:
        nonlocal arrived, taken
        target.enter()
        with socket.socket() as door:
            door.bind((target.address, 0))
            door.listen()
            ports.append(door.getsockname()[1])
            connection, _ = door.accept()
        with connection:
            connection.recv(1)
            begin = time.monotonic()
            while got := len(connection.recv(1 << 20)):
                arrived += got
            taken = time.monotonic() - begin

    def send() -> None:
        source.enter()
        while not ports:
            time.sleep(0.001)
        with socket.socket() as line:
            line.bind((source.address, 0))
            line.connect((target.address, ports[0]))
            line.sendall(bytes(size))

    threads = [Thread(target=receive), Thread(target=send)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return arrived / taken


def at_once(run: Callable[[int], None]) -> None:
    """Run for 0 and for 1."""
    threads = [Thread(target=run, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def carried(seat: Seat) -> int:
    """Bytes that a card has sent."""
    found: list[int] = []

    def look() -> None:
        seat.enter()
        lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
        own = next(line for line in lines if line.strip().startswith(f"{seat.interface}:"))
        found.append(int(own.split(":")[1].split()[8]))

    thread = Thread(target=look)
    thread.start()
    thread.join()
    return found[0]


RATES = pytest.mark.parametrize(
    ("rate", "size"), [(100 * MBPS, 3_000_000), (1000 * MBPS, 16_000_000)]
)


@pytest.mark.usefixtures("links")
@RATES
def test_a_link_never_carries_more_than_its_rate(rate: float, size: int) -> None:
    with laid_out(LocalCluster(nodes=2, rate=rate)) as seats:
        found = [transfer(seats[0], seats[1], size) for _ in range(3)]
    assert max(found) <= 1.03 * rate


@pytest.mark.slow  # a machine that does other work carries less
@pytest.mark.usefixtures("links")
@RATES
def test_a_link_carries_its_rate(rate: float, size: int) -> None:
    with laid_out(LocalCluster(nodes=2, rate=rate)) as seats:
        assert max(transfer(seats[0], seats[1], size) for _ in range(20)) >= 0.9 * rate


@pytest.mark.slow  # a machine that does other work carries less
@pytest.mark.usefixtures("links")
def test_both_ways_at_once_each_have_the_rate() -> None:
    rate, size, found, tries = 50 * MBPS, 1_000_000, [0.0, 0.0], 0
    with laid_out(LocalCluster(nodes=2, rate=rate)) as seats:

        def one_way(number: int) -> None:
            found[number] = transfer(seats[number], seats[1 - number], size)

        while min(found) < 0.8 * rate and tries < 10:  # this machine may be busy
            at_once(one_way)
            tries += 1
    assert min(found) >= 0.8 * rate
    assert max(found) <= 1.03 * rate


@pytest.mark.usefixtures("links")
@pytest.mark.parametrize("ends", [((0, 2), (1, 2)), ((2, 0), (2, 1))], ids=["into", "out of"])
def test_what_meets_at_one_rank_shares_its_link(ends: tuple[tuple[int, int], ...]) -> None:
    rate, size, found = 100 * MBPS, 1_000_000, [0.0, 0.0]
    with laid_out(LocalCluster(nodes=3, rate=rate)) as seats:

        def one_way(number: int) -> None:
            source, target = ends[number]
            found[number] = transfer(seats[source], seats[target], size)

        begin = time.monotonic()
        at_once(one_way)
        taken = time.monotonic() - begin
    assert 2 * size / taken <= 1.03 * rate


@pytest.mark.usefixtures("links")
def test_ranks_of_a_node_have_cards_of_their_own_and_reach_each_other_without_them() -> None:
    size = 1_000_000

    def sent(source: Seat, target: Seat) -> list[bool]:
        """Whether each card sent the bytes, beside answers and asking for addresses."""
        before = [carried(seat) for seat in seats]
        transfer(source, target, size)
        return [carried(seat) - then > size / 5 for seat, then in zip(seats, before, strict=True)]

    with laid_out(LocalCluster(nodes=2, ranks_per_node=2, rate=100 * MBPS)) as seats:
        assert sent(seats[0], seats[1]) == [False] * 4
        assert sent(seats[1], seats[2]) == [False, True, False, False]


@pytest.mark.usefixtures("links")
@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_left_of_it(*, fails: bool) -> None:
    def state() -> tuple[int, int, str]:
        names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
        own = os.stat("/proc/thread-self/ns/net").st_ino  # noqa: PTH116  a link that is none
        return len(list(Path("/proc/self/fd").iterdir())), own, names.stdout

    before = state()
    error = RuntimeError("inside")
    try:
        with laid_out(LocalCluster(nodes=2, rate=1e8)):
            if fails:
                raise error
    except RuntimeError as raised:
        assert raised is error  # noqa: PT017  what is left matters here, whatever was raised
    assert state() == before


def test_a_scenario_says_what_the_cluster_is(root: Path) -> None:
    scenario = load(root / "scenarios" / "kimi-k2-256xh800.yaml")
    cluster = of_scenario(scenario.cluster)
    assert (cluster.nodes, cluster.ranks_per_node, cluster.rate) == (32, 8, 50e9)
    assert cluster.ranks == 256
    assert [cluster.node_of(rank) for rank in (0, 7, 8)] == [0, 0, 1]


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert obstacle() == "`ip and tc` of iproute2 cannot be found"


def test_a_refusal_of_the_system_is_an_error_for_users(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refuses:
        def unshare(self, _: int) -> int:
            return -1

        def setns(self, *_: int) -> int:
            return 0

    monkeypatch.setattr("reference.cluster.namespaces._libc", Refuses)
    with pytest.raises(TwinError, match="TW320 the system refuses a new network namespace"):  # noqa: SIM117
        with laid_out(LocalCluster(nodes=1)):
            pass
